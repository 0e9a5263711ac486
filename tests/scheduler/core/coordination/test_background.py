"""Tasks in the background (`fire_and_forget`), by events of the scheduler's core."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.builders import Board, dropped, graph
from tests.scheduler.callers import Caller
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination import background
from weft.scheduler.core.coordination.background import BACKGROUND_INVARIANTS, background_of
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.leaving.leavers import START_S
from weft.scheduler.core.recovery.records import recovery_of


def keep(caller: Caller, *keys: str) -> Any:
    """Let a client put tasks into the background, and release them."""
    answer = caller.call(h.BACKGROUND, "keep", "all", keys=[*keys])
    caller.board.send(caller.peer, m.ReleaseKeys(keys=[*keys]))
    return answer


KEPT = {"unknown": [], "n_unknown": 0}


def test_a_task_in_the_background_outlives_its_client_and_is_forgotten_at_its_end(board, alice):
    board.send(alice.peer, graph("a -> b"))
    assert keep(alice, "b") == KEPT
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]), m.Bye(reason=""))
    board.close(alice.peer)
    worker = board.worker()
    board.finish(worker, "a")
    board.finish(worker, "b")
    assert board.states("b") == ["memory"]
    board.tick()
    assert board.states("a", "b") == ["-", "-"]
    assert not objects_of(board.state).records
    assert not board.state.functions or board.state.idle_functions


def test_a_task_in_the_background_that_fails_is_forgotten(board, alice):
    worker = board.worker()
    board.send(alice.peer, graph("a -> b"))
    keep(alice, "b")
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]))
    board.raise_(worker, "a")
    board.tick()
    assert board.states("a", "b") == ["-", "-"]


def test_a_result_that_is_wanted_as_well_stays(board, alice):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    alice.call(h.BACKGROUND, "keep", "all", keys=["a"])
    board.finish(worker, "a")
    board.tick()
    assert board.states("a") == ["memory"]
    assert not background_of(board.state).keeper.wants
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]))
    assert board.states("a") == ["-"]


def test_a_task_whose_result_is_lost_before_it_is_let_go_has_ended(board, alice):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    keep(alice, "a")
    board.finish(worker, "a")
    board.close(worker)
    board.pass_time(30)
    assert board.states("a") == ["-"]


def test_tasks_that_have_ended_or_are_unknown_are_not_kept(board, alice):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    board.finish(worker, "a")
    assert keep(alice, "a", "x") == {"unknown": ["x"], "n_unknown": 1}
    assert board.states("a") == ["-"]


def test_a_task_whose_result_its_client_has_got_does_not_run_again_in_the_background(board, alice):
    """The client was sent the result, and its worker has left, while the request was on its way."""
    worker = board.worker()
    board.send(alice.peer, graph("a -> b"), m.WantKeys(keys=["b"]))
    board.finish(worker, "a")
    board.finish(worker, "b", blob=b"b")
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]))
    board.send(worker, m.WorkerLeaving(reason="SIGTERM"), m.AskToLeave(request=1))
    board.tick(2 * START_S)
    board.send(worker, m.Bye(reason="SIGTERM"))
    assert board.states("a", "b") == ["released", "released"]
    assert alice.call(h.BACKGROUND, "keep", "all", keys=["b"]) == KEPT
    assert board.states("a", "b") == ["released", "released"]
    board.send(alice.peer, m.ReleaseKeys(keys=["b"]))
    assert board.states("a", "b") == ["-", "-"]


def test_a_result_of_the_last_scheduler_that_a_worker_came_back_with_has_ended():
    board = Board(client_lease_s=60.0)
    board.state.first_attempt = board.state.next_attempt = 100
    alice = Caller(board, "alice", last_epoch=1)
    worker = board.come_back("w", last_epoch=1, kept={"a": 5})
    assert "a" in recovery_of(board.state).rows
    assert alice.call(h.BACKGROUND, "keep", "all", keys=["a"]) == KEPT
    assert board.states("a") == ["memory"]
    validate(board.state)
    board.tick()
    assert not background_of(board.state).keeper.wants
    assert [task.key for task in recovery_of(board.state).kept] == ["a"], "its owner may come back"
    drops = []
    for _ in range(100):  # the worker shows that it lives
        board.send(worker, m.Heartbeat())
        drops += dropped(board.tick(2.0), worker)
    assert len(drops) == 1
    assert board.states("a") == ["-"]
    assert board.rest() == ["Recovered"]


def test_a_task_in_the_background_is_cancelled_by_force(board, alice):
    board.send(alice.peer, graph("a"))
    alice.call(h.BACKGROUND, "keep", "all", keys=["a"])
    board.send(alice.peer, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert board.states("a") == ["no_worker"]
    board.send(alice.peer, m.WantKeys(keys=["a"]))
    board.send(alice.peer, m.CancelKeys(keys=["a"], force=True, reason=""))
    assert board.states("a") == ["-"]
    assert not background_of(board.state).keeper.wants


def test_the_number_of_tasks_in_the_background_is_limited(board, alice, monkeypatch):
    monkeypatch.setattr(background, "MAX_TASKS", 2)
    board.send(alice.peer, graph("a b c"))
    assert keep(alice, "a", "b") == KEPT
    assert alice.call(h.BACKGROUND, "keep", "all", keys=["c"]) == h.TOO_LARGE


def _broken_by(name: str, board: Board) -> None:
    held = background_of(board.state)
    task = board.task("a")
    if name.startswith("tasks in the background are known"):
        task.wanted_by = ()
        task.wanted_by = tuple(c for c in board.state.clients.values() if task in c.wants)
    elif name.startswith("a task in the background that"):
        held.ended.clear()
        held.ended["other"] = None
    else:
        held.due = None


@pytest.mark.parametrize("name", BACKGROUND_INVARIANTS)
def test_each_broken_invariant_of_the_background_is_named(board, alice, name):
    worker = board.worker()
    board.send(alice.peer, graph("a"))
    alice.call(h.BACKGROUND, "keep", "all", keys=["a"])
    board.finish(worker, "a")
    validate(board.state)
    _broken_by(name, board)
    with pytest.raises(InvalidState) as error:
        validate(board.state)
    assert name in str(error.value)
