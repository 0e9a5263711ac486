"""What is told of workers that died: their cause, their memory, and the end of their log."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.deploy.local.cluster import LocalCluster

# --- Real families --------------------------------------------------------------------------------


def log_and_die(n: int) -> None:
    for i in range(n):
        logging.getLogger("app").warning("line %d", i)
    os.kill(os.getpid(), signal.SIGKILL)


def gorge() -> None:
    held = []
    while True:
        logging.getLogger("app").warning("%d blocks", len(held))
        held.append(bytearray(os.urandom(1 << 20) * 4))


@pytest.mark.slow
def test_the_last_log_lines_before_a_sigkill_are_in_the_error():
    with LocalCluster(n_workers=1) as cluster, cluster.get_client() as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
        future = client.submit(log_and_die, 30)
        with pytest.raises(weft.WorkerDied) as caught:
            future.result(timeout=60)
    facts = caught.value.facts
    assert [line.partition(" WARNING app: ")[2] for line in facts.last_lines] == [
        f"line {i}" for i in range(10, 30)
    ]
    assert f"\n  {facts.last_lines[-1]}" in str(caught.value)
    assert 10 << 20 < facts.peak_nbytes < 1 << 30
    assert not facts.n_oom_kills


@pytest.mark.slow
def test_a_worker_above_its_limit_is_reported_with_its_memory_results_and_log():
    with (
        LocalCluster(n_workers=1, memory_limit="200MiB") as cluster,
        cluster.get_client() as client,
    ):
        kept = client.map(bytes, [10 << 20, 11 << 20])
        weft.wait(kept, timeout=60)
        future = client.submit(gorge)
        with pytest.raises(weft.WorkerDied) as caught:
            future.result(timeout=120)
        ends = future.attempts()
    facts = caught.value.facts
    assert facts.peak_nbytes > 190 << 20
    (held,) = facts.held_most
    assert (held.function, held.n_results) == ("bytes", 2)
    assert 21 << 20 <= held.nbytes < 22 << 20
    n_blocks = [int(line.rpartition("app: ")[2].split()[0]) for line in facts.last_lines]
    assert n_blocks == [*range(n_blocks[0], n_blocks[0] + 20)]
    assert str(caught.value).endswith(f"\n{facts}")
    assert all("; its memory was " in end for _, end in ends)


CGROUPS = [
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.oom_control"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.events"),
]


@pytest.fixture
def small_group(wait_until):
    """A control group whose processes may have 500 MiB together."""
    for root, limit, _ in CGROUPS:
        group = root / f"weft-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(500 << 20))
        except OSError:
            group.rmdir()
            continue
        yield group
        wait_until(lambda group=group: not (group / "cgroup.procs").read_text())
        group.rmdir()
        return
    pytest.skip("a control group of this test's own is missing: Linux with cgroups, as root")


@pytest.mark.slow
def test_a_worker_that_the_kernel_kills_for_its_memory_is_told_from_other_kills(small_group):
    script = (
        "import os, sys\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "import weft\n"
        "from weft.deploy.local.cluster import LocalCluster\n"
        "def gorge():\n"
        "    held = []\n"
        "    while True:\n"
        "        held.append(bytearray(os.urandom(1 << 20) * 4))\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=1, memory_limit=0, silence_logs=50) as cluster:\n"
        "        with cluster.get_client() as client:\n"
        "            try:\n"
        "                client.submit(gorge).result(timeout=120)\n"
        "            except weft.WorkerDied as error:\n"
        "                print(error.facts.n_oom_kills, error)\n"
    )
    command = [sys.executable, "-c", script, small_group / "cgroup.procs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 ")
    assert "out of memory: killed by the kernel's out-of-memory killer" in done.stdout
    assert "the kernel's out-of-memory killer ended 1 process of its control group." in done.stdout
