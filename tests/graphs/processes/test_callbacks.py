"""Callbacks and caches while worker processes run a graph."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import given, settings

import weft
from benchmarks import bench_callbacks
from tests.graphs.callback_kit import Checker
from tests.graphs.graph_kit import evaluate, graphs, inc
from tests.graphs.processes import kit

pytestmark = pytest.mark.slow


class Telltale:
    """An object that makes a file when it is pickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        open(self.path, "w").close()
        return Telltale, (self.path,)


def telltale(path):
    return Telltale(path)


def count_up(n):
    return (i for i in range(n))


def type_name(x):
    return type(x).__name__


def get(dsk, keys, **options):
    return weft.multiprocessing.get(dsk, keys, **{"num_workers": 2, **options})


@given(graphs(max_tasks=40))
@settings(max_examples=30)
def test_the_tables_are_right_at_each_call(case):
    dsk, wanted = case
    expected = tuple(evaluate(dsk, key) for key in wanted)
    for options in ({}, {"chunksize": 1}, {"chunksize": -1}):
        checker = Checker()
        assert get(dsk, wanted, callbacks=checker.callbacks, **options) == expected
        assert {*checker.begun} == {*checker.ended} == {*checker.results}
        assert len(checker.begun) == checker.n_tasks
        checker = Checker(on_posttask=None, has_results=False)
        assert get(dsk, wanted, callbacks=checker.callbacks, **options) == expected
        assert len(checker.begun) == checker.n_tasks


def test_results_stay_in_their_worker_unless_they_are_requested(tmp_path):
    path = str(tmp_path / "pickled")
    dsk = {"a": (telltale, path), "b": (type_name, "a")}
    checker = Checker(on_posttask=None, has_results=False)
    assert get(dsk, "b", callbacks=checker.callbacks) == "Telltale"
    assert checker.begun == ["a", "b"]
    assert checker.state["cache"]["b"] == "Telltale"
    assert "a" not in checker.state["cache"]
    assert not os.path.exists(path)
    # With a posttask they come.
    checker = Checker()
    assert get(dsk, "b", callbacks=checker.callbacks) == "Telltale"
    assert isinstance(checker.results["a"], Telltale)


def test_results_that_cannot_be_pickled_are_kept_from_callbacks_and_caches(caplog):
    dsk = {"a": (count_up, 3), "b": (list, "a"), "c": (len, "b")}
    with caplog.at_level(logging.WARNING, logger="weft.client"):
        checker = Checker(on_posttask=None, has_results=False)
        assert get(dsk, "c", callbacks=checker.callbacks) == 3
        assert not caplog.records
        checker = Checker(has_results=False)
        checker.check = lambda: (
            None
        )  # a count of results does not include all tasks that have ended
        results = {}
        callback = (None, None, None, lambda key, result, *_: results.update({key: result}), None)
        assert get(dsk, "c", callbacks=[callback]) == 3
    assert results == {"b": [0, 1, 2], "c": 3}
    (record,) = caplog.records
    assert "result of task 'a' cannot be pickled" in record.getMessage()
    cache = {}
    assert get(dsk, "c", cache=cache) == 3
    assert cache == {"c": 3}
    with pytest.raises(weft.UnpicklableResult, match="'a'"):
        get(dsk, ["a", "c"], callbacks=[callback])


def test_a_cache_is_given_each_result_in_the_calling_thread():
    class Cache(dict):
        def __setitem__(self, key, value):
            assert threading.current_thread() is threading.main_thread()
            seen[key] = value
            super().__setitem__(key, value)

    seen = {}
    cache = Cache()
    dsk = {f"x{i}": (inc, f"x{i - 1}" if i else 0) for i in range(50)}
    assert get(dsk, "x49", cache=cache) == 50
    assert seen == {f"x{i}": i + 1 for i in range(50)}
    assert cache == {"x49": 50}
    cache = {"x40": 0}
    assert get(dsk, "x49", cache=cache) == 9
    assert cache == {"x40": 0, "x49": 9}


def test_arrays_are_shown_and_do_not_stay(tmp_path):
    sizes = []

    def posttask(key, result, dsk, state, worker_id):
        sizes.append(getattr(result, "nbytes", 0))
        assert len([key for key in state["cache"] if key[0] == "x"]) <= 4

    dsk = {("x", 0): (kit.array, 1.0, 1 << 20)}
    dsk |= {("x", i): (kit.add, ("x", i - 1), 1.0) for i in range(1, 10)}
    dsk["end", 0] = (kit.total, ("x", 9))
    assert get(dsk, ("end", 0), callbacks=(None, None, None, posttask, None)) == 20.0
    assert sizes == [1 << 20] * 10 + [0]


def test_a_task_behind_others_is_shown_while_it_runs(tmp_path):
    """The last one ends only when it was shown to have begun; it is sent with those before it."""
    path = str(tmp_path / "shown")

    def on_pretask(key):
        if key == "long":
            kit.touch(path)

    dsk = {"a": (inc, 1), "b": (inc, "a"), "long": (kit.wait_for, path, "b")}
    for options in ({}, {"on_posttask": None, "has_results": False}):
        checker = Checker(on_pretask=on_pretask, **options)
        assert get(dsk, "long", num_workers=1, callbacks=checker.callbacks) == 3
        assert checker.begun == ["a", "b", "long"]
        os.unlink(path)


def test_tasks_that_are_given_back_begin_once(tmp_path):
    """One task waits for all others, which are behind it in its worker."""
    path = str(tmp_path / "others")

    def on_posttask(key):
        if len(checker.ended) == 40:
            kit.touch(path)

    dsk = {("x", i): (inc, i) for i in range(40)} | {"slow": (kit.wait_for, path)}
    checker = Checker(on_posttask=on_posttask)
    get(dsk, ["slow", *[("x", i) for i in range(40)]], chunksize=50, callbacks=checker.callbacks)
    assert len(checker.begun) == 41


def test_a_failed_task_is_shown_to_begin_and_not_to_end():
    dsk = {"a": (inc, 1), "b": (kit.boom, "a"), "c": (inc, "b")}
    for on_posttask in (None, lambda key: None):
        checker = Checker(on_posttask=on_posttask, has_results=False)
        with pytest.raises(kit.Oops):
            get(dsk, "c", callbacks=checker.callbacks)
        assert checker.begun == ["a", "b"]
        assert checker.is_errored
        assert checker.state["finished"] == {"a"}
    checker = Checker(has_results=False)
    with pytest.raises(weft.UnpicklableResult):
        get({"a": (kit.lock,)}, "a", callbacks=checker.callbacks)
    assert (checker.begun, checker.ended) == (["a"], [])
    checker = Checker(has_results=False)
    with pytest.raises(weft.WorkerDied):
        get({"a": (inc, 1), "b": (kit.exit_now, "a")}, "b", callbacks=checker.callbacks)
    assert checker.is_errored


def test_an_error_of_a_callback_ends_the_run():
    class Enough(Exception):
        pass

    def stop(key):
        if len(checker.begun) > 20:
            raise Enough

    dsk = {("x", i): (inc, i) for i in range(500)}
    for when in ("on_pretask", "on_posttask"):
        checker = Checker(**{when: stop})
        with pytest.raises(Enough):
            get(dsk, [*dsk], callbacks=checker.callbacks)
        assert checker.is_errored
        assert len(checker.begun) == 21
    assert get(dsk, [*dsk])[:2] == (1, 2)


def test_the_cost_of_callbacks_is_measured():
    """As small as can be, so that the benchmark goes on to run."""
    rows = bench_callbacks.run(tasks=[20], repeat=1, nbytes=8_000, peers=False)
    assert [engine for _, engine, _ in rows] == ["weft threads", "weft processes"] * 2
    assert all(len(medians) == 3 and min(medians) > 0 for _, _, medians in rows)


def test_workers_are_named_by_their_processes():
    checker = Checker()
    dsk = {("x", i): (inc, i) for i in range(100)}
    get(dsk, [*dsk], callbacks=checker.callbacks)
    assert os.getpid() not in checker.worker_ids
    assert 1 <= len(checker.worker_ids) <= 2
    with ProcessPoolExecutor(1) as pool:
        checker = Checker()
        get(dsk, [*dsk], executor=pool, callbacks=checker.callbacks)
    assert len(checker.worker_ids) == 1
