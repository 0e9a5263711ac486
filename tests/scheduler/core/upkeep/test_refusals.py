"""refusals.py: what reads a refused task is refused for the same reason."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, failures, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.upkeep import refusals as module
from weft.scheduler.core.upkeep.refusals import refusals_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of


@pytest.fixture
def board() -> Board:
    """A board on which user limits are one task, and alice has it."""
    board = Board(max_idle_functions=64)
    user_limits_of(board.state).max_rows = 1
    alice = board.client()
    assert alice == 1
    board.send(alice, graph("full"))
    return board


def test_a_reader_that_comes_when_there_is_room_again_is_refused_for_the_limit(board):
    board.send(1, graph("x", blob=None))
    why = failures(board.out, 1)["x"]
    assert why[0] == "user-limit"
    board.send(1, m.ReleaseKeys(keys=["full"]))
    board.send(1, graph(":x -> y", blob=None))
    assert failures(board.out, 1) == {"y": why}
    board.send(1, m.ReleaseKeys(keys=["x"]))
    board.send(1, graph(":y -> z", blob=None))
    assert failures(board.out, 1) == {"z": why}
    assert board.states("x", "y", "z") == ["-", "-", "-"]


def test_readers_in_the_same_message_are_refused_and_others_are_not():
    board = Board()
    client = board.client()
    board.send(client, graph("a b -> c", ":c d -> e", "f", detached=True))
    assert [*failures(board.out, client)] == ["a", "b", "c", "d", "e", "f"]  # there is no journal
    message = graph("u", ":u -> v", ":v w -> x", "y")
    message.options = [{"detached": True}, {}]
    message.option_of = [0, 1, 1, 1, 1]
    board.send(client, message)
    assert {key: why[:2] for key, why in failures(board.out, client).items()} == {
        key: ["unrecorded", "u"] for key in "uvx"
    }
    assert board.states("w", "y") == ["no_worker", "no_worker"]


def test_a_key_that_is_taken_is_refused_no_more(board):
    board.send(1, graph("x", blob=None))
    assert [*failures(board.out, 1)] == ["x"]
    board.send(1, m.ReleaseKeys(keys=["full", "x"]))
    board.send(1, graph("x", blob=None))
    assert failures(board.out, 1) == {}
    assert refusals_of(board.state).by_client == {}


def test_a_task_of_others_is_read_by_a_client_to_whom_it_was_refused(board):
    board.send(1, graph("x", blob=None))
    assert [*failures(board.out, 1)] == ["x"]
    bob = board.client("bob")
    board.send(bob, graph("x"))
    board.send(1, m.ReleaseKeys(keys=["full"]))
    board.send(1, graph(":x -> y", blob=None))
    assert failures(board.out, 1) == {}
    assert board.states("y") == ["waiting"]


def test_the_latest_keys_are_kept_and_none_of_a_client_that_is_gone(board, monkeypatch):
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    board.send(1, graph("x0 x1 x2", blob=None))
    assert [*failures(board.out, 1)] == ["x0", "x1", "x2"]
    ((client, kept),) = refusals_of(board.state).by_client.items()
    assert (client.name, [*kept]) == ("alice", ["x1", "x2"])
    board.send(1, m.Bye(reason="done"))
    assert refusals_of(board.state).by_client == {}
    board.drop_rest()


def test_a_row_that_is_refused_to_an_attempt_may_be_submitted_for_another_one(board):
    worker = board.worker()
    in_task = board.client("t", worker_id="id of w")
    board.send(in_task, graph("x", attempt=77))
    assert failures(board.out, in_task)["x"][0] == "not-permitted"
    assert refusals_of(board.state).by_client == {}
    assert worker in board.state.workers
    board.drop_rest()
