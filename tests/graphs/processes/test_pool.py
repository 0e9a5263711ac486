"""Weft's own worker processes: kept, replaced, and always ended."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.graphs.processes.kit import alive, get, inc, pid_of, touch, wait_for
from weft.graphs.processes import own_worker, pool
from weft.graphs.processes.driver import shutdown

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def no_workers_stay():
    yield
    shutdown()


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


def test_shutdown_ends_the_workers_and_the_next_run_starts_others(tmp_path):
    before = pids(2, tmp_path)
    shutdown()
    assert not any(map(alive, before))
    shutdown()
    assert not pids(2, tmp_path) & before


def test_workers_that_left_are_replaced(tmp_path, wait_until):
    before = pids(2, tmp_path)
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not any(map(alive, before)))
    assert not pids(2, tmp_path) & before


def test_a_worker_exits_when_no_run_needs_it(wait_until):
    program = subprocess.Popen(
        [sys.executable, "-c", QUIET], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with killed_at_last(program):
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        wait_until(lambda: not alive(pid))
        # Not because of its parent.
        assert program.poll() is None


#: A worker that leaves after a second.
QUIET = """
import os, struct, socket, time
from tests.graphs.processes.kit import get, pid_of
from weft.graphs.processes import pool

pool._BOOT = pool._BOOT.replace(
    "import main", "import main; main.__globals__['IDLE_S'] = 1"
)
print(get({"a": (pid_of,)}, "a", num_workers=1), flush=True)
time.sleep(60)
"""


#: Workers exit between two runs, with an unread message of theirs in the socket.
QUIET_AND_AGAIN = """
import psutil
from tests.graphs.processes.kit import get, pid_of
from tests.leaks import wait_until
from weft.graphs.processes import pool

pool._BOOT = pool._BOOT.replace(
    "import main", "import main; main.__globals__['IDLE_S'] = 1"
)
dsk = {("x", i): (pid_of,) for i in range(20)}
get(dsk, list(dsk), num_workers=6)
workers = psutil.Process().children()
wait_until(lambda: all(worker.status() == psutil.STATUS_ZOMBIE for worker in workers), 60)
print(len(get(dsk, list(dsk), num_workers=3)))
"""


def test_workers_that_have_left_meanwhile_are_not_taken_for_idle_ones():
    done = subprocess.run(
        [sys.executable, "-c", QUIET_AND_AGAIN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("20\n", "")


def test_a_stale_task_may_go_on_until_its_worker_is_needed(tmp_path):
    pid_file, go = tmp_path / "pid", tmp_path / "go"
    dsk = {"busy": (note_pid_and_wait, str(pid_file), str(go)), "bad": (boom_after, str(pid_file))}
    with pytest.raises(RuntimeError, match="boom"):
        get(dsk, ["busy", "bad"], num_workers=2)
    busy = int(pid_file.read_text())
    assert alive(busy)
    now = pids(2, tmp_path)
    assert busy not in now
    assert not alive(busy)


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


def test_a_worker_that_cannot_start_is_an_error(monkeypatch):
    monkeypatch.setattr(pool, "_BOOT", "import sys; sys.exit(5)")
    with pytest.raises(Exception, match=r"no worker process could be started.*exit code 5"):
        get({"a": (inc, 1)}, "a")


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
from tests.graphs.processes.kit import get
from tests.graphs.processes.test_pool import hold_interpreter

dsk = {i: (hold_interpreter, f"{sys.argv[1]}/pid{i}") for i in range(2)}
get(dsk, [0, 1], num_workers=2)
"""


def hold_interpreter(path):
    write_pid(path)
    sum(range(10**11))


SCRIPT = """
import sys
from weft.graphs.processes.driver import ProcessTask, run_on_processes
from weft.graphs.core.reading import read_graph

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

def get(dsk, keys):
    return run_on_processes(read_graph(dsk, keys, task_class=ProcessTask), num_workers=2)

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
from tests.graphs.processes.kit import get, inc, pid_of
from tests.graphs.processes.test_pool import hold_interpreter

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
        assert not any(map(alive, workers))
        # Not `communicate`, which would lose the data that `readline` has read and not returned.
        assert program.stdout.read() == "2\n"
        assert program.stderr is not None
        assert program.stderr.read() == ""
    assert program.wait(30) == 0


def test_a_worker_takes_over_the_settings_of_its_parent(tmp_path, monkeypatch):
    context = own_worker.Context.of_this_process()
    assert context.folder == os.getcwd()
    folder = os.getcwd()
    monkeypatch.setenv("WEFT_TEST", "1")
    monkeypatch.delenv("HOME", raising=False)
    try:
        context._replace(folder=str(tmp_path)).apply()
        assert os.getcwd() == str(tmp_path)
        assert "WEFT_TEST" not in os.environ
    finally:
        os.chdir(folder)
        for name in ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.pop(name, None)


def test_a_thread_that_is_not_the_main_one_may_run_graphs():
    results = []
    thread = threading.Thread(target=lambda: results.append(get({"a": (inc, 1)}, "a")))
    thread.start()
    thread.join()
    assert results == [2]
