"""memory_return.py: the memory of many tasks is returned when they are gone."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.events import PeerSent
from weft.scheduler.core.upkeep.memory_return import (
    INTERVAL_S,
    LARGE_NBYTES,
    PAUSE_S,
    QUIET_S,
    STORY_KEYS,
    STORY_PART,
    ReturnMemory,
)

from ...builders import Board, Out, assigned, finished, graph

pytestmark = pytest.mark.slow

N = 50_000


def board_after(n_kept: int) -> tuple[Board, int]:
    """Play N tasks to their end; return the board and the worker of `n_kept` results."""
    board = Board()
    alice = board.client()
    worker = board.worker(nthreads=4)
    keys = [f"task-{i}" for i in range(N)]
    # Without a validation after each event, which takes as long as there are tasks.
    handle, outboxes = board.state.handle, board.state.outboxes
    handle(PeerSent(alice, [graph(*keys)]), board.now)
    while attempts := list(assigned(Out(outboxes), worker).values()):
        outboxes.clear()
        handle(PeerSent(worker, [finished(attempts, us=1)]), board.now)
    handle(PeerSent(alice, [m.ReleaseKeys(keys=keys[: N - n_kept])]), board.now)
    outboxes.clear()
    return board, worker


def tables(board: Board, worker: int) -> list[int]:
    (client,) = board.state.clients.values()
    has_what = board.state.workers[worker].has_what
    return [table.__sizeof__() for table in (board.state.tasks, client.wants, has_what)]


def ticks(board: Board) -> list[int]:
    """Let ticks pass until memory is returned; list the story's keys after each."""
    n_keys = []
    while not any(isinstance(action, ReturnMemory) for action in board.actions):
        assert len(n_keys) < 100
        board.tick(PAUSE_S)
        n_keys.append(board.state.story.ring.n_rows)
    return n_keys


def test_tables_with_many_removed_tasks_are_rebuilt_and_keep_the_others():
    board, worker = board_after(3)
    assert min(tables(board, worker)) > LARGE_NBYTES
    ticks(board)
    assert max(tables(board, worker)) < 1000
    assert len(board.state.tasks) == 3
    board.tick(INTERVAL_S)
    assert not returned(board), "memory is returned once"


def returned(board):
    """Return the actions of the last event that give memory back."""
    return [action for action in board.actions if isinstance(action, ReturnMemory)]


def test_tables_in_use_stay_as_they_are():
    board, _ = board_after(N)
    before = board.state.tasks
    board.tick(QUIET_S + INTERVAL_S)
    assert not returned(board)
    assert board.state.tasks is before


def test_the_story_of_tasks_that_are_gone_is_cut_in_small_parts():
    board, _ = board_after(0)
    n_keys = [board.state.story.ring.n_rows, *ticks(board)]
    assert n_keys[0] > 2 * STORY_PART
    assert n_keys[-1] <= STORY_KEYS
    assert len({*n_keys}) > (n_keys[0] - n_keys[-1]) // (2 * STORY_PART)


def test_memory_is_not_returned_while_clients_submit():
    board, _ = board_after(0)
    alice = next(iter(board.state.clients_by_peer))
    for i in range(30):
        board.send(alice, graph(f"next-{i}"))
        board.tick(QUIET_S / 2)
        assert not returned(board)
    ticks(board)
