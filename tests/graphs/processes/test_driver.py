"""Graphs in real worker processes: results, errors, data."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

from tests.graphs.processes.kit import (
    Oops,
    Pair,
    add,
    array,
    boom,
    close_files,
    exit_now,
    get,
    inc,
    is_free,
    kill_myself,
    lock,
    nested,
    pid_of,
    same,
    say,
    say_exit,
    surroundings,
    total,
    touch,
    wait_for,
)
from weft.graphs.core.reading import read_graph
from weft.graphs.dask_graphs import node_types
from weft.graphs.drivers.inline import run_inline
from weft.graphs.processes.driver import ProcessTask, run_on_processes, shutdown
from weft.protocol.errors import SerializationError, TaskErred, UnpicklableResult, WorkerDied

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources, pytest.mark.usefixtures("warm")]

MIB = 1 << 20


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
def test_results_are_those_of_a_serial_run(dsk, keys):
    assert get(dsk, keys) == run_inline(read_graph(dsk, keys))


def test_values_cross_between_workers():
    # A tree of which each level needs both workers' results.
    dsk = {("x", 0, i): (same, [i]) for i in range(256)}
    for level in range(1, 9):
        dsk |= {
            ("x", level, i): (add, ("x", level - 1, 2 * i), ("x", level - 1, 2 * i + 1))
            for i in range(256 >> level)
        }
    assert get(dsk, ("x", 8, 0), num_workers=3, chunksize=3) == list(range(256))


@pytest.mark.parametrize("chunksize", [None, 1, 7, -1])
def test_chunksize_changes_no_result(chunksize):
    dsk = {("x", i): (inc, i) for i in range(100)}
    dsk |= {("y", i): (inc, ("x", i)) for i in range(100)}
    keys = [("y", i) for i in range(100)]
    assert get(dsk, keys, chunksize=chunksize) == tuple(range(2, 102))


def test_functions_that_cannot_be_imported_travel_by_value():
    class Local:
        def __init__(self, value):
            self.value = value

    offset = 10
    calls = [(lambda x, n=n: Local(x + offset + n)) for n in range(3)]
    dsk = {("x", n): (calls[n], n) for n in range(3)}
    # In arguments, too, and as a call in a list.
    dsk["f"] = (map_of, calls[0], [1, 2], [(calls[1], 5)])
    *values, mapped = get(dsk, [*((("x", n)) for n in range(3)), "f"])
    assert [value.value for value in values] == [10, 12, 14]
    assert all(type(value) is Local for value in values)
    assert mapped == [11, 12, 16]


def map_of(func, items, others):
    return [func(item).value for item in items] + [other.value for other in others]


def test_tasks_run_in_the_number_of_processes_that_was_asked_for(tmp_path):
    # Each waits for the other.
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"a": (pid_of, (touch, one), (wait_for, two))}
    dsk["b"] = (pid_of, (touch, two), (wait_for, one))
    assert len({*get(dsk, ["a", "b"], num_workers=2)}) == 2


def test_a_long_task_does_not_hold_back_others(tmp_path):
    # The first one ends only when all others have, those of its own chunk too.
    last = str(tmp_path / "last")
    dsk = {("x", i): (inc, i) for i in range(200)}
    dsk["last"] = (touch, last, [("x", i) for i in range(200)])
    dsk["first"] = (wait_for, last)
    dsk["before"] = (inc, 1)
    dsk["long"] = (wait_for, last, "before")
    keys = [("x", i) for i in range(199, -1, -1)]
    assert get(dsk, ["first", "long", *keys, "last"], num_workers=3)[1] == 2


def test_dependents_of_a_short_task_do_not_wait_for_a_long_one_behind_it(tmp_path):
    # "source" and one of its dependents go to one worker; the other dependents can go elsewhere
    # only when that worker has reported that "source" is done, and given them back.
    done = str(tmp_path / "done")
    dsk = {"source": (inc, 0), "long": (wait_for, done, "source")}
    dsk |= {("x", i): (add, "source", i) for i in range(20)}
    dsk["all"] = (touch, done, [("x", i) for i in range(20)])
    assert get(dsk, ["all", "long"], num_workers=2) == (list(range(1, 21)), 1)


# --- Data -----------------------------------------------------------------------------------------


def socket_bytes(caplog):
    (record,) = [r for r in caplog.records if "bytes sent" in r.getMessage()]
    return record.args[2] + record.args[3]


@pytest.mark.parametrize("n_consumers", [1, 4])
def test_arrays_do_not_go_through_sockets(caplog, n_consumers):
    caplog.set_level(logging.DEBUG, logger="weft.client")
    n = 200 if n_consumers == 1 else 50
    dsk = {("a", i): (array, float(i), 8 * MIB) for i in range(n)}
    dsk |= {("t", i, j): (total, ("a", i)) for i in range(n) for j in range(n_consumers)}
    keys = [("t", i, j) for i in range(n) for j in range(n_consumers)]
    assert get(dsk, keys, num_workers=4) == tuple(2.0 * i for i, _ in [key[1:] for key in keys])
    assert socket_bytes(caplog) < 200 * len(dsk)


def test_arrays_that_move_go_through_shared_memory(caplog):
    caplog.set_level(logging.DEBUG, logger="weft.client")
    # Each of them needs values of two workers.
    dsk = {("a", i): (array, float(i), MIB) for i in range(16)}
    dsk |= {("t", i): (total, *[("a", j) for j in range(16)]) for i in range(8)}
    dsk["out"] = (same, ("a", 3))
    *totals, out = get(dsk, [*(("t", i) for i in range(8)), "out"], num_workers=3, chunksize=1)
    assert totals == [240.0] * 8
    assert out.shape == (MIB // 8,)
    assert (out == 3).all()
    out[0] = 5  # as writable as it was
    assert socket_bytes(caplog) < 50_000


def test_large_literals_are_sent_once(caplog):
    caplog.set_level(logging.DEBUG, logger="weft.client")
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
    assert socket_bytes(caplog) < 100_000


def take(sequence, i):
    return sequence[i]


def take_of(things, i, _):
    assert things[0][i] == "word"
    return things[1]["a"][i]


def test_a_large_function_is_sent_once(caplog):
    caplog.set_level(logging.DEBUG, logger="weft.client")
    table = list(range(200_000))
    dsk = {("x", i): (lambda i: table[i], i) for i in range(4)}
    func = dsk["x", 0][0]
    dsk = {("x", i): (func, i) for i in range(100)}
    assert get(dsk, [("x", i) for i in range(100)]) == tuple(range(100))
    assert socket_bytes(caplog) < 50_000


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="has no /dev/shm")
def test_no_file_stays_in_shared_memory():
    dsk = {("a", i): (array, float(i), MIB) for i in range(8)}
    dsk["t"] = (total, *[("a", i) for i in range(8)])
    dsk["n"] = (n_shared, "t")
    get(dsk, ["t", "n"], num_workers=3, chunksize=1)
    assert get({"n": (n_shared, None)}, "n") == 0


def n_shared(_):
    """Count the files that the caller's graphs have in shared memory."""
    folders = Path("/dev/shm").glob(f"weft-shared-{os.getppid()}-*")
    return sum(1 for folder in folders for _ in folder.iterdir())


# --- Errors ---------------------------------------------------------------------------------------


def test_an_error_arrives_with_the_frames_of_the_task_and_its_key():
    dsk = {"a": (inc, 1), ("bad", 3): (boom, "a")}
    with pytest.raises(Oops, match="no 2") as caught:
        get(dsk, ("bad", 3))
    assert caught.value.code == 7
    (note,) = caught.value.__notes__
    assert note.startswith("weft: task ('bad', 3) in worker process ")
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "boom"
    assert "raise Oops" in frames[-1].line
    # And the workers go on.
    assert get({"a": (inc, 1)}, "a") == 2


def test_after_a_failure_nothing_else_starts(tmp_path):
    dsk = {("x", i): (touch, str(tmp_path / f"x{i}")) for i in range(50)}
    dsk |= {("y", i): (wait_for, str(tmp_path / "go"), ("x", i)) for i in range(50)}
    dsk["bad"] = (boom, 1)
    with pytest.raises(Oops):
        get(dsk, ["bad", *((("y", i)) for i in range(50))], num_workers=2)
    touch(str(tmp_path / "go"))
    # The next run may have to wait for a task of the last one.
    assert get({"a": (inc, 1)}, "a", num_workers=2) == 2
    assert len([*tmp_path.iterdir()]) < 20


def test_an_unpicklable_argument_is_named_before_anything_runs(tmp_path):
    ran = tmp_path / "ran"
    dsk = {"a": (touch, str(ran)), ("b", 1): (same, ["a", {"conn": threading.Lock()}])}
    with pytest.raises(SerializationError) as caught:
        get(dsk, ("b", 1))
    assert "task ('b', 1)" in caught.value.where
    assert "args[0]" in caught.value.where
    assert "['conn']" in caught.value.where
    assert caught.value.type_name == "_thread.lock"
    assert not ran.exists()


def test_a_function_that_cannot_be_pickled_is_named():
    held = threading.Lock()
    with pytest.raises(SerializationError, match=r"variable held of .* of task 'a'"):
        get({"a": (lambda: held.locked(),)}, "a")


def test_a_result_that_cannot_be_pickled_is_named():
    with pytest.raises(UnpicklableResult) as caught:
        get({"lock": (lock,)}, "lock")
    assert (caught.value.key, caught.value.type_name) == ("lock", "_thread.lock")


def test_a_result_that_cannot_be_pickled_may_be_used_in_its_worker():
    dsk = {("lock", i): (lock, i) for i in range(20)}
    dsk |= {("free", i, j): (is_free, ("lock", i)) for i in range(20) for j in range(3)}
    keys = [("free", i, j) for i in range(20) for j in range(3)]
    assert get(dsk, keys) == (True,) * 60


def test_a_result_that_cannot_be_pickled_and_is_needed_in_two_places_is_named(tmp_path):
    # Two locks that are made in two places, because each waits for the other.
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"one": (lock, (touch, one), (wait_for, two))}
    dsk["two"] = (lock, (touch, two), (wait_for, one))
    dsk["both"] = (is_free, "one", "two")
    with pytest.raises(UnpicklableResult, match=r"the result of task '(one|two)'"):
        get(dsk, "both", num_workers=2)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ((exit_now, 3), "exit code 3"),
        ((kill_myself,), "killed by SIGKILL"),
        ((close_files,), ""),
    ],
)
def test_a_worker_that_dies_is_an_error_that_names_the_task(task, reason):
    dsk = {("x", i): (inc, i) for i in range(100)} | {("bad", 1): task}
    with pytest.raises(WorkerDied) as caught:
        get(dsk, [*((("x", i)) for i in range(100)), ("bad", 1)])
    assert caught.value.key == "('bad', 1)"
    assert reason in caught.value.reason
    assert get({"a": (inc, 1)}, "a") == 2


def test_sys_exit_in_a_task_is_its_failure():
    with pytest.raises(TaskErred, match="SystemExit: enough") as caught:
        get({"bad": (say_exit,)}, "bad")
    assert caught.value.key == "bad"


def test_an_error_of_unpickling_names_the_task():
    with pytest.raises(ZeroDivisionError) as caught:
        get({"bad": (same, Poisoned())}, "bad")
    assert "task 'bad'" in caught.value.__notes__[0]


class Poisoned:
    def __reduce__(self):
        return divide, (1, 0)


def divide(a, b):
    return a / b


def test_errors_can_be_met_again_in_the_caller():
    seen = []

    def fails_there(array, text, literal):
        if os.getpid() == home:
            seen.append((array.sum(), text, len(literal)))
        raise Oops(text, code=1)

    home = os.getpid()
    dsk = {"big": np.ones(MIB), "a": (array, 2.0, MIB), "t": (same, "abc")}
    dsk["bad"] = (fails_there, "a", "t", "big")
    with pytest.raises(Oops) as caught:
        get(dsk, "bad", rerun_exceptions_locally=True)
    assert seen == [(2.0 * MIB // 8, "abc", MIB)]
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails_there"


def test_an_error_that_does_not_happen_again_is_raised_nevertheless():
    home = os.getpid()

    def fails_elsewhere():
        if os.getpid() != home:
            raise Oops("there", code=1)

    with pytest.raises(Oops, match="there") as caught:
        get({"bad": (fails_elsewhere,)}, "bad", rerun_exceptions_locally=True)
    assert "did not fail" in caught.value.__notes__[-1]


# --- Surroundings ---------------------------------------------------------------------------------


def test_the_output_of_tasks_is_printed(capfd):
    shutdown()  # running workers print to the place where they were started
    get({("x", i): (say, f"line {i}") for i in range(3)}, [("x", i) for i in range(3)])
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "line 0", "line 1", "line 2"]


def test_workers_have_the_surroundings_of_the_caller(tmp_path, monkeypatch):
    dsk = {("s", i): (surroundings,) for i in range(2)}
    keys = [("s", 0), ("s", 1)]
    before = get(dsk, keys)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_TEST", "yes")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    for folder, value, path, hashed in get(dsk, keys):
        assert folder == str(tmp_path)
        assert value == "yes"
        assert path[0] == str(tmp_path / "lib")
        assert hashed == before[0][3]
    monkeypatch.undo()
    assert get(dsk, keys) == before


def test_workers_draw_different_random_numbers(tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"a": (draw, (touch, one), (wait_for, two))}
    dsk["b"] = (draw, (touch, two), (wait_for, one))
    first, second = get(dsk, ["a", "b"])
    assert first != second


def draw(*_):
    return np.random.random()


def test_threads_run_graphs_at_the_same_time(tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    results = []
    threads = [
        threading.Thread(target=lambda d=d: results.append(get(d, "a", num_workers=1)))
        for d in (
            {"a": (pid_of, (touch, one), (wait_for, two))},
            {"a": (pid_of, (touch, two), (wait_for, one))},
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*results}) == 2


def test_a_task_may_run_a_graph():
    assert get({"a": (nested, 1), "b": (nested, 5)}, ["a", "b"]) == (3, 7)


def test_graphs_of_dask_nodes():
    spec = pytest.importorskip("dask._task_spec", reason="pip install dask")
    shift = 5
    dsk = {
        "data": spec.DataNode("data", np.arange(MIB)),
        "a": spec.Task("a", lambda d, i: int(d[i]) + shift, spec.TaskRef("data"), 3),
        "b": spec.Task("b", inc, spec.TaskRef("a")),
        "c": spec.Alias("c", "b"),
    }
    graph = read_graph(dsk, ["c", "a"], task_class=ProcessTask, node_types=node_types())
    assert run_on_processes(graph, num_workers=2) == (9, 8)
