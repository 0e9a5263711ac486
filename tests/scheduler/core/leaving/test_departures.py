"""What is logged, and what futures report, of workers that have left."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.ends.attempt_ends import attempt_ends
from weft.scheduler.core.leaving.leavers import START_S

from ...builders import Board, graph
from .test_leavers import LEAVE, Leaving

LATE = m.Bye(reason="signal SIGTERM, and its grace period of 10 s is over")


def lines(board: Board) -> list[tuple[str, str]]:
    """Return the log lines of the last event."""
    return [(one.level, one.text) for one in board.actions if isinstance(one, LogLine)]


def test_a_worker_whose_results_have_moved_has_lost_nothing():
    c = Leaving(2, "x", "y")
    c.leave(0)
    c.report(1, "x", "y")
    c.end(0)
    assert lines(c.board) == [
        ("info", "worker w0 has left (SIGTERM): 2 results (16 B) have moved; "
         "nothing that is needed is lost")
    ]  # fmt: skip
    assert attempt_ends(c.board.state, "x") == [("w0", "finished")]


def test_a_worker_that_had_nothing_has_lost_nothing():
    c = Leaving(1)
    c.leave(0)
    c.end(0)
    text = "worker w0 has left (SIGTERM): nothing that is needed is lost"
    assert lines(c.board) == [("info", text)]


def test_a_worker_that_had_to_leave_says_what_is_lost_with_it():
    c = Leaving(1, "x", "y")
    c.board.send(c.alice, graph("runs", "waits"))
    attempts = [c.board.attempt(key) for key in ("runs", "waits")]
    c.leave(0)
    c.board.send(c.workers[0], m.AttemptsReturned(attempts=attempts[1:]))
    c.board.send(c.workers[0], LATE)
    assert lines(c.board) == [
        (
            "warning",
            f"worker w0 had to leave before all was moved ({LATE.reason}): 2 results (16 B), 'x' "
            "for one, are computed again; 1 task runs again",
        )
    ]
    end = f"did not end before its worker had to leave ({LATE.reason})"
    assert attempt_ends(c.board.state, "runs") == [("w0", end)]
    assert attempt_ends(c.board.state, "waits") == []
    left = "finished; its worker left, and its result with it"
    assert attempt_ends(c.board.state, "x") == [("w0", left)]
    c.board.drop_rest()


def test_the_actor_of_a_worker_that_had_to_leave_ends_with_an_error_that_says_so():
    c = Leaving(1)
    message = graph("a")
    message.functions = [m.ACTOR_FUNCTION]
    c.board.send(c.alice, message, m.WantKeys(keys=["a"]))
    c.board.finish(c.workers[0], "a", blob=None)
    c.leave(0)
    out = c.board.send(c.workers[0], LATE)
    (failed,) = [x for x in out[c.alice] if isinstance(x, m.KeysErred)]
    text = failed.failures[0][2]
    assert text.startswith("has ended with its worker w0, which had to leave: an actor cannot be")
    ((level, line),) = lines(c.board)
    assert level == "warning"
    assert line.endswith(": 1 actor has ended")
    c.board.drop_rest()


def test_a_worker_that_is_stopped_at_once_says_what_was_there():
    c = Leaving(1, "x")
    c.board.send(c.alice, graph("y"))
    c.board.send(c.workers[0], m.Bye(reason="signal SIGINT"))
    text = "1 task is placed again, 1 result was there"
    assert lines(c.board) == [("info", f"worker w0 has left (signal SIGINT): {text}")]
    assert attempt_ends(c.board.state, "y") == [], "it may not have run"
    assert attempt_ends(c.board.state, "x")[0][1].startswith("finished; its worker left")
    c.board.drop_rest()


@pytest.mark.parametrize("has_left", [True, False])
def test_the_end_of_the_process_of_a_worker_that_has_left_is_no_warning(board, has_left):
    supervisor = board.supervisor("sup")
    worker = board.worker("w", supervisor_id="sup", worker_id="w1")
    board.send(worker, *LEAVE)
    board.tick(START_S)
    if has_left:
        board.send(worker, m.Bye(reason="signal SIGTERM"))
    else:
        board.close(worker)
    report = m.WorkerExited(worker_id="w1", reason="it left after SIGTERM", running=[])
    board.send(supervisor, report)
    ((level, text),) = lines(board)
    assert level == ("info" if has_left else "warning")
    if has_left:
        assert text == "the process of worker w, which has left, has ended: it left after SIGTERM"
