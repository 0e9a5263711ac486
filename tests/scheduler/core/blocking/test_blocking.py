"""A blocked worker gets no tasks, goes on with those that it runs, and serves what it has."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.blocking.feature import MAX_BLOCKED, MAX_FOR_MS, block_of, blocks_of
from weft.scheduler.core.insight.desired import desired_workers
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.insight.info import describe_worker
from weft.scheduler.core.insight.metrics import count_workers

from ...builders import Board, assigned, graph


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.drop_rest()


def ask(question: str, *names: object, **arguments: object) -> m.Ask:
    return m.Ask(request=1, name=question, arguments={"names": list(names), **arguments})


def block(board: Board, peer: int, *names: str, **arguments: object) -> None:
    board.send(peer, ask("block_workers", *names, **arguments))


def unblock(board: Board, peer: int, *names: str) -> None:
    board.send(peer, ask("unblock_workers", *names))


def why(board: Board, peer: int) -> str:
    return str(describe_worker(board.state, board.state.workers[peer])["why_not"])


def test_a_blocked_worker_gets_nothing_and_all_goes_to_the_others(board):
    ann, a, b = board.client(), board.worker("a"), board.worker("b")
    block(board, ann, "a", reason="failed 5 of 6 calls")
    assert board.out.of(ann, m.Answer) == [m.Answer(request=1, info={"n_workers": 1})]
    out = board.send(ann, graph("x", "y", "z"))
    assert not assigned(out, a)
    assert list(assigned(out, b)) == ["x", "y", "z"]


def test_a_blocked_worker_gives_back_the_unstarted_tasks_and_runs_the_rest(board):
    ann, a = board.client(), board.worker("a")
    board.send(ann, graph("x", "y"))
    block(board, ann, "a")
    assert board.out.of(a, m.ReturnAttempts) == [m.ReturnAttempts(count=2)]
    b = board.worker("b")
    board.send(a, m.AttemptsReturned(attempts=[board.attempt("y")]))
    assert (board.where("x"), board.where("y")) == (a, b)
    board.finish(a, "x")
    out = board.send(ann, graph("x -> after"))
    assert list(assigned(out, b)) == ["after"]


def test_a_worker_that_is_unblocked_gets_what_waits(board):
    ann, a = board.client(), board.worker("a")
    block(board, ann, "a", reason="slow")
    board.send(ann, graph("x"))
    assert board.states("x") == ["queued"]
    steps = str(explain(board.state, board.task("x")))
    assert ": slow" in steps
    assert "blocked by" in steps
    unblock(board, ann, "a")
    assert board.where("x") == a
    assert why(board, a) == ""


def test_a_block_ends_with_its_time(board):
    ann, a = board.client(), board.worker("a")
    block(board, ann, "a", for_ms=10_000)
    board.send(ann, graph("x"))
    board.tick(9.0)
    assert board.states("x") == ["queued"]
    board.tick(2.0)
    assert board.where("x") == a
    assert not blocks_of(board.state)


def test_a_later_block_of_a_name_replaces_the_earlier_one(board):
    ann, a = board.client(), board.worker("a")
    block(board, ann, "a", for_ms=1000)
    block(board, ann, "a", reason="for good")
    board.tick(2.0)
    assert why(board, a).endswith(": for good")


def test_a_host_is_blocked_with_its_workers_also_those_that_come_later(board):
    ann, facts = board.client(), {"host": "node7"}
    a = board.worker("a", facts=facts)
    block(board, ann, "node7")
    later = board.worker("later", facts=facts)
    other = board.worker("other", facts={"host": "node8"})
    assert [bool(why(board, peer)) for peer in (a, later, other)] == [True, True, False]
    assert count_workers(board.state)["blocked"] == 2


def test_a_worker_with_two_blocked_names_is_opened_by_the_last(board):
    ann, a = board.client(), board.worker("a", facts={"host": "node7"})
    block(board, ann, "node7", "a")
    unblock(board, ann, "a")
    assert why(board, a)
    unblock(board, ann, "node7")
    assert not why(board, a)


def test_more_workers_are_wanted_in_the_place_of_one_that_is_blocked(board):
    ann = board.client()
    board.worker("a")
    block(board, ann, "a")
    board.send(ann, graph("x"))
    assert desired_workers(board.state).n_workers == 2


def test_blocks_are_listed(board):
    ann = board.client()
    block(board, ann, "a", for_ms=5000)
    board.send(ann, m.Ask(request=2, name="blocked_workers", arguments={}))
    (answer,) = board.out.of(ann, m.Answer)
    assert answer.info["blocked"]["a"]["left_s"] == 5.0


def test_a_name_that_is_not_blocked_is_refused(board):
    ann = board.client()
    block(board, ann, "a")
    unblock(board, ann, "a", "b")
    (failed,) = board.out.of(ann, m.AskFailed)
    assert failed.text == "'b' is not blocked; those that are: a"
    assert list(blocks_of(board.state)) == ["a"]


def test_no_more_names_are_blocked_than_the_limit(board):
    ann = board.client()
    block(board, ann, *(f"n{i}" for i in range(MAX_BLOCKED)))
    block(board, ann, "one-more")
    assert "unblock some first" in board.out.of(ann, m.AskFailed)[0].text
    block(board, ann, "n0")
    assert board.out.of(ann, m.Answer)


def test_the_block_of_a_worker_is_found_without_a_step_for_each_name(board):
    ann, a = board.client(), board.worker("a")
    ws, steps = board.state.workers[a], []
    for n_names in (1, MAX_BLOCKED - 1):
        block(board, ann, *(f"n{i}" for i in range(n_names)), for_ms=1000)
        calls = []
        sys.setprofile(lambda frame, event, _argument, calls=calls: calls.append(event))
        block_of(board.state, ws)
        sys.setprofile(None)
        steps.append(len(calls))
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    "question",
    [
        ask("block_workers"),
        ask("block_workers", 1),
        ask("block_workers", ""),
        ask("block_workers", "a", for_ms=-1),
        ask("block_workers", "a", for_ms=MAX_FOR_MS + 1),
        ask("block_workers", "a", reason="x" * 201),
        ask("unblock_workers"),
    ],
)
def test_wrong_arguments_are_refused(board, question):
    ann = board.client()
    board.send(ann, question)
    assert board.out.of(ann, m.AskFailed)
    assert not blocks_of(board.state)
