"""The clusters of `weft.multiprocessing.get`: kept, replaced, and always ended."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.graphs.blocks.kit import (
    alive,
    exit_now,
    get,
    inc,
    nested,
    pid_of,
    say,
    surroundings,
    touch,
    wait_for,
)
from weft.deploy.local import kept
from weft.deploy.local.surroundings import Surroundings
from weft.multiprocessing import shutdown

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def no_workers_stay():
    yield
    shutdown()
    weft.threaded.shutdown()


def pids(n_workers, tmp_path):
    """Return the pids of `n_workers` workers, all of which run at the same time."""
    folder = tmp_path / f"{time.monotonic_ns()}"
    folder.mkdir()
    paths = [str(folder / str(i)) for i in range(n_workers)]
    dsk = {
        f"p{i}": (pid_of, (touch, paths[i]), *[(wait_for, path) for path in paths])
        for i in range(n_workers)
    }
    return {*get(dsk, [*dsk], num_workers=n_workers)}


@contextlib.contextmanager
def killed_at_last(program):
    with program:
        try:
            yield
        finally:
            program.kill()


def test_workers_are_kept_and_more_are_started_when_needed(tmp_path):
    two = pids(2, tmp_path)
    assert pids(2, tmp_path) == two
    four = pids(4, tmp_path)
    assert len(four) == 4
    assert two < four
    assert pids(1, tmp_path) < four


def test_shutdown_ends_the_workers_and_the_next_run_starts_others(tmp_path, wait_until):
    before = pids(2, tmp_path)
    shutdown()
    # Those that took too long are ended by the system, a moment after their parent.
    wait_until(lambda: not any(map(alive, before)))
    shutdown()
    assert not pids(2, tmp_path) & before


def test_workers_that_left_are_replaced(tmp_path, wait_until):
    before = pids(2, tmp_path)
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not any(map(alive, before)))
    assert not pids(2, tmp_path) & before


def test_a_cluster_ends_when_no_run_needs_it(tmp_path, monkeypatch, wait_until):
    monkeypatch.setattr(kept, "IDLE_S", 0.1)
    before = pids(2, tmp_path)
    wait_until(lambda: not any(map(alive, before)))
    assert not pids(2, tmp_path) & before


def test_a_stale_task_may_go_on_until_its_worker_is_needed(tmp_path, wait_until):
    pid_file, go = tmp_path / "pid", tmp_path / "go"
    dsk = {"busy": (note_pid_and_wait, str(pid_file), str(go)), "bad": (boom_after, str(pid_file))}
    with pytest.raises(RuntimeError, match="boom"):
        get(dsk, ["busy", "bad"], num_workers=2)
    busy = int(pid_file.read_text())
    assert alive(busy)
    now = pids(2, tmp_path)
    assert busy not in now
    wait_until(lambda: not alive(busy))


def test_a_worker_that_is_done_with_a_stale_task_is_used_again(tmp_path, wait_until):
    pid_file, go, done = tmp_path / "pid", tmp_path / "go", tmp_path / "done"
    dsk = {
        "busy": (touch, str(done), (note_pid_and_wait, str(pid_file), str(go))),
        "bad": (boom_after, str(pid_file)),
    }
    with pytest.raises(RuntimeError, match="boom"):
        get(dsk, ["busy", "bad"], num_workers=2)
    busy = int(pid_file.read_text())
    go.touch()
    wait_until(done.exists)
    assert busy in pids(2, tmp_path)


def note_pid_and_wait(pid_file, go):
    write_pid(pid_file)
    wait_for(go)


def write_pid(path):
    """Write a file that is complete when it appears."""
    folder, name = os.path.split(path)
    unnamed = Path(folder, f"~{name}")
    unnamed.write_text(str(os.getpid()))
    unnamed.rename(path)


def boom_after(path):
    wait_for(path)
    raise RuntimeError("boom")


def test_a_module_that_is_reloaded_is_the_new_one_in_workers(tmp_path, monkeypatch):
    source = tmp_path / "weft_test_reloaded.py"
    source.write_text("def number(): return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("weft_test_reloaded")
    assert get({"a": (module.number,)}, "a") == 1
    source.write_text("def number(): return 1 + 1\n")
    module = importlib.reload(module)
    assert get({"a": (module.number,)}, "a") == 2
    del sys.modules["weft_test_reloaded"]


def test_a_forked_process_has_workers_of_its_own(tmp_path):
    before = pids(2, tmp_path)
    result = tmp_path / "result"
    pid = os.fork()
    if not pid:
        try:
            (now,) = pids(1, tmp_path)
            shutdown()
            result.write_text(f"{now}")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert int(result.read_text()) not in before
    assert pids(2, tmp_path) == before


def test_workers_end_with_a_parent_that_is_killed(tmp_path, wait_until):
    program = subprocess.Popen(
        [sys.executable, "-c", DOOMED, str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    with killed_at_last(program):
        wait_until(lambda: len([*tmp_path.glob("pid*")]) == 2)
        workers = [int(path.read_text()) for path in tmp_path.glob("pid*")]
        assert all(map(alive, workers))
        program.kill()
        program.wait()
    wait_until(lambda: not any(map(alive, workers)))


#: Tasks that hold the interpreter, so that no thread of the worker can do anything.
DOOMED = """
import sys
from tests.graphs.blocks.kit import get
from tests.deploy.local.test_kept import hold_interpreter

dsk = {i: (hold_interpreter, f"{sys.argv[1]}/pid{i}") for i in range(2)}
get(dsk, [0, 1], num_workers=2)
"""


def hold_interpreter(path):
    write_pid(path)
    sum(range(10**11))


SCRIPT = """
from weft.multiprocessing import get

print("main")

class Oops(Exception):
    pass

class Point:
    def __init__(self, x):
        self.x = x

def point(x):
    return Point(x + 1)

def bad(point):
    raise Oops(point.x)

a, b = get({"a": (point, 1), "b": (point, 2)}, ["a", "b"])
print(type(a) is Point, a.x, b.x)
try:
    get({"a": (point, 1), "b": (bad, "a")}, "b")
except Oops as exc:
    print("Oops", exc)
"""


def test_a_script_needs_no_guard_and_its_classes_stay_what_they_are(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("main\nTrue 2 3\nOops 2\n", "")


INTERRUPTED = """
import sys, time
from tests.graphs.blocks.kit import get, inc, pid_of
from tests.deploy.local.test_kept import hold_interpreter

print(get({"p": (pid_of,)}, "p"), flush=True)
dsk = {i: (hold_interpreter, f"{sys.argv[1]}/pid{i}") for i in range(2)}
try:
    get(dsk, [0, 1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(get({"a": (inc, 1)}, "a"), flush=True)
"""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_ctrl_c_ends_a_run_and_its_workers(tmp_path, wait_until, is_terminal):
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    with killed_at_last(program):
        program.stdout.readline()
        wait_until(lambda: len([*tmp_path.glob("pid*")]) == 2)
        workers = [int(path.read_text()) for path in tmp_path.glob("pid*")]
        if is_terminal:  # the whole process group gets the signal
            os.killpg(program.pid, signal.SIGINT)
        else:
            program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        wait_until(lambda: not any(map(alive, workers)))
        # Not `communicate`, which would lose the data that `readline` has read and not returned.
        assert program.stdout.read() == "2\n"
        assert program.stderr is not None
        assert program.stderr.read() == ""
    assert program.wait(30) == 0


def test_settings_are_applied_and_taken_back(tmp_path, monkeypatch):
    before = Surroundings.of_this_process()
    assert before.folder == os.getcwd()
    monkeypatch.setenv("WEFT_TEST", "1")
    now = Surroundings.of_this_process()._replace(folder=str(tmp_path))
    monkeypatch.setenv("WEFT_TEST", "of the worker")
    try:
        now.apply(before.environment)
        assert os.getcwd() == str(tmp_path)
        assert os.environ["WEFT_TEST"] == "1"
    finally:
        before.apply(now.environment)
    assert os.getcwd() == before.folder
    assert "WEFT_TEST" not in os.environ


def test_a_thread_that_is_not_the_main_one_may_run_graphs():
    results = []
    thread = threading.Thread(target=lambda: results.append(get({"a": (inc, 1)}, "a")))
    thread.start()
    thread.join()
    assert results == [2]


# --- Surroundings ---------------------------------------------------------------------------------


def test_the_output_of_tasks_is_printed(capfd):
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


def test_a_worker_that_is_started_later_has_the_surroundings_too(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_TEST_BEFORE", "1")
    get({"a": (inc, 1)}, "a", num_workers=1)
    monkeypatch.setenv("WEFT_TEST", "yes")
    monkeypatch.delenv("WEFT_TEST_BEFORE")
    get({"a": (inc, 1)}, "a", num_workers=1)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    dsk = {"a": (variables, (touch, one), (wait_for, two))}
    dsk["b"] = (variables, (touch, two), (wait_for, one))
    found = get(dsk, ["a", "b"])
    assert len({pid for pid, *_ in found}) == 2
    assert [rest for _, *rest in found] == [["yes", None]] * 2


def variables(*_):
    return os.getpid(), os.environ.get("WEFT_TEST"), os.environ.get("WEFT_TEST_BEFORE")


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


def test_a_worker_that_dies_is_an_error_and_the_next_run_has_others(tmp_path):
    before = pids(2, tmp_path)
    with pytest.raises(weft.WorkerDied, match=r"'bad'.*exit code 3"):
        get({"bad": (exit_now, 3)}, "bad")
    assert not pids(2, tmp_path) & before


# --- Initializers ---------------------------------------------------------------------------------


def set_up():
    os.environ["SET_UP_FOR_TEST"] = os.environ.get("SET_UP_FOR_TEST", "") + "x"


def look():
    return os.environ.get("SET_UP_FOR_TEST")


def give_up():
    raise SystemExit(3)


DSK = {("x", i): (look,) for i in range(20)}


def test_an_initializer_is_called_once_in_each_worker_before_its_first_task():
    def values(**options):
        return set(get(DSK, list(DSK), **options))

    assert values() == {None}
    assert values(initializer=set_up) == {"x"}
    assert values(initializer=set_up) == {"x"}
    assert values() == {None}
    dask = pytest.importorskip("dask", reason="dask is missing: pip install 'weft[dask]'")
    with dask.config.set({"multiprocessing.initializer": lambda: os.environ.update(A="1")}):
        assert get({"a": (os.getenv, "A")}, "a", num_workers=1) == "1"


@pytest.mark.parametrize(
    ("initializer", "error"), [(lambda: 1 / 0, ZeroDivisionError), (give_up, weft.TaskErred)]
)
def test_an_initializer_that_fails_is_an_error_each_time(initializer, error):
    for _ in range(2):
        with pytest.raises(error) as info:
            get(DSK, list(DSK), num_workers=1, initializer=initializer)
        assert any("in the initializer of" in note for note in info.value.__notes__)


def holds(lock):
    with lock:
        return True


def test_tasks_can_use_what_a_manager_of_multiprocessing_has():
    with multiprocessing.Manager() as manager:
        dsk = {("x", i): (holds, manager.Lock()) for i in range(4)}
        assert all(get(dsk, list(dsk)))


def test_an_initializer_is_not_for_executors_that_are_given():
    with ThreadPoolExecutor(1) as pool, pytest.raises(weft.ConfigError, match="its own initial"):
        get(DSK, list(DSK), executor=pool, initializer=set_up)
    with pytest.raises(weft.ConfigError, match="initializer: it must be a function"):
        get(DSK, list(DSK), initializer=5)
    assert weft.threaded.get({"x": (abs, -1)}, "x", initializer=None) == 1
