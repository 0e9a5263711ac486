"""Results and attempts of an earlier scheduler that are lost before a client has submitted them."""

from __future__ import annotations

import pytest

from tests.scheduler.core.recovery.recovery_kit import BEFORE
from weft.protocol.wire import messages as m
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.recovery.recipes import RESUBMIT_S

from ...builders import Board, graph


@pytest.fixture
def board(new: Board) -> Board:
    """Client alice, who has not submitted t to this scheduler, but to the last one."""
    new.alice = new.client("alice", last_epoch=BEFORE)
    return new


def unknown(board: Board) -> list[str]:
    found = [key for x in board.out.of(board.alice, m.KeysUnknown) for key in x.keys]
    board.drop_rest()  # what a worker had is pending while that is away
    return found


def wait(board: Board, *peers: int) -> None:
    """Let the time pass that clients have."""
    end = board.now + RESUBMIT_S + 1
    while board.now < end:
        for peer in (board.alice, *peers):
            board.send(peer, m.Heartbeat())
        board.tick(1.0)


def lose_worker(board: Board, worker: int) -> None:
    """Let its connection end, and the time in which it may come back."""
    board.close(worker)
    board.tick(board.state.settings.away_s + 0.1)


def lose(board: Board, *, is_kept: bool) -> None:
    """Let t be lost: in memory, or assigned and given back, because others are idle."""
    rows = {"kept": {"t": 1}} if is_kept else {"assigned": {"t": 1}}
    worker = board.come_back("w", last_epoch=BEFORE, **rows)
    board.send(board.alice, m.WantKeys(keys=["t"]))
    for peer in (worker, board.alice) * 6:
        board.send(peer, m.Heartbeat())
        board.tick(QUIET_S / 10)
    board.send(board.alice, graph(":t -> u"))
    if is_kept:
        lose_worker(board, worker)
    else:
        board.send(worker, m.AttemptsReturned(attempts=[1]))
        board.tick(0.1)


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "assigned"])
def test_a_client_that_can_submit_what_is_lost_again_does_so_and_it_runs(board, is_kept):
    lose(board, is_kept=is_kept)
    assert unknown(board) == ["t"]
    assert board.states("t", "u") == ["no_worker", "waiting"]
    board.send(board.alice, graph("t"))
    other = board.worker("other")
    board.finish(other, "t", blob=None)
    board.finish(other, "u", blob=None)
    assert board.states("t", "u") == ["memory", "memory"]
    wait(board, other)
    assert board.states("t", "u") == ["memory", "memory"]


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "assigned"])
def test_a_reader_of_a_lost_result_fails_if_no_client_submits_that_again(board, is_kept):
    lose(board, is_kept=is_kept)
    wait(board)
    assert board.states("u") == ["erred"]


def test_a_lost_result_that_nothing_else_reads_is_forgotten(board):
    worker = board.come_back("w", last_epoch=BEFORE, kept={"t": 1})
    board.send(board.alice, m.WantKeys(keys=["t"]))
    board.pass_time(QUIET_S)
    lose_worker(board, worker)
    assert unknown(board) == ["t"]
    assert board.states("t") == ["-"]
