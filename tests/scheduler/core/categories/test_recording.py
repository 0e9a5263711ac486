"""What categories have learned is recorded, and the next scheduler begins with it."""

from __future__ import annotations

import pytest

from weft.protocol.amounts import CORES, MEMORY
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import MAX_SEEN
from weft.scheduler.core.categories.recording import MAX_RECORDED, RECORD_S
from weft.scheduler.core.categories.records import make_category
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import CategoryLearned, JournalRead, WriteJournal
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.journal.jobs import journal_of

from ...builders import Board, graph
from ..journal.test_journal import open_board, recorded
from .builders import MB, asked, fits, given, learn, measured, worker

LEARNED = CategoryLearned("fits", [(100 * MB, 5, 5.0)], 5, 5.0)


def written(board: Board) -> list[object]:
    """Return what is to be recorded since the last event."""
    writes = [action for action in board.actions if isinstance(action, WriteJournal)]
    return [entry for write in writes for entry in write.entries]


def test_lessons_of_many_tasks_are_recorded_once_a_little_later():
    board = open_board()
    client, peer = board.client(), worker(board, "w")
    learn(board, client, peer, mb=100)
    assert written(board) == []
    board.tick(RECORD_S + 0.1)
    assert written(board) == [LEARNED]
    recorded(board, 1)
    board.tick(5.0)
    assert written(board) == []  # nothing is learned
    learn(board, client, peer, mb=200, n=1)
    board.tick(RECORD_S + 0.1)
    peaks = [(100 * MB, 5, 5.0), (200 * MB, 1, 1.0)]
    assert written(board) == [CategoryLearned("fits", peaks, 6, 6.0)]
    board.drop_rest()


def test_lessons_that_could_not_be_recorded_are_recorded_later():
    board = open_board()
    learn(board, board.client(), worker(board, "w"), mb=100)
    board.tick(RECORD_S + 0.1)
    recorded(board, 1, "the disk is full")
    board.tick(RETRY_S + 0.1)
    assert written(board) == [LEARNED]
    recorded(board, 2)
    board.tick(60.0)
    assert written(board) == []
    board.drop_rest()


@pytest.mark.parametrize("has_journal", [True, False])
def test_without_a_journal_nothing_is_recorded_nor_a_name_that_databases_do_not_take(has_journal):
    board = open_board() if has_journal else Board()
    client, peer = board.client(), worker(board, "w")
    category = {"name": "fits\0" if has_journal else "fits", "mode": MAX_SEEN, "max_nbytes": 0}
    board.send(client, graph("a", category=category))
    measured(board, peer, "a", mb=100)
    board.tick(60.0)
    assert (written(board), journal_of(board.state).is_open) == ([], has_journal)
    board.drop_rest()


def test_categories_are_recorded_some_at_a_time():
    board = open_board()
    client, peer = board.client(), worker(board, "w", nthreads=MAX_RECORDED + 1)
    keys = [f"k{i}" for i in range(MAX_RECORDED + 1)]
    for key in keys:
        category = {"name": key, "mode": MAX_SEEN, "max_nbytes": 20 * MB}
        board.send(client, graph(key, category=category))
    measured(board, peer, *keys, mb=10)
    board.tick(RECORD_S + 0.1)
    assert [one.name for one in written(board)] == keys[:-1]
    board.tick(RECORD_S + 0.1)
    assert [one.name for one in written(board)] == keys[-1:]
    board.drop_rest()


def test_the_next_scheduler_gives_memory_by_recorded_lessons_and_learns_on():
    board = open_board(JournalRead(learned=[LEARNED]))
    client, peer = board.client(), worker(board, "w")
    board.send(client, fits("a"))
    assert given(board, "a") == 100
    measured(board, peer, "a", mb=120)
    memory = make_category(board.state, "fits").peaks[MEMORY]
    assert (memory.n_measured, memory.next_review) == (6, 7)
    board.tick(RECORD_S + 0.1)
    peaks = [(100 * MB, 5, 5.0), (120 * MB, 1, 1.0)]
    assert written(board) == [CategoryLearned("fits", peaks, 6, 6.0)]
    board.drop_rest()


def test_recorded_cores_are_given_by_the_next_scheduler():
    cores = [(2, 4, 4.0), (3, 1, 1.0)]
    learned = CategoryLearned("fits", [(100 * MB, 5, 5.0)], 5, 5.0, cores)
    board = open_board(JournalRead(learned=[learned]))
    client, peer = board.client(), worker(board, "w")
    board.send(client, fits("a"))
    assert asked(board, "a") == {CORES: 3, MEMORY: 100 * MB}
    measured(board, peer, "a", mb=100, kind=m.OWN_PROCESS, cores=2.0)
    board.tick(RECORD_S + 0.1)
    assert written(board)[0].cores == [(2, 5, 5.0), (3, 1, 1.0)]
    board.drop_rest()


def test_lessons_count_for_jobs_that_are_read_with_them():
    before = open_board()
    before.send(before.client(), fits("a", detached=True))
    (added,) = written(before)
    board = open_board(JournalRead([added], learned=[LEARNED]))
    worker(board, "w")
    while board.state.awaits_peers:
        board.tick(1.0)
    assert given(board, "a") == 100
    board.drop_rest()
    before.drop_rest()


def test_the_mean_time_by_which_stragglers_are_found_is_that_of_before():
    learned = CategoryLearned("fits", [], 20, 40.0)
    board = open_board(JournalRead(learned=[learned]))
    times = make_category(board.state, "fits").times
    assert (times.mean_s, times.limit_s(3.0, 10)) == (2.0, 6.0)
    assert board.play(SchedulerTick()).of(0, m.AssignTasks) == []
