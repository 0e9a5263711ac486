"""Jobs are forgotten when that is recorded, and are on record as before if it cannot be."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.journal.entries import JobAdded, JobEnded, JobForgotten
from weft.scheduler.core.journal.jobs import journal_of

from ...builders import Board, finished, graph
from .test_journal import open_board, recorded, writes


def forget(board: Board, client: int, request: int = 4) -> None:
    ask = m.Ask(request=request, name="forget_jobs", arguments={"keys": ["a", "a"]})
    board.send(client, ask)


def made(board: Board, client: int) -> None:
    """Let a job end whose result is with a worker, and nobody else want it."""
    worker = board.worker()
    board.send(client, graph("a", detached=True))
    board.send(worker, finished([board.attempt("a")], nbytes=1 << 20, blob=None))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    recorded(board, 1)
    recorded(board, 2)


def test_a_result_with_workers_stays_there_if_its_job_could_not_be_forgotten():
    board = open_board()
    client = board.client()
    made(board, client)
    forget(board, client)
    recorded(board, 3, "the disk is full")
    assert journal_of(board.state).jobs == {"a": "made"}
    assert board.states("a") == ["memory"]
    forget(board, client)
    recorded(board, 4)
    assert board.out.of(client, m.Answer) == [m.Answer(request=4, info={})]
    assert (board.states("a"), journal_of(board.state).jobs) == (["-"], {})
    board.drop_rest()


def test_an_end_that_may_not_be_recorded_is_recorded_again_if_its_job_could_not_be_forgotten():
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a", blob=b"result")
    forget(board, client)
    recorded(board, 1)
    recorded(board, 2, "the disk is full")
    recorded(board, 3, "the disk is full")
    assert [write.entries for write in writes(board)] == [[JobEnded("a", "done", result=b"result")]]
    recorded(board, 4)
    assert journal_of(board.state).is_done("a")
    board.drop_rest()


def test_a_job_that_two_forget_is_forgotten_if_one_of_them_is_recorded():
    board = open_board()
    client = board.client()
    made(board, client)
    forget(board, client)
    forget(board, client, 5)
    recorded(board, 3)
    recorded(board, 4, "the disk is full")
    assert (board.states("a"), journal_of(board.state).jobs) == (["-"], {})
    assert not journal_of(board.state).forgetting
    board.drop_rest()


def test_a_job_that_begins_anew_before_it_is_recorded_that_it_is_forgotten_stays():
    board = open_board()
    client = board.client()
    made(board, client)
    forget(board, client)
    board.send(client, graph("a", detached=True))
    (write,) = writes(board)
    assert [type(entry) for entry in write.entries] == [JobAdded, JobEnded]
    recorded(board, 3)
    recorded(board, 4)
    assert (board.states("a"), journal_of(board.state).jobs) == (["memory"], {"a": "made"})
    forget(board, client)
    (write,) = writes(board)
    assert write.entries == [JobForgotten("a")]
    recorded(board, 5)
    board.drop_rest()
