from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import StopServer
from weft.scheduler.core.leaving.idle_shutdown import idle_timeout_of

from ...builders import Board, graph

IDLE_S = 8.0


def stops(board: Board) -> list[str]:
    return [action.reason for action in board.actions if isinstance(action, StopServer)]


def test_a_cluster_without_tasks_ends_and_its_workers_with_it(board):
    idle_timeout_of(board.state).seconds = IDLE_S
    worker = board.worker("w")
    board.tick(IDLE_S - 1)
    assert not stops(board)
    out = board.tick(2)
    assert stops(board) == ["no task ran or came for 8 s (--idle-timeout)"]
    assert [type(message) for message in out[worker]][-1] is m.Stop


def test_a_cluster_with_an_unfinished_task_goes_on(board):
    idle_timeout_of(board.state).seconds = IDLE_S
    client = board.client("c")
    board.send(client, graph("a"))
    board.tick(10 * IDLE_S)
    assert not stops(board)


def test_a_task_that_came_and_ended_between_two_looks_counts(board):
    idle_timeout_of(board.state).seconds = IDLE_S
    worker, client = board.worker("w"), board.client("c")
    for number in range(5):
        board.tick(IDLE_S / 2)
        assert not stops(board)
        board.send(client, graph(f"a{number}"))
        board.finish(worker, f"a{number}")
    board.tick(IDLE_S + IDLE_S / 8 + 1)
    assert stops(board)


def test_a_cluster_without_the_option_goes_on(board):
    board.worker("w")
    board.tick(10_000)
    assert not stops(board)
