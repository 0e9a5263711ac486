"""What calls have printed, on its way to the scheduler, and what is kept there."""

from __future__ import annotations

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages.questions import BAD_ARGUMENT
from weft.scheduler.core.output import kept
from weft.scheduler.core.output.kept import kept_of


def printed(attempt, stdout, stderr="", cut=0):
    return m.AttemptsPrinted(attempts=[attempt], stdout=[stdout], stderr=[stderr], cut=[cut])


def asked(board, peer, key):
    """Return what a client is answered."""
    out = board.send(peer, m.Ask(request=7, name="output", arguments={"key": key}))
    (answer,) = [x for x in out[peer] if isinstance(x, (m.Answer, m.AskFailed))]
    return answer.info["outputs"] if isinstance(answer, m.Answer) else answer.kind


def test_the_output_of_an_attempt_is_kept_when_its_task_is_forgotten(board):
    worker, alice = board.worker("w"), board.client("alice")
    board.send(alice, graph("x"))
    attempt = board.task("x").attempt
    board.send(worker, printed(attempt, "out", "err", 1))
    assert asked(board, alice, "x") == [["out", "err", True]]
    board.finish("x")
    board.send(alice, m.ReleaseKeys(keys=["x"]))
    assert board.states("x") == ["-"]
    assert asked(board, alice, "x") == [["out", "err", True]]
    assert asked(board, alice, "y") == []


def test_the_output_of_an_attempt_that_a_worker_does_not_run_is_left_out(board):
    worker, other, alice = board.worker("w"), board.worker("other"), board.client("alice")
    board.send(alice, graph("x"))
    at = board.where("x")
    attempt = board.task("x").attempt
    board.send(other if at == worker else worker, printed(attempt, "false"))
    board.send(at, printed(attempt + 1000, "false"))
    assert asked(board, alice, "x") == []


def test_a_later_attempt_takes_the_place_of_an_earlier_one(board):
    worker, alice = board.worker("w"), board.client("alice")
    board.send(alice, graph("x"))
    attempt = board.task("x").attempt
    board.send(worker, printed(attempt, "first"))
    board.send(worker, printed(attempt, "second"))
    assert asked(board, alice, "x") == [["second", "", False]]


def test_the_oldest_are_dropped_when_there_is_no_room(monkeypatch):
    monkeypatch.setattr(kept, "MAX_NBYTES", 2000)
    board = Board()
    worker, alice = board.worker("w", nthreads=3), board.client("alice")
    board.send(alice, graph("a", "b", "c"))
    for key in "abc":
        board.send(worker, printed(board.task(key).attempt, key * 300))
    assert list(kept_of(board.state).by_key) == ["b", "c"]


def test_bytes_are_counted_and_not_characters(monkeypatch):
    monkeypatch.setattr(kept, "MAX_NBYTES", 2000)
    board = Board()
    worker, alice = board.worker("w", nthreads=2), board.client("alice")
    board.send(alice, graph("a", "b"))
    for key in "ab":
        board.send(worker, printed(board.task(key).attempt, "\N{SNOWMAN}" * 300))
    assert list(kept_of(board.state).by_key) == ["b"]
    assert kept_of(board.state).nbytes == 1401


def test_a_question_without_a_key_is_refused(board):
    alice = board.client("alice")
    assert asked(board, alice, 5) == BAD_ARGUMENT
