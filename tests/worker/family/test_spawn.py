"""The spawner, with the test's own supervisors and workers in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.deploy.daemons import ROOT, gone

pytestmark = pytest.mark.slow

HEAD = """
import json, os, select, signal, sys, time
from weft.worker.family import spawn
START = b'["start", {"worker_id": "w"}]\\n'
def say(*what):
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())
def lines(commands):
    received = b""
    while data := commands.recv(1):
        received += data
        if data == b"\\n":
            yield json.loads(received)
            received = b""
def work(plain):
    return 0
"""
TAIL = "\nsys.exit(spawn.run(supervise, work))\n"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def start(code: str, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HEAD + code + TAIL],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def test_a_supervisor_that_dies_with_something_unread_ends_the_family_in_order(start):
    process = start("""
def supervise(commands):
    commands.sendall(START)
    select.select([commands], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
def work(plain):
    signal.pause()
""")
    _, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (128 + signal.SIGKILL, "")


def test_a_signal_that_arrives_just_after_the_fork_is_the_spawners_alone(start):
    process = start("""
fork = os.fork
def fork_and_interrupt():
    pid = fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = fork_and_interrupt
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        say(kind, rest[1])
        if kind == "exited":
            return 0
""")
    said, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (0, "")
    started, exited = said.splitlines()
    assert started.startswith("started ")
    assert exited == "exited 0"


def test_a_child_that_the_spawner_ends_just_after_the_fork_ends(start):
    process = start("""
fork = os.fork
def fork_and_end():
    pid = fork()
    if pid and family:  # a worker, not the supervisor
        os.kill(pid, signal.SIGTERM)
    elif family:
        while signal.SIGTERM not in signal.sigpending():
            pass
    family.append(pid)
    return pid
family = []
os.fork = fork_and_end
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        if kind == "exited":
            return os.waitstatus_to_exitcode(rest[1])
def work(plain):
    signal.pause()
""")
    _, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (128 + signal.SIGTERM, "")


def test_a_thread_that_a_task_has_left_behind_does_not_keep_a_worker_that_is_over(start):
    process = start("""
import threading
spawn._LINGER_S = 0.1
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        if kind == "exited":
            return os.waitstatus_to_exitcode(rest[1])
def work(plain):
    threading.Thread(target=threading.Event().wait).start()
    return 5
""")
    _, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (5, "")


@pytest.mark.parametrize(
    "end",
    ["os._exit(5)", "os.kill(os.getpid(), signal.SIGKILL)", "os.write(there, b'x')"],
    ids=["worker ends", "worker is killed", "supervisor ends"],
)
def test_processes_that_a_task_has_started_end_with_their_worker(start, end, wait_until):
    process = start(f"""
is_there, there = os.pipe()
def supervise(commands):
    commands.sendall(START)
    select.select([commands], [], [])
    commands.recv(1000)
    select.select([commands, is_there], [], [])
    return 0
def work(plain):
    pid = os.fork()
    if pid:
        say(pid)
        {end}
    while True:
        signal.pause()
""")
    assert process.stdout is not None
    left = psutil.Process(int(process.stdout.readline()))
    assert process.wait(30) == 0
    wait_until(lambda: gone([left]))


def test_the_end_of_a_worker_comes_with_its_largest_memory_although_it_was_freed(start):
    process = start("""
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        if kind == "exited":
            say(kind, rest[1], rest[2] >> 20)
            return 0
def work(plain):
    block = bytearray(b"x") * (200 << 20)
    del block
    os.kill(os.getpid(), signal.SIGKILL)
""")
    said, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (0, "")
    kind, status, mib = said.split()
    assert (kind, status) == ("exited", str(int(signal.SIGKILL)))
    assert 200 <= int(mib) < 400


def test_a_failed_fork_is_reported_and_the_next_one_tried(start):
    process = start("""
import errno
fork = os.fork
failures = []
def fork_sometimes():
    if spawner and not failures:
        failures.append(1)
        raise BlockingIOError(errno.EAGAIN, "no process is left")
    return fork()
os.fork = fork_sometimes
spawner = []
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        say(kind, rest[1] if kind != "started" else "")
        if kind == "failed":
            commands.sendall(START)
        elif kind == "exited":
            return 0
loop = spawn._Spawner._loop
def note_and_loop(self):
    spawner.append(self)
    return loop(self)
spawn._Spawner._loop = note_and_loop
""")
    said, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (0, "")
    assert said.splitlines() == ["failed [Errno 11] no process is left", "started ", "exited 0"]


def test_a_hang_up_is_ignored_under_nohup(start):
    process = start(
        """
def supervise(commands):
    say("ready")
    for kind, number in lines(commands):
        say(kind, number)
        return 0
""",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("signal 15\n", "")


def test_three_signals_end_the_family_without_the_supervisor(start):
    process = start("""
def supervise(commands):
    say("ready")
    for kind, number in lines(commands):
        say(kind, number)
""")
    assert process.stdout is not None
    for expected in ("ready\n", "signal 2\n", "signal 2\n"):
        assert process.stdout.readline() == expected
        process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGKILL


def test_closed_standard_output_is_no_reason_to_end(start):
    process = start(
        """
def supervise(commands):
    commands.sendall(START)
    for kind, *rest in lines(commands):
        if kind == "exited":
            return 7
""",
        preexec_fn=lambda: os.close(1),
    )
    _, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (7, "")


def test_the_spawner_imports_once_what_each_of_its_processes_needs(start):
    process = start("""
def say_loaded():
    say(*[name in sys.modules for name in ("uvloop", "weft.protocol.wire.coders")])
def supervise(commands):
    say_loaded()
    commands.sendall(START)
    for kind, *rest in lines(commands):
        if kind == "exited":
            return 0
def work(plain):
    say_loaded()
    return 0
""")
    assert process.communicate(timeout=30) == ("True True\nTrue True\n", "")
