"""Ctrl-C, as a terminal sends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def started(program):
    """Run a program, which is killed if a test fails."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


PROGRAM = """
import sys, tempfile
from tests.client.scripted import ScriptedScheduler
from weft.client import Client, as_completed, wait

def inc(x):
    return x + 1

with tempfile.TemporaryDirectory(prefix="weft") as folder:
    scheduler = ScriptedScheduler(f"unix://{folder}/s")
    scheduler.start()
    client = Client(scheduler)
    scheduler.is_holding = True
    future = client.submit(inc, 1)
    waits = [
        lambda: future.result(),
        lambda: future.result(1000),
        lambda: client.gather([future]),
        lambda: next(as_completed([future])),
        lambda: wait([future]),
        lambda: client.wait_for_workers(5),
    ]
    for n, call in enumerate(waits):
        try:
            print("waiting", flush=True)
            call()
        except KeyboardInterrupt:
            print("interrupted", n, flush=True)
    scheduler.go_on()
    print("result", future.result(20), client.submit(inc, 5).result(20), flush=True)
    client.close()
    scheduler.stop()
"""


@pytest.mark.slow
def test_interrupting_a_wait_leaves_the_client_usable():
    with started(PROGRAM) as program:
        for n in range(6):
            assert program.stdout.readline() == "waiting\n"
            # It may not wait yet; then the interrupt comes a moment earlier, and must do no
            # less.
            program.send_signal(signal.SIGINT)
            assert program.stdout.readline() == f"interrupted {n}\n"
        assert program.stdout.readline() == "result 2 6\n"
        out, err = program.communicate(timeout=20)
    assert (out, err) == ("", "")
    assert program.returncode == 0


FRAMES = """
import os, signal, sys, tempfile, threading, time, traceback
from tests.client.scripted import ScriptedScheduler
from weft.client import Client, as_completed, progress, wait

def inc(x):
    return x + 1

def is_waiting(frame):
    file = os.path.basename(frame.f_code.co_filename)
    if file == "threading.py":  # also while the interrupter is started
        return "_block" in [frame.name for frame in traceback.extract_stack(frame)]
    return file in ("interruptible.py", "lone_caller.py", "selectors.py")

def interrupt_the_wait():
    while not is_waiting(sys._current_frames()[main]):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

main = threading.get_ident()
with tempfile.TemporaryDirectory(prefix="weft") as folder:
    scheduler = ScriptedScheduler(f"unix://{folder}/s")
    scheduler.start()
    client = Client(scheduler)
    scheduler.is_holding = True
    scheduler.answer = lambda connection, message: None  # else a question is over too soon
    future = client.submit(inc, 1)
    waits = [
        lambda: future.result(),
        lambda: future.result(1000),
        lambda: client.gather([future]),
        lambda: client.gather([future], progress=True),
        lambda: next(as_completed([future])),
        lambda: as_completed([future]).next_batch(),
        lambda: wait([future]),
        lambda: progress(future),
        lambda: client.wait_for_workers(5),
        lambda: client.nthreads(),
        lambda: client.get({"x": (inc, 2)}, "x"),
    ]
    for n, call in enumerate(waits):
        interrupter = threading.Thread(target=interrupt_the_wait)
        interrupter.start()
        try:
            call()
        except KeyboardInterrupt as interrupt:
            names = [frame.name for frame in traceback.extract_tb(interrupt.__traceback__)]
            print(" ".join(names[2:]), flush=True)
        interrupter.join()
    scheduler.go_on()
    client.close()
    scheduler.stop()
"""


@pytest.mark.slow
def test_an_interrupted_wait_has_one_frame_of_weft():
    done = subprocess.run(
        [sys.executable, "-c", FRAMES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "result",
        "result",
        "gather",
        "gather",
        "__next__",
        "next_batch",
        "wait",
        "progress",
        "wait_for_workers",
        "nthreads",
        "get values_of",
    ]


UNHANDLED = """
import sys, time
from weft import Client

client = Client(processes=False, n_workers=1)
future = client.submit(time.sleep, 2)
print("waiting", flush=True)
future.result()
"""


@pytest.mark.slow
def test_a_program_whose_client_was_not_closed_dies_of_the_signal():
    with started(UNHANDLED) as program:
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert program.returncode == -signal.SIGINT


FORGETFUL = """
import sys, tempfile
from tests.client.scripted import ScriptedScheduler
from weft.client import Client

scheduler = ScriptedScheduler(sys.argv[1])
scheduler.start()
client = Client(scheduler)
futures = client.map(len, ["a", "bb"])
print(client.gather(futures))
scheduler.is_holding = True
pending = client.submit(len, "ccc")
"""


@pytest.mark.slow
def test_a_program_that_does_not_close_ends_quietly(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, f"unix://{tmp_path}/s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")
