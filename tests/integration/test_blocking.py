"""Blocked workers on real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler

#: The command in a process whose machine has another name.
_ON_BAD_HOST = """
import ctypes, os, socket, sys
NEW_HOST_NAME = 0x04000000
assert ctypes.CDLL(None).unshare(NEW_HOST_NAME) == 0
socket.sethostname("bad-host")
os.execv(sys.executable, [sys.executable, "-m", "weft", *sys.argv[1:]])
"""


def _where() -> str:
    return weft.get_worker().name


def test_a_blocked_worker_gets_no_calls_until_it_is_unblocked(wait_until):
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        blocked, other = sorted(w["name"] for w in client.scheduler_info()["workers"].values())
        kept = client.submit(_where, workers=[blocked])
        assert kept.result(timeout=60) == blocked
        assert client.block_workers(blocked, reason="its disk is full") == 1
        assert client.blocked_workers()[blocked]["reason"] == "its disk is full"
        assert {*client.gather(client.map(lambda _: _where(), range(20)))} == {other}
        waits = client.submit(_where, workers=[blocked], pure=False)
        wait_until(lambda: "its disk is full" in str(waits.explain()))
        assert client.submit(str.upper, kept).result(timeout=60) == blocked.upper()
        client.unblock_workers(blocked)
        assert waits.result(timeout=60) == blocked
        assert client.blocked_workers() == {}


def _fail_there(_: int) -> str:
    if os.uname().nodename == "bad-host":
        raise OSError("no such disk")
    return os.uname().nodename


@pytest.fixture
def may_rename_host() -> None:
    code = _ON_BAD_HOST.partition("os.execv")[0]
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("a second name of the host is missing: run it as root")


@pytest.mark.usefixtures("may_rename_host")
def test_a_host_on_which_calls_fail_is_blocked_by_itself(tmp_path, wait_until):
    one = ("worker", "--nworkers", "1", "--nthreads", "1")
    with (
        scheduler("--block-after", "2", folder=tmp_path) as master,
        daemon(*one, "--name", "good", folder=tmp_path),
        daemon(*one, "--name", "bad", code=_ON_BAD_HOST, folder=tmp_path),
        weft.Client(connection_file=file_of(master)) as client,
    ):
        client.wait_for_workers(2, timeout=60)

        def is_blocked() -> bool:
            calls = client.map(_fail_there, range(10), retries=1000, pure=False)
            assert {*client.gather(calls)} == {os.uname().nodename}
            return "bad-host" in client.blocked_workers()

        wait_until(is_blocked)
        why = "2 failures in a row, of calls that ended well elsewhere; the last one: _fail_there "
        shown = run("info", folder=tmp_path).stdout
        assert f"blocked by the scheduler: {why}raised OSError: no such disk" in shown
        assert f"host bad-host is blocked for 15 min: {why}" in master.err
        events = [event for _, event in client.get_events("scheduler")]
        (blocked,) = [event for event in events if event["event"] == "host-blocked"]
        assert (blocked["host"], blocked["seconds"]) == ("bad-host", 900.0)
        assert run("unblock", "bad-host", folder=tmp_path).returncode == 0
        assert client.blocked_workers() == {}
