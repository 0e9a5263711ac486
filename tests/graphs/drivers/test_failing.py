from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft
from tests.graphs.graph_kit import ThirdParty, inc

ROOT = Path(__file__).resolve().parents[3]
GETS = [weft.get, weft.threaded.get]


class Mistake(Exception):
    pass


def user_function(x):
    return deeper(x)


def deeper(x):
    raise Mistake(f"no {x}")


# --- A task that fails ----------------------------------------------------------------------------


@pytest.mark.parametrize("get", GETS)
def test_the_error_shows_the_users_frames_and_the_key(get):
    with pytest.raises(Mistake, match="no 1") as info:
        get({"x": 1, ("y", 0): (user_function, "x"), "z": (inc, ("y", 0))}, "z")
    frames = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
    assert frames[-2:] == ["user_function", "deeper"]
    assert "weft: task ('y', 0)" in info.value.__notes__
    assert not [name for name in frames if name in ("call", "_run_from", "run")]


@pytest.mark.parametrize("get", GETS)
def test_after_a_failure_no_other_task_starts(get):
    calls = []
    dsk = {"bad": (user_function, 1)} | {("x", i): (calls.append, i) for i in range(100)}
    dsk["all"] = (list, ["bad", *[("x", i) for i in range(100)]])
    with pytest.raises(Mistake):
        get(dsk, "all", num_workers=1)
    assert not calls


@dataclass(frozen=True)
class Frozen(Exception):
    number: int


class Stubborn(Exception):
    def add_note(self, note):
        raise RuntimeError(note)

    def with_traceback(self, tb):
        raise RuntimeError

    def __setattr__(self, name, value):
        raise RuntimeError(name)


@pytest.mark.parametrize("get", [*GETS, weft.multiprocessing.get])
@pytest.mark.parametrize("options", [{}, {"cache": {}}])
@pytest.mark.parametrize("error", [Frozen(5), Stubborn("no"), CancelledError("asked another one")])
def test_an_error_comes_as_it_is_whatever_its_class_forbids(get, options, error):
    with pytest.raises((type(error), weft.TaskErred)) as info:
        get({"x": (throw, type(error), *error.args)}, "x", **options)
    if get in GETS:
        assert type(info.value) is type(error)
    assert str(error) in str(info.value)
    assert any("task 'x'" in note for note in info.value.__notes__)


def throw(cls, *args):
    raise cls(*args)


def test_the_first_of_several_errors_is_raised_and_others_end_quietly():
    barrier = threading.Barrier(2, timeout=30)

    def fail(first):
        barrier.wait()
        raise Mistake(first)

    dsk = {"a": (fail, 1), "b": (fail, 2)}
    with pytest.raises(Mistake):
        weft.threaded.get(dsk, ["a", "b"], num_workers=2)


@pytest.mark.parametrize("get", GETS)
def test_the_next_graph_runs_after_a_failure(get):
    for _ in range(3):
        with pytest.raises(Mistake):
            get({"x": (user_function, 1)}, "x")
        assert get({"x": (inc, 1)}, "x") == 2


@pytest.mark.parametrize("is_observed", [False, True])
def test_a_failed_call_is_made_again_where_a_debugger_sees_it(is_observed):
    threads = []

    def fail():
        threads.append(threading.current_thread())
        raise Mistake

    options = {"cache": {}} if is_observed else {}
    with pytest.raises(Mistake) as info:
        weft.threaded.get({"x": (fail,)}, "x", rerun_exceptions_locally=True, **options)
    first, second = threads
    assert first is not second
    assert second is threading.current_thread()
    assert "weft: task 'x'" in info.value.__notes__


def test_a_call_that_does_not_fail_again_raises_what_it_raised():
    calls = []

    def fail_once():
        calls.append(1)
        if len(calls) == 1:
            raise Mistake

    with pytest.raises(Mistake) as info:
        weft.threaded.get({"x": (fail_once,)}, "x", rerun_exceptions_locally=True)
    assert "the task did not fail" in "\n".join(info.value.__notes__)


# --- Executors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [5, "threads", ThreadPoolExecutor, object()])
@pytest.mark.parametrize("name", ["executor", "pool"])
def test_an_object_that_is_no_executor_is_refused(bad, name):
    with pytest.raises(weft.WrongExecutor, match=r"give an instance|is no concurrent\.futures"):
        weft.get({"x": (inc, 1)}, "x", **{name: bad})


@pytest.mark.parametrize(
    "make",
    [
        ThreadPoolExecutor,
        weft.ThreadPool,
        ProcessPoolExecutor,
        lambda _: weft.SynchronousExecutor(),
    ],
)
@pytest.mark.parametrize("options", [{}, {"cache": {}}])
def test_an_executor_that_is_shut_down_is_refused(make, options):
    pool = make(1)
    pool.shutdown()
    with pytest.raises(weft.WrongExecutor, match="cannot run tasks"):
        weft.get({"x": (inc, 1)}, "x", executor=pool, **options)


@pytest.mark.parametrize("options", [{}, {"cache": {}}])
def test_a_pool_whose_process_dies_is_an_error_and_no_hang(options):
    pool = multiprocessing.get_context("spawn").Pool(1)
    dsk = {"x": (os._exit, 3), "y": (inc, "x")}
    with pool, pytest.raises(weft.WorkerDied, match="'x'"):
        weft.get(dsk, "y", executor=pool, **options)
    pool.join()


class Broken(ThirdParty):
    def submit(self, fn, /, *args, **kwargs):
        raise OSError("no more threads")


def test_an_executor_that_takes_nothing_is_an_error():
    with pytest.raises(weft.WrongExecutor, match="no more threads"):
        weft.get({"x": (inc, 1)}, "x", executor=Broken())


class Dropping(ThirdParty):
    """An executor that cancels all calls."""

    def __init__(self):
        super().__init__()
        self.n_calls = 0

    def submit(self, fn, /, *args, **kwargs):
        self.n_calls += 1
        if self.n_calls == 1:
            return super().submit(
                fn, *args, **kwargs
            )  # the caller that asks where it runs its calls
        future = Future()
        future.cancel()
        return future


def test_an_executor_that_drops_calls_is_an_error():
    with pytest.raises(weft.WrongExecutor, match="it dropped the call"):
        weft.get({"x": (inc, 1)}, "x", executor=Dropping())


def fail_to_begin():
    raise Mistake


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_pool_whose_threads_cannot_begin_is_an_error():
    with ThreadPoolExecutor(1, initializer=fail_to_begin) as pool:
        with pytest.raises(weft.WrongExecutor, match="cannot run tasks") as info:
            weft.get({"x": (inc, 1)}, "x", executor=pool)
        assert isinstance(info.value.__cause__, BrokenThreadPool)


# --- Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("get", GETS)
@pytest.mark.parametrize("name", ["num_worker", "resources"])
def test_an_unknown_option_is_an_error_before_anything_runs(get, name):
    calls = []
    with pytest.raises(weft.UnknownOption, match=f"option '{name}'.*here are cache, callbacks"):
        get({"x": (calls.append, 1)}, "x", **{name: 3})
    assert not calls


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": -1},
        {"num_workers": "2"},
        {"num_workers": True},
        {"num_workers": 1.5},
        {"chunksize": 0},
        {"chunksize": -2},
        {"cache": 5},
        {"cache": []},
        {"callbacks": [5]},
        {"callbacks": 5},
        {"callbacks": (None, None)},
        {"order": 5},
    ],
)
def test_a_value_that_cannot_be_used_is_an_error(options):
    with pytest.raises(weft.WeftError, match=next(iter(options))):
        weft.threaded.get({"x": (inc, 1)}, "x", **options)


def test_executor_and_pool_are_one_option():
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        assert weft.get({"x": (inc, 1)}, "x", executor=one, pool=one) == 2
        with pytest.raises(weft.ConfigError, match="pool: it is the same option as executor"):
            weft.get({"x": (inc, 1)}, "x", executor=one, pool=two)


# --- Ctrl-C ---------------------------------------------------------------------------------------

PROGRAM = """
import sys, time, weft, weft.threaded
from concurrent.futures import ThreadPoolExecutor

def long(x):
    print("running", flush=True)
    while True:  # a signal that comes just before a sleep does not end it
        time.sleep(0.01)  # workload

how = sys.argv[1]
dsk = {"a": (long, 1), "b": (long, "a")}
try:
    if how == "sync":
        weft.get(dsk, "b")
    elif how == "threaded":
        weft.threaded.get(dsk, "b")
    elif how == "observed":
        weft.threaded.get(dsk, "b", cache={})
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("next", weft.threaded.get({"x": (abs, -1)}, "x"), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sync", "threaded", "observed"])
def test_ctrl_c_ends_a_run_and_the_program_goes_on_and_ends(how):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            assert program.stdout.readline() == "running\n"
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=30)
        except BaseException:
            program.kill()
            raise
    assert (out, err, program.returncode) == ("interrupted\nnext 1\n", "", 0)
