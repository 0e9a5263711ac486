"""Operations of several threads at once, repeated often, above all for interpreters without a lock.

Each test makes threads meet some ten thousand times where the code relies on single steps: both
ends of a deque, a store and a look at something else. Without an interpreter lock they meet truly;
with one, it is handed on every few microseconds.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

import weft
from tests.graphs.graph_kit import inc
from weft.graphs.blocks.running import BlockOrder, report_of, run_block
from weft.graphs.pool import thread_pool as pool_module
from weft.protocol.values.serialize import dumps
from weft.worker.slots.started import StartedRecord, read_started

LIMIT_S = 60
N_THREADS = 4


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*deeds):
    """Call each in a thread of its own, all at the same time; raise an error of any of them."""
    start = threading.Barrier(len(deeds))

    def run(deed):
        start.wait(LIMIT_S)
        return deed()

    with ThreadPoolExecutor(len(deeds)) as threads:
        return [future.result(LIMIT_S) for future in [threads.submit(run, deed) for deed in deeds]]


# --- ThreadPool -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_workers", [1, 3])
def test_each_task_of_many_submitters_runs_once(max_workers):
    with weft.ThreadPool(max_workers) as pool:
        ran = [[] for _ in range(N_THREADS)]

        def submit(me):
            futures = [pool.submit(ran[me].append, i) for i in range(2000)]
            for future in futures:
                future.result(LIMIT_S)

        at_once(*[lambda me=me: submit(me) for me in range(N_THREADS)])
    assert [sorted(numbers) for numbers in ran] == [[*range(2000)]] * N_THREADS


@pytest.mark.parametrize("max_workers", [1, 2, N_THREADS])
def test_no_call_is_lost_between_a_worker_that_falls_asleep_and_a_submit(max_workers):
    # One task at a time for each: so workers fall asleep all the time.
    with weft.ThreadPool(max_workers) as pool:

        def play():
            return sum(pool.submit(inc, i).result(LIMIT_S) for i in range(1500))

        assert at_once(*[play] * N_THREADS) == [sum(range(1, 1501))] * N_THREADS


def test_a_task_is_either_run_or_cancelled():
    ran, futures = [], []
    submitted = threading.Semaphore(0)
    with weft.ThreadPool(2) as pool:

        def submit():
            for i in range(4000):
                futures.append(pool.submit(ran.append, i))
                submitted.release()

        def cancel():
            cancelled = set()
            for i in range(4000):
                while len(futures) <= i:
                    submitted.acquire(timeout=0.001)
                if futures[i].cancel():
                    cancelled.add(i)
            return cancelled

        _, *cancelled = at_once(submit, cancel, cancel)
        wait(futures, LIMIT_S)
    assert len(ran) == len(set(ran))
    assert not set.union(*cancelled) & set(ran)
    assert set.union(*cancelled) | set(ran) == {*range(4000)}


def test_each_watcher_is_notified_of_the_end_once():
    with weft.ThreadPool(2) as pool:

        def watch():
            for i in range(1000):
                heard = []
                future = pool.submit(inc, i)
                future.add_done_callback(heard.append)
                assert wait([future], LIMIT_S, FIRST_COMPLETED).done == {future}
                assert future.result(LIMIT_S) == i + 1
                assert future.exception(0) is None
                pool.submit(int).result(LIMIT_S)
                assert len(heard) <= 1
                heard_of.append((future, heard))

        heard_of = []
        at_once(*[watch] * N_THREADS)
    assert all(heard == [future] for future, heard in heard_of)


def test_several_may_begin_to_watch_one_future_at_once():
    with weft.ThreadPool(1) as pool:
        for i in range(500):
            future = pool.submit(inc, i)
            heard = []

            def watch(future=future, heard=heard):
                future.add_done_callback(heard.append)
                return future.result(LIMIT_S)

            watchers = [threading.Thread(target=watch) for _ in range(3)]
            for watcher in watchers:
                watcher.start()
            for watcher in watchers:
                watcher.join()
            pool.submit(int).result(LIMIT_S)
            assert heard == [future] * 3


def test_pools_end_while_tasks_are_submitted():
    for _ in range(100):
        pool = weft.ThreadPool(2)
        ran = []

        def submit(pool=pool, ran=ran):
            n = 0
            while True:
                try:
                    pool.submit(ran.append, n)
                except RuntimeError:
                    return n
                n += 1

        def end(pool=pool, ran=ran):
            while len(ran) < 10:
                pool.submit(int).result(LIMIT_S)
            pool.shutdown(wait=False)
            return 0

        accepted = sum(at_once(submit, submit, end))
        pool.shutdown(wait=True)
        assert len(ran) == accepted


def test_pools_come_and_go_while_the_open_ones_are_counted():
    def make():
        for _ in range(2000):
            weft.ThreadPool(1)

    def count():
        return max(len([*pool_module._crews]) for _ in range(300))

    at_once(make, make, count, count)


# --- Graphs ---------------------------------------------------------------------------------------


def lattice(width, height, step):
    """Return layers in which each task needs two of the layer below."""
    dsk = {(0, i): (step, i) for i in range(width)}
    for j in range(1, height):
        for i in range(width):
            dsk[j, i] = (step, (j - 1, i), (j - 1, (i + j) % width))
    return dsk, [(height - 1, i) for i in range(width)]


def test_each_task_of_a_graph_runs_once_with_any_pullers():
    ran = []

    def step(*args):
        ran.append(1)
        return sum(args) % 1_000_003

    dsk, keys = lattice(40, 25, step)
    expected = weft.get(dsk, keys)
    for _ in range(10):
        ran.clear()
        assert weft.threaded.get(dsk, keys, num_workers=N_THREADS) == expected
        assert len(ran) == len(dsk)


def test_several_threads_run_graphs_on_one_executor():
    dsk, keys = lattice(15, 10, lambda *args: sum(args) % 1_000_003)
    expected = weft.get(dsk, keys)
    with weft.ThreadPool(3) as pool:

        def run():
            return [weft.get(dsk, keys, executor=pool) for _ in range(20)]

        assert at_once(*[run] * N_THREADS) == [[expected] * 20] * N_THREADS


def test_a_failure_ends_a_run_with_any_pullers():
    started = itertools.count()

    def fail(*_):
        if next(started) % 50 == 49:
            raise LookupError
        return 0

    dsk, keys = lattice(20, 10, fail)
    for _ in range(50):
        with pytest.raises(LookupError):
            weft.threaded.get(dsk, keys, num_workers=N_THREADS)


def test_tasks_of_tasks_run_with_any_pullers():
    def nested(i):
        dsk = {j: (inc, i + j) for j in range(5)}
        return sum(weft.threaded.get({("v", j): dsk[j] for j in dsk}, [("v", j) for j in dsk]))

    dsk = {("n", i): (nested, i) for i in range(200)}
    expected = tuple(sum(i + j + 1 for j in range(5)) for i in range(200))
    assert weft.threaded.get(dsk, [*dsk], num_workers=N_THREADS) == expected


# --- Worker processes -----------------------------------------------------------------------------


def test_a_block_that_gives_back_while_it_runs_loses_and_repeats_nothing():
    calls = [(number, 0, (0, [number]), [], ()) for number in range(30_000)]
    was_late = False
    for round_ in range(20):
        order = BlockOrder("run", round_, "", 0.0, {0: (b"inc", bytes(dumps(inc)))}, calls)
        report = report_of(run_block(pickle.dumps(order, 5)))
        n_kept = len(calls) if report.n_kept is None else report.n_kept
        assert report.values == {number: number + 1 for number in range(n_kept)}
        was_late |= n_kept < len(calls)
    assert was_late


def test_the_record_of_running_attempts_is_written_by_all_slots(tmp_path):
    record = StartedRecord(tmp_path / "started", N_THREADS)

    def note(slot):
        for attempt in range(20_000):
            record.note(slot, attempt + 1)

    at_once(*[lambda slot=slot: note(slot) for slot in range(N_THREADS)])
    record.close()
    assert read_started(tmp_path / "started") == [20_000] * N_THREADS
