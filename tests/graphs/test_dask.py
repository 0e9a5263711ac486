"""The inputs of a scheduler of dask: nodes, expressions, configuration, callbacks."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given

import weft
from tests.graphs.graph_kit import graphs, inc, total

dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
da = pytest.importorskip("dask.array", reason="dask.array is missing: pip install 'weft[dask]'")

from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef  # noqa: E402
from dask.callbacks import Callback  # noqa: E402
from dask.highlevelgraph import HighLevelGraph  # noqa: E402
from dask.local import MultiprocessingPoolExecutor  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GETS = [weft.get, weft.threaded.get]


def with_keyword(x, *, y):
    return x, y


NODES = {
    "data": DataNode("data", ("inc", "literal")),
    "one": Task("one", inc, 0),
    "two": Task("two", inc, TaskRef("one")),
    "alias": Alias("alias", "two"),
    "keyword": Task("keyword", with_keyword, TaskRef("two"), y=Alias("alias")),
    "list": List(TaskRef("one"), Task(None, inc, TaskRef("two")), 5),
    "nested": Task("nested", total, List(TaskRef("one"), TaskRef("two")), Task(None, inc, 1)),
    "dict": Task("dict", dict, Dict({"a": TaskRef("one"), "b": 2})),
    "of data": Task("of data", len, TaskRef("data")),
    "not a key": Task("not a key", str, "one"),
    "legacy": (total, "one", ["two", Task(None, inc, TaskRef("two"))], TaskRef("alias")),
    "legacy data": (len, DataNode(None, (1, 2, 3))),
}


@pytest.mark.parametrize("get", GETS)
@pytest.mark.parametrize("key", list(NODES))
def test_nodes_give_the_results_of_dask(key, get):
    assert get(NODES, key) == dask.get(NODES, key)


def test_a_node_that_needs_a_missing_key_is_an_error():
    dsk = {"x": Task("x", inc, TaskRef("nope"))}
    with pytest.raises(weft.MissingKey, match="'nope' is needed by 'x'"):
        weft.get(dsk, "x")
    with pytest.raises(weft.MissingKey, match="'gone' is needed by 'x'"):
        weft.get({"x": Alias("x", "gone")}, "x")


@pytest.mark.parametrize("get", GETS)
def test_collections_of_dask_are_computed(get):
    x = da.arange(100, chunks=10)
    assert (x**2).sum().compute(scheduler=get) == sum(i**2 for i in range(100))
    with dask.config.set(scheduler=get):
        assert dask.compute(x.sum(), {"mean": x.mean()}) == (4950, {"mean": 49.5})
    delayed = dask.delayed(inc)(dask.delayed(inc)(1))
    assert delayed.compute(scheduler=get) == 3
    assert delayed.persist(scheduler=get).compute(scheduler=get) == 3


def test_all_forms_of_dask_s_graphs_are_run():
    x = da.ones(10, chunks=5)
    keys = [("x", 0)]
    layers = HighLevelGraph.from_collections("x", {("x", 0): (inc, 1)}, dependencies=[])
    assert weft.get(layers, keys) == (2,)
    assert weft.get(x.__dask_graph__(), x.__dask_keys__())[0].sum() == 5
    assert weft.get(x, x.__dask_keys__())[1].sum() == 5
    assert (
        weft.get(dask.delayed(inc)(1), dask.delayed(inc)(1, dask_key_name="k").key[:0] or []) == ()
    )


def test_the_configured_pool_and_number_of_workers_are_used():
    names = []

    def note():
        names.append(threading.current_thread().name)

    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool, dask.config.set(pool=pool):
        weft.threaded.get({"x": (note,)}, "x")
        weft.get({"x": (note,)}, "x")
        dask.delayed(note)().compute(scheduler=weft.threaded.get)
    mine, main, again = names
    assert mine.startswith("mine")
    assert main == threading.current_thread().name
    assert again.startswith("mine")
    barrier = threading.Barrier(3, timeout=30)
    dsk = dict.fromkeys(range(3), (barrier.wait,))
    with dask.config.set(num_workers=3):
        assert sorted(weft.threaded.get(dsk, [0, 1, 2])) == [0, 1, 2]


def test_a_client_may_be_the_configured_pool():
    with weft.Client(processes=False, n_workers=1) as client, dask.config.set(pool=client):
        assert weft.threaded.get({"a": (inc, 1)}, "a") == 2
        assert weft.multiprocessing.get({"a": (inc, 2)}, "a") == 3


@pytest.mark.slow
def test_a_pool_that_dask_makes_an_executor_of_is_of_use_afterwards():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        executor = MultiprocessingPoolExecutor(pool)
        dsk = {("x", i): (inc, i) for i in range(20)}
        assert weft.get(dsk, [*dsk], executor=executor) == tuple(range(1, 21))
        assert pool.apply_async(abs, (-1,)).get(30) == 1


def test_the_configured_rerun_and_cache():
    threads = []

    def fail():
        threads.append(threading.current_thread())
        raise ValueError

    with dask.config.set(rerun_exceptions_locally=True), pytest.raises(ValueError):
        weft.threaded.get({"x": (fail,)}, "x")
    assert threads[-1] is threading.current_thread()
    cache = {}
    with dask.config.set(cache=cache):
        assert weft.threaded.get({"x": (inc, "y"), "y": (inc, 1)}, "x") == 3
    assert cache == {"x": 3}


@given(graphs())
def test_dicts_mean_what_they_mean_for_dask(case):
    dsk, wanted = case
    dsk = {**dsk, b"bytes": 5, 1: "one", "uses": (str, b"bytes"), "true": (str, True)}
    wanted = [*wanted, "uses", "true"]
    expected = dask.get(dsk, wanted)
    assert weft.get(dsk, wanted) == expected
    assert weft.get(dsk, wanted, callbacks=(None,) * 5) == expected


def test_an_entry_that_is_its_own_key_is_a_literal_on_each_engine():
    dsk = {"x": "x", 0: 0, "y": (str, "x"), "z": (str, 0)}
    for options in ({}, {"cache": {}}):
        assert weft.get(dsk, ["x", 0, "y", "z"], **options) == ("x", 0, "x", "0")


# --- Callbacks ------------------------------------------------------------------------------------

DSK = {"a": 1, "b": (inc, "a"), "c": (inc, "b"), "d": (total, "b", "c")}


class Note(Callback):
    """A callback that records its calls."""

    def __init__(self):
        self.events = []

    def _start(self, dsk):
        self.events.append(("start", set(dsk)))

    def _start_state(self, dsk, state):
        self.events.append(
            ("start_state", sorted(state), list(state["ready"]), dict(state["cache"]))
        )

    def _pretask(self, key, dsk, state):
        assert key in state["running"]
        assert key in dsk
        self.events.append(("pretask", key, threading.current_thread()))

    def _posttask(self, key, result, dsk, state, worker_id):
        assert key in state["finished"]
        assert worker_id is None or isinstance(worker_id, int)  # None: dask.get
        self.events.append(("posttask", key, result, sorted(state["cache"])))

    def _finish(self, dsk, state, errored):
        self.events.append(("finish", errored, dict(state.get("cache", {}))))


def events_of(get, **options):
    note = Note()
    with note:
        get(DSK, ["d"], **options)
    return note.events


def test_callbacks_see_the_same_as_with_dask_s_own_engine():
    expected = events_of(dask.get)
    assert events_of(weft.get) == expected
    assert events_of(weft.threaded.get, num_workers=1) == expected
    with ThreadPoolExecutor(2) as pool:
        assert events_of(weft.get, executor=pool) == expected
    assert events_of(weft.multiprocessing.get, num_workers=2) == expected
    with ProcessPoolExecutor(1) as processes:
        assert events_of(weft.get, executor=processes) == expected


def test_callbacks_can_be_given_as_dask_takes_them():
    keys = []
    callback = Callback(pretask=lambda key, dsk, state: keys.append(key))
    for callbacks in (callback, [callback], callback._callback, [callback._callback]):
        keys.clear()
        weft.get(DSK, "d", callbacks=callbacks)
        assert keys == ["b", "c", "d"]
    keys.clear()
    with callback:
        weft.get(DSK, "d", callbacks=[])
        weft.get(DSK, "d", callbacks=())
    assert not keys


def test_callbacks_are_notified_of_a_failure_and_are_active_afterwards():
    note = Note()
    with note, pytest.raises(ZeroDivisionError):
        weft.threaded.get({"x": (divmod, 1, 0)}, "x")
    assert note.events[-1][:2] == ("finish", True)
    with note:
        weft.get(DSK, "d")
    assert note.events[-1][:2] == ("finish", False)
    with note, pytest.raises(weft.MissingKey):
        weft.get(DSK, "nope")
    assert note.events[-1][:2] == ("finish", True)


def test_graphs_within_tasks_do_not_call_the_callbacks_of_the_outer_one():
    keys = []
    with Callback(pretask=lambda key, dsk, state: keys.append(key)):
        weft.threaded.get({"outer": (lambda: weft.get({"inner": (inc, 1)}, "inner"),)}, "outer")
    assert keys == ["outer"]


def test_the_diagnostics_of_dask_work(capsys):
    diagnostics = pytest.importorskip(
        "dask.diagnostics", reason="dask is missing: pip install 'weft[dask]'"
    )
    x = da.ones(20, chunks=2).sum()
    with diagnostics.ProgressBar(), diagnostics.Profiler() as profiler:
        assert x.compute(scheduler=weft.threaded.get) == 20
    assert "100% Completed" in capsys.readouterr().out
    assert len(profiler.results) > 10
    assert all(result.end_time >= result.start_time for result in profiler.results)


def test_a_cache_is_used_and_filled():
    calls = []

    def note(x):
        calls.append(x)
        return x

    cache = {"b": ("note", "not a task")}
    dsk = {"a": (note, 1), "b": (note, "a"), "c": (len, "b")}
    assert weft.get(dsk, ["c", "b"], cache=cache) == (2, ("note", "not a task"))
    assert not calls
    assert cache == {"b": ("note", "not a task"), "c": 2}

    def look(x):
        assert cache["y"] == 1
        return x

    cache = {}
    weft.threaded.get({"x": (look, "y"), "y": 1}, "x", cache=cache)
    cache = {"a": 5}
    assert weft.multiprocessing.get({"b": (inc, "a"), "c": (inc, "b")}, "c", cache=cache) == 7
    assert cache == {"a": 5, "c": 7}


# --- Without dask ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_dask_is_not_imported_for_graphs_that_are_not_its_own():
    program = """
import sys, weft, weft.threaded
from operator import add
assert weft.get({"x": (add, "y", 1), "y": 1}, ["x"]) == (2,)
assert weft.threaded.get({"x": (add, "y", 1), "y": 1}, "x", cache={}) == 2
assert "dask" not in sys.modules and "asyncio" not in sys.modules, sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
