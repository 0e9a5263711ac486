"""The bandwidth that workers measure, and placement that uses it."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, assigned, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.data.bandwidths import BANDWIDTH_INVARIANTS, Bandwidths
from weft.scheduler.core.records.peers import FETCH_NS_PER_MIB

MIB = 1 << 20


def report(board: Board, peer: int, mib: float, seconds: float) -> int:
    """Report the sums of a worker; return what a MiB takes it then, by the scheduler, in us."""
    status = m.WorkerStatus(
        state="running",
        nthreads=1,
        n_records=0,
        n_ready=0,
        managed_nbytes=0,
        resident_nbytes=0,
        cpu_percent=0,
        fetched_nbytes=int(mib * MIB),
        fetched_us=int(seconds * 1e6),
    )
    board.send(peer, status)
    return board.state.workers[peer].fetch_ns_per_mib // 1000


def test_the_rate_is_that_of_what_is_new_and_follows_later_ones(board):
    w = board.worker()
    assert report(board, w, 100, 1.0) == 10_000
    assert report(board, w, 200, 1.2) == 6_000
    assert report(board, w, 200, 1.2) == 6_000


def test_a_worker_that_has_fetched_little_is_not_measured(board):
    w = board.worker()
    assert report(board, w, 3.0, 10.0) == FETCH_NS_PER_MIB // 1000
    assert report(board, w, 6.0, 0.06) == 10_000


def test_a_measurement_out_of_all_bounds_is_cut(board):
    w = board.worker()
    assert report(board, w, 100, 0.0) == 65
    other = board.worker("other")
    assert report(board, other, 100, 1e5) == 536_870
    wrong = board.worker("wrong")
    report(board, wrong, 100, 1.0)
    assert report(board, wrong, 1, 0.0) == 10_000


@pytest.mark.parametrize(("seconds", "is_moved"), [(0.01, True), (10.0, False)])
def test_a_task_stays_by_its_input_where_the_link_is_slow(board, seconds, is_moved):
    """50 tasks of 1 ms read 20 MB at one worker; at the other, which is idle, that must come."""
    alice, holder = board.client(), board.worker()
    board.send(alice, graph("x"), graph("t"))
    board.finish(holder, "x", nbytes=20_000_000)
    board.finish(holder, "t", us=1000)
    other = board.worker("other")
    report(board, other, 100, seconds)
    readers = [f"r{i}" for i in range(50)]
    out = board.send(alice, graph(*(f":x -> {key}" for key in readers)))
    assert bool(assigned(out, other)) is is_moved
    assert assigned(out, holder)
    board.drop_rest()  # what is not begun there may be asked back


def test_a_worker_that_is_gone_is_forgotten(board):
    w = board.worker()
    report(board, w, 100, 1.0)
    board.close(w)
    board.pass_time(60)
    assert not board.state.record(Bandwidths).seen


def test_a_worker_that_is_measured_and_not_registered_breaks_an_invariant(board):
    board.worker()
    other = Board()
    w = other.worker()
    board.state.record(Bandwidths).seen[other.state.workers[w]] = (1, 1)
    assert list(BANDWIDTH_INVARIANTS["measured workers are registered"](board.state))
