"""Child processes that do not start, end at the wrong moment, or send unexpected data."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests.deploy.daemons import environment, gone, run
from weft.deploy.processes.child import Child, ChildFailed, Parent
from weft.protocol.host.exits import EXIT_CRASHED


@pytest.fixture
def child():
    made = []

    def make(kind):
        made.append(Child(kind))
        return made[-1]

    yield make
    for child in made:
        child.kill()
        child.close()


@pytest.mark.slow
def test_a_child_that_ends_before_it_has_read_its_configuration_is_reported_as_ended(child):
    nonsense = child("nonsense")
    nonsense.configure({"never": "read"})
    with pytest.raises(ChildFailed, match="KeyError: 'nonsense'"):
        nonsense.wait_ready(30)


@pytest.mark.slow
async def test_a_child_that_ended_early_is_reported_in_a_loop_too(child):
    nonsense = child("nonsense")
    nonsense.configure({"never": "read"})
    with pytest.raises(ChildFailed, match="KeyError: 'nonsense'"):
        await nonsense.wait_ready_async()
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.slow
async def test_the_loop_turns_while_a_child_takes_its_time_to_end(child):
    scheduler = child("scheduler")  # waits for a configuration
    scheduler.socket.setblocking(False)
    loop, finish = asyncio.get_running_loop(), scheduler.finish

    async def turn():
        return True

    def finish_late(timeout_s):
        assert asyncio.run_coroutine_threadsafe(turn(), loop).result(20)
        return finish(timeout_s)

    scheduler.finish = finish_late
    scheduler.process.kill()
    assert await asyncio.wait_for(scheduler.wait_ended_async(), 30) == "killed by SIGKILL"
    scheduler.finish = finish
    await loop.shutdown_default_executor()


@pytest.mark.slow
def test_a_program_with_thousands_of_open_files_can_start_children(child):
    high = 1500  # above what `select` takes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < high + 100:
        pytest.skip("so many files are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, high + 100), hard))
    try:
        nonsense = child("nonsense")
        low = nonsense.socket
        nonsense.socket = socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, high))
        low.close()
        with pytest.raises(ChildFailed, match="KeyError"):
            nonsense.wait_ready(30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("missing", ["socket.socketpair", "tempfile.TemporaryFile"])
def test_a_child_that_the_system_refuses_to_start_is_a_failed_start(missing, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(f"weft.deploy.processes.child.{missing}", refuse)
    with pytest.raises(ChildFailed, match=r"cannot start the scheduler process: .*Too many"):
        Child("scheduler")


async def test_a_child_that_sent_something_still_notices_the_end_of_its_parent():
    ours, theirs = socket.socketpair()
    parent = Parent(theirs.detach(), os.dup(2))
    gone = asyncio.ensure_future(parent.wait_gone())
    await asyncio.sleep(0)
    parent.ready(port=1)
    assert parent.socket.gettimeout() == 0.0
    ours.sendall(b"x")  # a blocking read would take this, and then wait
    await asyncio.sleep(0)
    ours.close()
    await asyncio.wait_for(gone, 20)
    parent.close()


@pytest.mark.slow
def test_an_unexpected_error_ends_the_scheduler_with_a_report(tmp_path):
    code = """
from weft.deploy.scheduler.daemon import DaemonConfig, run_daemon
from weft.protocol.trust.security import Security
from weft.scheduler.config import SchedulerConfig

def on_ready(server, url):
    raise RuntimeError("nobody foresaw this")

scheduler = SchedulerConfig(["inproc://s"], Security(b"a token for tests only", b"c" * 16))
run_daemon(DaemonConfig(scheduler, on_ready=on_ready))
"""
    done = run(folder=tmp_path, code=code, timeout=30)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("RuntimeError: nobody foresaw this")


@pytest.mark.slow
def test_a_bug_of_weft_ends_the_scheduler_with_a_code_of_its_own(tmp_path):
    code = """
from weft.deploy.cli.command import main
from weft.scheduler.core.members import liveness

def reassure(state, receiving):
    raise KeyError("a broken invariant")

liveness.reassure = reassure
main(["scheduler", "--port", "0", "--no-dashboard", "--no-restart"])
"""
    done = run(folder=tmp_path, code=code, timeout=30)
    assert done.returncode == EXIT_CRASHED
    assert "the scheduler ends: a bug of weft has left its state half changed" in done.stderr
    assert "Traceback" in done.stderr
    assert "weft: a bug of weft ended the scheduler: KeyError" in done.stderr


FORKS = """
import os, signal, sys, weft
client = weft.Client(n_workers=1)
cluster = client.cluster
print(cluster._scheduler.process.pid, cluster._workers.process.pid, flush=True)
if not os.fork():
    os.write(1, b"forked\\n")
    while True:
        signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_forked_copy_of_the_owner_does_not_keep_the_cluster_alive(tmp_path, wait_until):
    env = environment(tmp_path / "run") | {"PYTHONWARNINGS": "ignore"}
    owner = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with owner:
        try:
            assert owner.stdout is not None
            roots = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
            assert owner.stdout.readline() == "forked\n"
            assert owner.wait(30) == -signal.SIGKILL
            wait_until(lambda: gone(roots), 30)
        finally:
            os.killpg(owner.pid, signal.SIGKILL)
