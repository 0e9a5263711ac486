from __future__ import annotations

import contextvars
import gc
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import ThreadPool as StandardThreadPool

import pytest
from hypothesis import given, settings

import weft
from tests.graphs.graph_kit import (
    Peak,
    Taciturn,
    ThirdParty,
    chains,
    crosstalk,
    evaluate,
    graphs,
    inc,
    total,
)
from tests.leaks import wait_until
from weft.graphs.blocks.core.tasks import BlockTask
from weft.graphs.blocks.driver import run_in_blocks
from weft.graphs.blocks.executor_host import ExecutorHost
from weft.graphs.get import _read
from weft.graphs.options import read_options


def in_blocks(dsk, keys, executor):
    """Run a graph as on an executor of other processes."""
    graph = _read(dsk, keys, read_options({}), BlockTask)
    return run_in_blocks(ExecutorHost(executor), graph, 3)


@pytest.fixture(params=["ThreadPoolExecutor", "ThreadPool", "one thread", "third party", "sync"])
def executor(request):
    """Return an executor of each kind that shares memory."""
    made = {
        "ThreadPoolExecutor": lambda: ThreadPoolExecutor(4),
        "ThreadPool": lambda: weft.ThreadPool(4),
        "one thread": lambda: ThreadPoolExecutor(1),
        "third party": ThirdParty,
        "sync": weft.SynchronousExecutor,
    }[request.param]()
    yield made
    made.shutdown()


# --- Every engine gives the same ------------------------------------------------------------------


@given(graphs(max_tasks=60))
@settings(max_examples=40)
def test_any_graph_gives_the_same_results_on_any_engine(case):
    dsk, wanted = case
    expected = tuple(evaluate(dsk, key) for key in wanted)
    with ThreadPoolExecutor(3) as pool:
        assert weft.get(dsk, wanted, executor=pool) == expected
        assert in_blocks(dsk, wanted, pool) == expected
    assert weft.threaded.get(dsk, wanted, num_workers=3) == expected


def test_a_wide_graph_is_run(executor):
    dsk, keys = crosstalk(50, 20, lambda i: i, total)
    expected = tuple(evaluate(dsk, key) for key in keys)
    for _ in range(5):
        assert weft.get(dsk, keys, executor=executor) == expected


def test_a_multiprocessing_thread_pool_is_an_executor():
    with StandardThreadPool(2) as pool:
        assert weft.get({"x": (inc, "y"), "y": (inc, 1)}, "x", pool=pool) == 3
        assert weft.threaded.get({"x": (inc, "y"), "y": (inc, 1)}, ["x"], pool=pool) == (3,)
        pool.close()
        pool.join()


def test_an_executor_that_does_not_mark_running_calls_can_be_used():
    executor = Taciturn()
    n_threads = threading.active_count()
    for _ in range(20):
        barrier = threading.Barrier(3, timeout=30)
        dsk = dict.fromkeys("abc", (barrier.wait,))
        weft.get(dsk, ["a", "b", "c"], executor=executor, num_workers=3)
        with pytest.raises(ZeroDivisionError):
            weft.get({"x": (divmod, 1, 0), "y": (inc, 1)}, ["x", "y"], executor=executor)
        in_blocks({"x": (inc, 1), "y": (inc, 2)}, ["x", "y"], executor)
    wait_until(lambda: threading.active_count() == n_threads)
    assert executor.errors == []


def test_literals_need_no_thread():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert weft.get({"x": 1, "y": "x"}, ["x", "y"], executor=pool) == (1, 1)


# --- Threads --------------------------------------------------------------------------------------


def test_independent_tasks_run_at_once():
    barrier = threading.Barrier(4, timeout=30)
    dsk = dict.fromkeys(range(4), (barrier.wait,))
    assert sorted(weft.threaded.get(dsk, [0, 1, 2, 3], num_workers=4)) == [0, 1, 2, 3]


def test_tasks_that_become_possible_later_run_at_once():
    barrier = threading.Barrier(3, timeout=30)
    dsk = {"first": (inc, 0)} | {n: (lambda _: barrier.wait(), "first") for n in "abc"}
    with ThreadPoolExecutor(3) as pool:
        assert sorted(weft.get(dsk, list("abc"), executor=pool)) == [0, 1, 2]


def test_a_long_task_does_not_hold_back_others():
    done = threading.Event()
    n_left = [200]
    lock = threading.Lock()

    def short():
        with lock:
            n_left[0] -= 1
            if not n_left[0]:
                done.set()

    # The long one ends only when all the others have run.
    dsk = {"long": (done.wait, 30)} | dict.fromkeys(range(200), (short,))
    for order in (["long", *range(200)], [*range(200), "long"]):
        done.clear()
        n_left[0] = 200
        assert weft.threaded.get(dsk, order, num_workers=2)[order.index("long")] is True


def test_num_workers_is_a_limit():
    running = []
    peak = []

    def note():
        running.append(1)
        peak.append(len(running))
        time.sleep(0.001)  # workload
        running.pop()

    dsk = dict.fromkeys(range(40), (note,))
    with ThreadPoolExecutor(6) as pool:
        weft.get(dsk, list(dsk), executor=pool, num_workers=2)
    assert max(peak) <= 2


def test_a_task_that_runs_a_graph_on_its_own_pool_does_not_wait_for_ever():
    with ThreadPoolExecutor(1) as pool:

        def nested(depth):
            if not depth:
                return 1
            return weft.get({"x": (nested, depth - 1), "y": (inc, "x")}, "y", executor=pool)

        assert weft.get({"x": (nested, 5)}, "x", executor=pool) == 6


def nested_on(*executors, is_observed=False):
    """Return the result of a graph on each executor, each asked for by a task of the one before."""
    if not executors:
        return 1
    first, *others = executors
    dsk = {"x": (partial(nested_on, *others, is_observed=is_observed),), "y": (inc, "x")}
    options = {"cache": {}} if is_observed else {}
    return weft.get(dsk, "y", executor=first, **options)


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("make", [ThreadPoolExecutor, weft.ThreadPool, StandardThreadPool])
def test_no_nesting_of_graphs_waits_for_ever(make, is_observed):
    one, other = make(1), make(1)
    try:
        assert nested_on(one, one, one, is_observed=is_observed) == 4
        assert nested_on(one, other, one, other, is_observed=is_observed) == 5
    finally:
        for pool in (one, other):
            if isinstance(pool, StandardThreadPool):
                pool.close()
                pool.join()
            else:
                pool.shutdown()


@pytest.mark.parametrize("make", [ThreadPoolExecutor, weft.ThreadPool])
def test_a_call_of_a_pool_may_run_a_graph_on_it(make):
    with make(1) as pool:
        assert pool.submit(nested_on, pool, pool).result(30) == 3


def test_a_caller_that_works_along_waits_for_more_work():
    barrier = threading.Barrier(2, timeout=30)

    def late(_):
        time.sleep(0.15)  # workload, longer than an idle puller stays

    # When the long one has ended, both threads are needed.
    dsk = {"long": (late, 0), "a": (lambda _: barrier.wait(), "long")}
    dsk["b"] = (lambda _: barrier.wait(), "long")
    with ThreadPoolExecutor(2) as pool:
        nested = {"x": (lambda: weft.get(dsk, ["a", "b"], executor=pool),)}
        assert sorted(weft.get(nested, "x", executor=pool)) == [0, 1]


class InSubmit(Executor):
    """An executor of an unknown class that runs calls where they are submitted."""

    def __init__(self):
        self.n_calls = 0

    def submit(self, fn, /, *args, **kwargs):
        self.n_calls += 1
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class MySynchronous(weft.SynchronousExecutor):
    n_calls = 0

    def submit(self, fn, /, *args, **kwargs):
        self.n_calls += 1
        return super().submit(fn, *args, **kwargs)


@dataclass
class WithoutHash(ThirdParty):
    name: str

    def __post_init__(self):
        super().__init__()


@pytest.mark.parametrize("make", [InSubmit, MySynchronous, partial(WithoutHash, "x")])
def test_executors_of_other_libraries_run_graphs(make):
    executor = make()
    dsk, keys = crosstalk(10, 5, lambda i: i, total)
    assert weft.get(dsk, keys, executor=executor) == weft.get(dsk, keys)
    assert getattr(executor, "n_calls", 1) > 0


def test_nested_graphs_share_the_default_threads():
    seen = set()

    def inner(_):
        seen.add(threading.current_thread())
        return 1

    def outer(i):
        return sum(weft.threaded.get(dict.fromkeys("abcde", (inner, 0)), list("abcde")))

    dsk = {("o", i): (outer, i) for i in range(20)}
    assert sum(weft.threaded.get(dsk, list(dsk), num_workers=2)) == 100
    assert len(seen) <= 2


def test_graphs_of_several_threads_do_not_wait_for_each_other():
    both = threading.Barrier(2, timeout=30)

    def ask():
        weft.threaded.get({"x": (both.wait,)}, "x", num_workers=1)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not both.broken


@pytest.mark.parametrize("options", [{}, {"cache": {}}])
def test_tasks_see_the_context_of_the_caller(executor, options):
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    assert weft.get({"x": (variable.get,)}, "x", executor=executor, **options) == 7


def test_few_threads_are_kept():
    before = threading.active_count()
    threads = [
        threading.Thread(target=weft.threaded.get, args=({"x": (inc, 1)}, "x")) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n_workers in range(1, 9):
        weft.threaded.get({"x": (inc, 1)}, "x", num_workers=n_workers)
    wait_until(lambda: threading.active_count() <= before + 2 * 8)


def test_an_idle_thread_goes_back_to_its_pool(wait_until):
    go_on = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        # Both threads pull; one of them runs out of tasks while the other's task goes on.
        dsk = {"long": (go_on.wait, 30)} | {("x", i): (inc, i) for i in range(100)}
        asking = threading.Thread(target=weft.get, args=(dsk, list(dsk)), kwargs={"executor": pool})
        asking.start()
        assert pool.submit(inc, 1).result(30) == 2
        go_on.set()
        asking.join()


def test_a_task_runs_once_though_others_become_possible_while_its_inputs_are_destroyed():
    #  thing -> user          the destructor of the thing waits until one of the followers runs,
    #  first -> two followers   and the other one is possible
    first_runs, go_on, one_follows = threading.Event(), threading.Event(), threading.Event()
    both_follow = threading.Barrier(2)
    ran = []

    class Thing:
        def __init__(self):
            assert first_runs.wait(30)

        def __del__(self):
            go_on.set()
            assert one_follows.wait(30)

    def use(_):
        ran.append(1)

    def first():
        first_runs.set()
        assert go_on.wait(30)

    def follow(_):
        one_follows.set()
        both_follow.wait(30)

    dsk = {"thing": (Thing,), "user": (use, "thing"), "first": (first,)}
    dsk |= dict.fromkeys(range(2), (follow, "first"))
    weft.threaded.get(dsk, ["user", 0, 1], num_workers=2)
    assert ran == [1]


def test_a_task_that_has_started_has_its_arguments_though_another_has_failed():
    has_started, is_over, got = threading.Event(), threading.Event(), []

    def first_argument():
        has_started.set()
        assert is_over.wait(30)

    def fail():
        assert has_started.wait(30)
        raise LookupError

    # A call inside the arguments is made before the second one is looked at.
    dsk = {"x": (inc, 1), "fails": (fail,)}
    dsk["runs"] = (lambda _, x: got.append(x), (first_argument,), "x")
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(LookupError):
            weft.get(dsk, ["runs", "fails"], executor=pool)
        is_over.set()
    assert got == [2]


# --- Memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_chains_hold_one_result_for_each_worker(n_workers):
    peak = Peak()
    dsk, ends = chains(100, 6, peak.result, peak.result)
    dsk["end"] = (len, [(len_of, end) for end in ends])
    dsk = {**dsk, **{("end", i): (len_of, end) for i, end in enumerate(ends)}}
    dsk["all"] = (len, [("end", i) for i in range(100)])
    assert run(dsk, "all", n_workers) == 100
    # A link and its predecessor, in each worker.
    assert peak.peak <= 2 * max(n_workers, 1)


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_crosstalk_holds_a_front_and_not_all_layers(n_workers):
    peak = Peak()
    width, height = 100, 6
    dsk, last = crosstalk(width, height, peak.result, peak.result)
    dsk["all"] = (len, [(len_of, key) for key in last])
    assert run(dsk, "all", n_workers) == width
    # The last layer is needed whole; of those below, as much as the cone of the next task.
    assert peak.peak <= width + 3 * height * max(n_workers, 1)


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_a_tree_holds_a_branch_for_each_level(n_workers):
    peak = Peak()
    depth = 9
    dsk = {(0, i): (peak.result,) for i in range(2**depth)}
    for level in range(1, depth + 1):
        for i in range(2 ** (depth - level)):
            dsk[level, i] = (peak.result, [(level - 1, 2 * i), (level - 1, 2 * i + 1)])
    dsk["root"] = (len_of, (depth, 0))
    run(dsk, "root", n_workers)
    assert peak.peak <= (depth + 3) * max(n_workers, 1)


def len_of(_):
    return 1


def run(dsk, key, n_workers):
    if not n_workers:
        return weft.get(dsk, key)
    return weft.threaded.get(dsk, key, num_workers=n_workers)


def test_order_decides_among_tasks_that_become_possible_together():
    order = []
    dsk = {name: (order.append, name.upper()) for name in "abcd"}
    weft.get(dsk, list("abcd"), order={"c": 0, "a": 1, "d": 2})
    assert order == ["C", "A", "D", "B"]
    order.clear()
    dsk = {"first": (inc, 1)} | {n: (lambda _, n=n: order.append(n), "first") for n in "abc"}
    weft.get(dsk, list("abc"), order=lambda dsk: {key: -i for i, key in enumerate(dsk)})
    assert order == ["c", "b", "a"]


def test_nothing_of_a_run_is_left_for_the_collector(executor):
    dsk, keys = crosstalk(20, 5, lambda i: i, total)
    weft.get(dsk, keys, executor=executor)
    gc.collect()
    gc.disable()
    try:
        weft.get(dsk, keys, executor=executor)
        # Without an interpreter lock, shared objects are destroyed when their maker runs or ends;
        # until then a collection takes it for garbage.
        executor.shutdown()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [obj for obj in gc.garbage if type(obj).__module__.startswith("weft")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left
