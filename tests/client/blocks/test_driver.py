"""Graphs in blocks on a real cluster: results, errors, data, callbacks."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.graphs.blocks.kit import (
    Oops,
    Pair,
    add,
    array,
    boom,
    exit_now,
    inc,
    is_free,
    kill_myself,
    lock,
    pid_of,
    same,
    say_exit,
    total,
    touch,
    wait_for,
)
from tests.graphs.callback_kit import Checker
from tests.graphs.graph_kit import evaluate, graphs
from tests.leaks import wait_until
from weft.client.blocks.host import ClientHost
from weft.graphs.blocks.core.tasks import BlockTask
from weft.graphs.blocks.driver import run_in_blocks
from weft.graphs.core.reading import read_graph
from weft.graphs.dask_graphs import as_dask_shows_it, node_types
from weft.graphs.drivers.inline import run_inline
from weft.graphs.drivers.observing import Observer
from weft.protocol.errors import SerializationError, TaskErred, UnpicklableResult, WorkerDied

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

MIB = 1 << 20


@pytest.fixture(scope="module")
def get():
    with weft.Client(n_workers=3, threads_per_worker=1, set_as_default=False) as client:
        client.wait_for_workers(3)

        def get_in_blocks(dsk, keys, n_slots=3, **options):
            graph = read_graph(
                dsk,
                keys,
                task_class=BlockTask,
                node_types=node_types(),
                is_observed="observer" in options,
            )
            if "observer" in options:
                options["observer"].make_tables(graph)
                options["observer"].start_state()
            return run_in_blocks(ClientHost(client), graph, n_slots, **options)

        yield get_in_blocks


@pytest.mark.parametrize(
    ("dsk", "keys"),
    [
        ({}, []),
        ({"a": 1}, "a"),
        ({"a": 1, "b": (inc, "a"), "c": "b"}, ["c", ["a", ["b"]]]),
        ({"a": (inc, 1), "b": (sum, ["a", 2, ["a"]][:2])}, "b"),
        ({"a": (inc, 1), "b": (same, [{"x"}, ("a", "a"), [["a"]]])}, "b"),
        ({"a": (inc, 1), "b": (same, (add, "a", (inc, (inc, "a"))))}, "b"),
        ({"a": (inc, 1), "b": (same, Pair("a", 2))}, "b"),
        ({"a": (inc, 1), "b": (add, "a", "a"), "c": (add, "b", "b")}, ["a", "c"]),
        ({"a": (same, None), "b": (same, "a"), "c": (same, ["a", "b"])}, ["a", "c"]),
        ({"a": (same, "x" * 100_000), "b": (len, "a")}, ["a", "b"]),
    ],
)
def test_results_are_those_of_a_serial_run(get, dsk, keys):
    assert get(dsk, keys) == run_inline(read_graph(dsk, keys))


@given(case=graphs(max_tasks=40))
@settings(max_examples=25)
def test_graphs_of_all_forms_give_their_values(get, case):
    dsk, wanted = case
    expected = tuple(evaluate(dsk, key) for key in wanted)
    for options in ({}, {"chunksize": 1}, {"chunksize": -1}, {"n_slots": 1}):
        assert get(dsk, wanted, **options) == expected


def test_values_cross_between_blocks(get):
    dsk = {("x", 0, i): (same, [i]) for i in range(256)}
    for level in range(1, 9):
        dsk |= {
            ("x", level, i): (add, ("x", level - 1, 2 * i), ("x", level - 1, 2 * i + 1))
            for i in range(256 >> level)
        }
    assert get(dsk, ("x", 8, 0), chunksize=3) == list(range(256))


def test_functions_that_cannot_be_imported_travel_by_value(get):
    class Local:
        def __init__(self, value):
            self.value = value

    offset = 10
    calls = [(lambda x, n=n: Local(x + offset + n)) for n in range(3)]
    dsk = {("x", n): (calls[n], n) for n in range(3)}
    dsk["f"] = (map_of, calls[0], [1, 2], [(calls[1], 5)])
    *values, mapped = get(dsk, [*((("x", n)) for n in range(3)), "f"])
    assert [value.value for value in values] == [10, 12, 14]
    assert all(type(value) is Local for value in values)
    assert mapped == [11, 12, 16]


def map_of(func, items, others):
    return [func(item).value for item in items] + [other.value for other in others]


def test_blocks_run_side_by_side(get, tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"a": (pid_of, (touch, one), (wait_for, two))}
    dsk["b"] = (pid_of, (touch, two), (wait_for, one))
    assert len({*get(dsk, ["a", "b"])}) == 2


def test_a_long_task_does_not_hold_back_others(get, tmp_path):
    # The first one ends only when all others have, those of its own block too.
    last = str(tmp_path / "last")
    dsk = {("x", i): (inc, i) for i in range(200)}
    dsk["last"] = (touch, last, [("x", i) for i in range(200)])
    dsk["first"] = (wait_for, last)
    dsk["before"] = (inc, 1)
    dsk["long"] = (wait_for, last, "before")
    keys = [("x", i) for i in range(199, -1, -1)]
    assert get(dsk, ["first", "long", *keys, "last"])[1] == 2


def test_dependents_of_a_short_task_do_not_wait_for_a_long_one_behind_it(get, tmp_path):
    # "source" is known to be done only from a report before the end of its block.
    done = str(tmp_path / "done")
    dsk = {"source": (inc, 0), "long": (wait_for, done, "source")}
    dsk |= {("x", i): (add, "source", i) for i in range(20)}
    dsk["all"] = (touch, done, [("x", i) for i in range(20)])
    assert get(dsk, ["all", "long"]) == (list(range(1, 21)), 1)


# --- Data -----------------------------------------------------------------------------------------


def test_arrays_move_between_workers(get):
    dsk = {("a", i): (array, float(i), MIB) for i in range(16)}
    dsk |= {("t", i): (total, *[("a", j) for j in range(16)]) for i in range(8)}
    dsk["out"] = (same, ("a", 3))
    for _ in range(2):  # what the first run has learned changes how the second one fetches
        *totals, out = get(dsk, [*(("t", i) for i in range(8)), "out"], chunksize=1)
        assert totals == [240.0] * 8
        assert out.shape == (MIB // 8,)
        assert (out == 3).all()


@pytest.mark.parametrize("chunksize", [1, 4, None])
def test_large_outputs_come_with_their_blocks_or_by_themselves(get, chunksize):
    """Some blocks have outputs only, some a value beside them that stays or cannot be pickled."""
    dsk = {("a", i): (array, float(i), 2 * MIB) for i in range(8)}
    dsk |= {("sum", i): (total, ("a", i), ("a", (i + 3) % 8)) for i in range(8)}
    dsk |= {"lock": (lock, ("a", 0)), "free": (is_free, "lock", ("a", 1)), "text": (same, "x")}
    keys = [("a", i) for i in range(1, 8)]
    for _ in range(2):  # then it is known which functions return large values
        arrays, sums, free, text = get(
            dsk,
            [keys, [("sum", i) for i in range(8)], "free", "text"],
            chunksize=chunksize,
        )
        assert [(a[0], a[-1], a.nbytes) for a in arrays] == [(i, i, 2 * MIB) for i in range(1, 8)]
        assert sums == tuple(2.0 * (i + (i + 3) % 8) for i in range(8))
        assert (free, text) == (True, "x")


def test_large_literals_are_inputs_of_blocks(get):
    big = np.arange(MIB)
    words = dict.fromkeys(range(100_000), "word")
    dsk = {"big": big, "words": words, ("z", 0): (same, 1)}
    dsk |= {("x", i): (take, "big", i) for i in range(100)}
    dsk |= {("y", i): (take, "words", i) for i in range(50)}
    dsk |= {("z", i): (take_of, ["words", {"a": big}], i, ("z", 0)) for i in range(1, 50)}
    keys = [("x", i) for i in range(100)] + [("y", i) for i in range(50)]
    keys += [("z", i) for i in range(1, 50)]
    values = get(dsk, keys)
    assert values[:100] == tuple(range(100))
    assert values[100:150] == ("word",) * 50
    assert values[150:] == tuple(range(1, 50))


def take(sequence, i):
    return sequence[i]


def take_of(things, i, _):
    assert things[0][i] == "word"
    return things[1]["a"][i]


# --- Errors ---------------------------------------------------------------------------------------


def test_an_error_arrives_with_the_frames_of_the_task_and_its_key(get):
    dsk = {"a": (inc, 1), ("bad", 3): (boom, "a")}
    with pytest.raises(Oops, match="no 2") as caught:
        get(dsk, ("bad", 3))
    assert caught.value.code == 7
    (note,) = caught.value.__notes__
    assert note.startswith("weft: task ('bad', 3) in worker process ")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "boom"
    assert get({"a": (inc, 1)}, "a") == 2


def test_after_a_failure_nothing_else_starts(get, tmp_path):
    dsk = {("x", i): (touch, str(tmp_path / f"x{i}")) for i in range(50)}
    dsk |= {("y", i): (wait_for, str(tmp_path / "go"), ("x", i)) for i in range(50)}
    dsk["bad"] = (boom, 1)
    with pytest.raises(Oops):
        get(dsk, ["bad", *((("y", i)) for i in range(50))], n_slots=2)
    touch(str(tmp_path / "go"))
    assert get({"a": (inc, 1)}, "a") == 2
    assert len([*tmp_path.iterdir()]) < 20


def test_an_unpicklable_argument_is_named_before_anything_runs(get, tmp_path):
    ran = tmp_path / "ran"
    dsk = {"a": (touch, str(ran)), ("b", 1): (same, ["a", {"conn": threading.Lock()}])}
    with pytest.raises(SerializationError) as caught:
        get(dsk, ("b", 1))
    assert "task ('b', 1)" in caught.value.where
    assert not ran.exists()


def test_a_result_that_cannot_be_pickled_is_named(get):
    with pytest.raises(UnpicklableResult) as caught:
        get({"lock": (lock,)}, "lock")
    assert (caught.value.key, caught.value.type_name) == ("lock", "_thread.lock")


@pytest.mark.parametrize("chunksize", [None, 1])
def test_a_result_that_cannot_be_pickled_may_be_used_in_its_worker(get, chunksize):
    dsk = {("lock", i): (lock, i) for i in range(20)}
    dsk |= {("free", i, j): (is_free, ("lock", i)) for i in range(20) for j in range(3)}
    keys = [("free", i, j) for i in range(20) for j in range(3)]
    assert get(dsk, keys, chunksize=chunksize) == (True,) * 60


def test_a_result_that_cannot_be_pickled_and_is_needed_in_two_places_is_named(get, tmp_path):
    # Two locks that are made in two places, because each waits for the other.
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"one": (lock, (touch, one), (wait_for, two))}
    dsk["two"] = (lock, (touch, two), (wait_for, one))
    dsk["both"] = (is_free, "one", "two")
    with pytest.raises(UnpicklableResult, match=r"the result of task '(one|two)'"):
        get(dsk, "both")


def test_sys_exit_in_a_task_is_its_failure(get):
    with pytest.raises(TaskErred, match="SystemExit: enough") as caught:
        get({"bad": (say_exit,)}, "bad")
    assert caught.value.key == "bad"


def test_an_error_of_unpickling_names_the_task(get):
    with pytest.raises(ZeroDivisionError) as caught:
        get({"bad": (same, Poisoned())}, "bad")
    assert "task 'bad'" in caught.value.__notes__[0]


class Poisoned:
    def __reduce__(self):
        return divide, (1, 0)


def divide(a, b):
    return a / b


def test_errors_can_be_met_again_in_the_caller(get):
    seen = []

    def fails_there(array, text, literal):
        if os.getpid() == home:
            seen.append((len(array), text, literal))
        raise Oops("here too", code=1)

    home = os.getpid()
    dsk = {"a": (array, 1.0, 4 * MIB), "b": (same, "x"), "bad": (fails_there, "a", "b", 5)}
    with pytest.raises(Oops, match="here too"):
        get(dsk, "bad", rerun_exceptions_locally=True, chunksize=1)


@pytest.mark.parametrize(
    ("task", "reason"), [((exit_now, 3), "exit code 3"), ((kill_myself,), "SIGKILL")]
)
def test_a_worker_that_dies_is_an_error_that_names_the_task(get, task, reason):
    dsk = {("x", i): (inc, i) for i in range(100)} | {("bad", 1): task}
    with pytest.raises(WorkerDied) as caught:
        get(dsk, [("bad", 1), *((("x", i)) for i in range(100))])
    assert caught.value.key == "('bad', 1)"
    assert reason in caught.value.reason
    assert get({"a": (inc, 1)}, "a") == 2


# --- Callbacks ------------------------------------------------------------------------------------


def observed(get, dsk, keys, checker, **options):
    observer = Observer(checker.callbacks, None)
    shown = as_dask_shows_it(dsk, {})
    observer.start(shown)
    try:
        result = get(shown, keys, observer=observer, **options)
    except BaseException:
        observer.finish(is_errored=True)
        raise
    observer.finish(is_errored=False)
    return result


@given(case=graphs(max_tasks=40))
@settings(max_examples=15)
def test_the_tables_of_callbacks_are_right_at_each_call(get, case):
    dsk, wanted = case
    expected = tuple(evaluate(dsk, key) for key in wanted)
    for options in ({}, {"chunksize": 1}):
        checker = Checker()
        assert observed(get, dsk, wanted, checker, **options) == expected
        assert {*checker.begun} == {*checker.ended} == {*checker.results}
        checker = Checker(on_posttask=None, has_results=False)
        assert observed(get, dsk, wanted, checker, **options) == expected
        assert len(checker.begun) == checker.n_tasks


def test_a_task_behind_others_is_shown_while_it_runs(get, tmp_path):
    path = str(tmp_path / "shown")

    def on_pretask(key):
        if key == "long":
            touch(path)

    dsk = {"a": (inc, 1), "b": (inc, "a"), "long": (wait_for, path, "b")}
    for options in ({}, {"on_posttask": None, "has_results": False}):
        checker = Checker(on_pretask=on_pretask, **options)
        assert observed(get, dsk, "long", checker, n_slots=1) == 3
        assert checker.begun == ["a", "b", "long"]
        os.unlink(path)


def test_nothing_is_left_behind(get, caplog):
    with caplog.at_level(logging.WARNING):
        get({"a": (inc, 1), "b": (array, 1.0, MIB), "c": (total, "b")}, ["a", "c"])
    assert not caplog.records


class Folder:
    """A folder that goes with the object that has made it, and not with copies of that."""

    def __init__(self, path, is_mine=False):
        self.path, self.is_mine = path, is_mine

    def __reduce__(self):
        return Folder, (self.path,)

    def __del__(self):
        if self.is_mine:
            shutil.rmtree(self.path)


def folder():
    return [Folder(tempfile.mkdtemp(prefix="weft-test-"), is_mine=True)]


def put(folders, name, *_):
    with open(os.path.join(folders[0].path, name), "x"):
        return folders[0].path


def busy():
    time.sleep(0.01)  # workload


def names(folders, *_):
    return sorted(os.listdir(folders[0].path))


@pytest.mark.parametrize("chunksize", [None, 1, 2, -1])
def test_a_value_with_a_finalizer_lives_until_its_last_reader_has_run(get, chunksize):
    dsk = {"folder": (folder,), **{("put", i): (put, "folder", f"{i}") for i in range(6)}}
    puts = [("put", i) for i in range(6)]
    dsk["names"] = (names, "folder", *puts)
    found, path = get(dsk, ["names", ("put", 0)], chunksize=chunksize)
    assert found == [f"{i}" for i in range(6)]

    def is_gone():
        # A slot has the arguments of its last call, and what is let go travels with the next one.
        dsk = {("next", i): (busy,) for i in range(12)}
        get(dsk, list(dsk), chunksize=1)
        return not os.path.exists(path)

    wait_until(is_gone)
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        found, path = weft.get(dsk, ["names", ("put", 0)], executor=executor, chunksize=chunksize)
        assert found == [f"{i}" for i in range(6)]
    wait_until(lambda: not os.path.exists(path))
