"""Callbacks and caches on the engines of this process: tables, order, threads, failures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings

import weft
from tests.graphs.callback_kit import Checker
from tests.graphs.graph_kit import (
    ThirdParty,
    chains,
    crosstalk,
    evaluate,
    graphs,
    inc,
    total,
)


class InSubmit(weft.SynchronousExecutor):
    """An executor that runs its calls in `submit`, which weft cannot know before it has tried."""


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


def appending_to(begun):
    return [(None, None, lambda key, dsk, state: begun.append(key), None, None)]


@pytest.mark.parametrize(
    ("get", "options"),
    [
        (weft.get, {}),
        (weft.threaded.get, {"num_workers": 4}),
        (weft.get, {"executor": ThirdParty()}),
        (weft.get, {"executor": InSubmit()}),
    ],
)
@given(graphs(max_tasks=60))
@settings(max_examples=30)
def test_the_tables_are_right_at_each_call(get, options, case):
    dsk, wanted = case
    expected = tuple(evaluate(dsk, key) for key in wanted)
    checker = Checker()
    assert get(dsk, wanted, callbacks=checker.callbacks, **options) == expected
    assert {*checker.begun} == {*checker.ended} == {*checker.results}
    assert len(checker.begun) == checker.n_tasks
    assert not checker.is_errored
    checker = Checker(on_posttask=None)
    assert get(dsk, wanted, callbacks=checker.callbacks, **options) == expected
    assert len(checker.begun) == checker.n_tasks


@pytest.mark.parametrize("n_workers", [1, 4])
def test_with_callbacks_tasks_are_pulled_and_not_submitted_one_by_one(n_workers):
    class Counting(ThreadPoolExecutor):
        n_calls = 0

        def submit(self, *args, **kwargs):
            self.n_calls += 1
            return super().submit(*args, **kwargs)

    dsk, keys = chains(500, 4, inc, inc)
    with Counting(n_workers) as executor:
        begun = []
        weft.get(dsk, keys, executor=executor, callbacks=appending_to(begun))
        assert executor.n_calls < 500
    assert {*begun} == {*dsk}
    assert len(begun) == 2000


def test_a_task_is_shown_while_it_runs_and_when_it_has_ended(pool):
    shown = threading.Event()
    ended = threading.Event()

    def on_pretask(key):
        if key == "long":
            shown.set()

    def on_posttask(key):
        if key == "short":
            ended.set()

    checker = Checker(on_pretask=on_pretask, on_posttask=on_posttask)
    dsk = {
        "short": (inc, 1),
        "after": (inc, "short"),
        "long": (lambda _: shown.wait(30) and ended.wait(30), "after"),
    }
    for options in ({}, {"executor": pool}, {"num_workers": 1}):
        shown.clear()
        ended.clear()
        assert weft.threaded.get(dsk, "long", callbacks=checker.callbacks, **options)
        checker.begun.clear()
        checker.ended.clear()


def test_a_failed_task_is_shown_to_begin_and_not_to_end(pool):
    dsk = {"a": (inc, 1), "b": (divmod, "a", 0), "c": (inc, "b")}
    for options in ({}, {"executor": pool}, {"executor": ThirdParty()}, {"executor": InSubmit()}):
        checker = Checker()
        with pytest.raises(ZeroDivisionError) as info:
            weft.threaded.get(dsk, "c", callbacks=checker.callbacks, **options)
        assert info.value.__notes__ == ["weft: task 'b'"]
        assert (checker.begun, checker.ended) == (["a", "b"], ["a"])
        assert checker.is_errored


@pytest.mark.parametrize("when", ["on_pretask", "on_posttask"])
@pytest.mark.parametrize("is_inside", [False, True])
def test_an_error_of_a_callback_ends_the_run(pool, when, is_inside):
    class Enough(BaseException):
        pass

    def stop(key):
        if len(checker.begun) > 20:
            raise Enough

    dsk, keys = chains(200, 3, inc, inc)
    checker = Checker(**{when: stop})

    def run():
        nonlocal checker
        checker = Checker(**{when: stop})
        with pytest.raises(Enough) as info:
            weft.get(dsk, keys, executor=pool, callbacks=checker.callbacks)
        assert not hasattr(info.value, "__notes__")  # no task has raised that
        assert checker.is_errored

    weft.get({"run": (run,)}, "run", executor=pool) if is_inside else run()
    assert 20 < len(checker.begun) < 600
    assert weft.get(dsk, keys, executor=pool)[:2] == (3, 4)


def test_a_graph_within_a_task_has_callbacks_of_its_own(pool):
    dsk, keys = crosstalk(20, 5, inc, total)

    def run():
        checker = Checker()
        results = weft.get(dsk, keys, executor=pool, callbacks=checker.callbacks)
        assert len(checker.ended) == 100
        return results

    expected = weft.get(dsk, keys)
    outer = dict.fromkeys(range(6), (run,))
    checker = Checker()
    results = weft.get(outer, list(outer), executor=pool, callbacks=checker.callbacks)
    assert results == (expected,) * 6
    assert {*checker.ended} == {*outer}


def test_a_callback_can_run_a_graph_on_the_threads_of_the_one_it_looks_at(pool):
    """The pullers leave, because the caller does not show events; so results do not pile up."""
    results, called = [], []

    def call(_):
        called.append(1)
        time.sleep(0.005)  # workload

    def posttask(*_):
        if not results:
            results.append(weft.get({"x": (inc, 1)}, "x", executor=pool, callbacks=[]))
            assert len(called) < 300

    dsk = {f"x{i}": (call, i) for i in range(300)}
    weft.get(dsk, list(dsk), executor=pool, callbacks=(None, None, None, posttask, None))
    assert results == [2]
    assert len(called) == 300


def test_a_key_that_does_not_equal_itself_is_shown():
    key = float("nan")
    checker = Checker()
    assert weft.get({key: (inc, 1)}, key, callbacks=checker.callbacks) == 2
    assert checker.ended == [key]


def test_a_cache_is_given_each_result(pool):
    class Cache(dict):
        def __setitem__(self, key, value):
            assert threading.current_thread() is threading.main_thread()
            seen[key] = value
            super().__setitem__(key, value)

    for options in ({}, {"executor": pool}):
        seen = {}
        cache = Cache()
        dsk = {"a": (inc, 1), "b": (inc, "a"), "c": (inc, "b")}
        assert weft.threaded.get(dsk, "c", cache=cache, **options) == 4
        assert seen == {"a": 2, "b": 3, "c": 4}
        assert cache == {"c": 4}
