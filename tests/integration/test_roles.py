"""What the tokens of a real cluster permit, and which of them its processes hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from weft.client import Client
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.errors import ConfigError, NotPermitted, WrongToken
from weft.protocol.wire.levels import Level

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    with LocalCluster(n_workers=1, threads_per_worker=1) as cluster:
        yield cluster


def test_a_shutdown_takes_the_token_of_an_admin_and_a_refused_one_disturbs_nothing(cluster):
    security = cluster.security.lowered(Level.CLIENT)
    with Client(cluster.scheduler_address, security=security) as client:
        with pytest.raises(NotPermitted, match="needs a token of role admin, and this one is of"):
            client.shutdown()
        assert client.status == "running"
        assert client.submit(abs, -1).result(60) == 1
    with Client(cluster) as owner:
        assert owner.submit(abs, -2).result(60) == 2
        owner.shutdown()
        assert owner.status == "closed"


async def test_an_asynchronous_client_may_stop_the_cluster_of_its_process():
    async with (
        LocalCluster(processes=False, n_workers=1, asynchronous=True) as cluster,
        Client(cluster, asynchronous=True) as owner,
    ):
        assert await owner.submit(abs, -2) == 2
        await owner.shutdown()
        assert owner.status == "closed"


@pytest.mark.parametrize("level", [Level.WORKER, Level.VIEW])
def test_a_token_below_that_of_a_client_is_refused_with_the_way_to_another(cluster, level):
    security = cluster.security.lowered(level)
    with pytest.raises(WrongToken) as caught:
        Client(cluster.scheduler_address, security=security)
    text = str(caught.value)
    assert f"a client needs a token of role client, and this one is of role {level.label}" in text
    assert "'weft token --role client --output FILE'" in text


def test_a_cluster_is_not_made_of_a_token_that_cannot_make_the_others(cluster):
    for level in (Level.VIEW, Level.WORKER, Level.CLIENT):
        with pytest.raises(ConfigError, match=f"that of an admin, not of role {level.label}"):
            LocalCluster(security=cluster.security.lowered(level))


def memory_has(pid: int, token: bytes) -> bool:
    """Return whether the memory of a process has this text in it."""
    script = f"""
import re, sys
token = sys.stdin.buffer.read()
with open("/proc/{pid}/maps") as maps, open("/proc/{pid}/mem", "rb", 0) as memory:
    for line in maps:
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
        if found is None or "[v" in line:
            continue
        start, end = (int(part, 16) for part in found.groups())
        try:
            memory.seek(start)
            if token in memory.read(end - start):
                sys.exit(1)
        except OSError:
            continue
"""
    done = subprocess.run([sys.executable, "-c", script], input=token, check=False)
    assert done.returncode in (0, 1)
    return done.returncode == 1


def may_read_memory() -> bool:
    try:
        Path(f"/proc/{os.getppid()}/mem").open("rb").close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(
    not may_read_memory(),
    reason="/proc/PID/mem cannot be read: run as root, or allow ptrace of child processes",
)
def test_processes_with_the_code_of_users_hold_no_token_above_that_of_a_worker(cluster):
    cluster.wait_for_workers(1, 60)
    admin = cluster.security.token
    client = cluster.security.lowered(Level.CLIENT).token
    worker = cluster.security.lowered(Level.WORKER).token
    spawner = psutil.Process(cluster._workers.process.pid)
    family = [spawner, *spawner.children(recursive=True)]
    assert len(family) == 3
    for process in family:
        assert not memory_has(process.pid, admin)
        assert not memory_has(process.pid, client)
    assert memory_has(family[-1].pid, worker)
    assert memory_has(cluster._scheduler.process.pid, admin)
