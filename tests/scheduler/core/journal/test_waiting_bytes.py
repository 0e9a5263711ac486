"""The bytes that wait to be recorded are bounded, also while nothing can be recorded."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.journal import jobs
from weft.scheduler.core.journal.entries import JobEnded, OutputRecorded, RowsChanged
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.journal.jobs import journal_of

from ...builders import Board, graph
from ..arrays.acts import array
from .test_journal import open_board, recorded, writes

FULL = "the disk is full"


@pytest.fixture
def board(monkeypatch) -> Board:
    monkeypatch.setattr(jobs, "MAX_UNRECORDED_NBYTES", 100)
    return open_board()


def entries(board: Board) -> list[object]:
    return [entry for write in writes(board) for entry in write.entries]


def prints(board: Board, worker: int, key: str, text: str) -> None:
    attempts = [board.attempt(key)]
    board.send(worker, m.AttemptsPrinted(attempts=attempts, stdout=[text], stderr=[""], cut=[0]))


def test_output_is_left_out_while_too_much_waits(board):
    client, worker = board.client(), board.worker(nthreads=3)
    board.send(client, graph("a", "b", "c", detached=True))
    recorded(board, 1)
    prints(board, worker, "a", "\N{SNOWMAN}" * 20)
    assert journal_of(board.state).unrecorded_nbytes == 60
    assert entries(board) == [OutputRecorded("a", "a", ("\N{SNOWMAN}" * 20, "", False))]
    prints(board, worker, "b", "x" * 41)
    assert entries(board) == [OutputRecorded("b", "b", ("", "", True))]
    board.finish(worker, "a", blob=bytes(41))
    assert entries(board) == [JobEnded("a", "done", nbytes=41)]
    recorded(board, 2)
    prints(board, worker, "c", "x" * 100)
    assert entries(board) == [OutputRecorded("c", "c", ("x" * 100, "", False))]


def test_results_that_are_tried_again_are_counted_meanwhile(board):
    client, worker = board.client(), board.worker(nthreads=3)
    board.send(client, graph("a", "b", "c", detached=True))
    recorded(board, 1)
    board.finish(worker, "a", blob=bytes(60))
    recorded(board, 2, FULL)
    board.finish(worker, "b", blob=bytes(60))
    assert entries(board) == [JobEnded("b", "done", nbytes=60)]
    recorded(board, 3, FULL)
    board.tick(RETRY_S + 0.1)
    assert [end.key for end in entries(board)] == ["a", "b"]
    for number in [*journal_of(board.state).batches]:
        recorded(board, number)
    assert journal_of(board.state).unrecorded_nbytes == 0
    board.finish(worker, "c", blob=bytes(60))
    assert entries(board) == [JobEnded("c", "done", result=bytes(60))]


def test_rows_that_are_tried_again_are_counted_meanwhile(board):
    client, worker = board.client(), board.worker(nthreads=3)
    board.send(client, array(3))
    recorded(board, 1)
    board.finish(worker, "a/0", blob=bytes(60))
    (write,) = writes(board)
    recorded(board, write.number, FULL)
    assert journal_of(board.state).unrecorded_nbytes == 60
    board.finish(worker, "a/1", blob=bytes(60))
    (change,) = entries(board)
    assert isinstance(change, RowsChanged)
    assert [end.result for end in change.ends] == [None]
    board.tick(RETRY_S + 0.1)
    for number in [*journal_of(board.state).batches]:
        recorded(board, number)
    assert journal_of(board.state).unrecorded_nbytes == 0
