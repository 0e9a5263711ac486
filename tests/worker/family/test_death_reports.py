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
from tests.worker.family.test_supervisor import Spawner, config_for
from tests.worker.family.test_supervisor_link import SchedulerOfSupervisors, greet
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.reported import REQUESTED
from weft.protocol.wire.messages import RegisterSupervisor, WorkerExited
from weft.worker.family.exits import ask_because, asked_because
from weft.worker.family.lifetimes import Lifetime
from weft.worker.slots.started import StartedRecord

# --- Workers that were asked to leave -------------------------------------------------------------


def joined(told) -> Path:
    """Let a worker that the supervisor has asked for join the cluster; return its record."""
    path = Path(told["started_path"])
    record = StartedRecord(path, 1)
    record.note_joined()
    record.close()
    return path


async def test_a_worker_learns_why_its_supervisor_sends_it_a_signal(tmp_path):
    scheduler = SchedulerOfSupervisors("patient", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path)).open()
    _, told = await spawner.asked()
    record = joined(told)
    spawner.say("started", told["worker_id"], 1234567)
    await scheduler.until(lambda: scheduler.of(RegisterSupervisor))
    spawner.say("signal", int(signal.SIGTERM))
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGTERM)]
    assert asked_because(record) == "its supervisor stops: SIGTERM"
    assert asked_because(record) == "", "a signal that comes later is of somebody else"
    spawner.say("exited", 1234567, 0, 5 << 20)
    assert await spawner.code() == 0
    assert not scheduler.of(WorkerExited)
    await scheduler.stop()


async def test_a_worker_that_outstays_its_lifetime_is_reported_with_that_reason(tmp_path):
    scheduler = SchedulerOfSupervisors("patient", greet)
    await scheduler.start()
    options = {"lifetime": Lifetime(0.01, restart=True), "grace_s": 0.01}
    spawner = await Spawner(config_for([scheduler.address], tmp_path, **options)).open()
    _, told = await spawner.asked()
    record = joined(told)
    spawner.say("started", told["worker_id"], 1234567)
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGTERM)]
    assert asked_because(record) == "its lifetime is over"
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGKILL)]
    spawner.say("exited", 1234567, int(signal.SIGKILL), 5 << 20)
    _, again = await spawner.asked()
    await scheduler.until(lambda: scheduler.of(WorkerExited))
    (report,) = scheduler.of(WorkerExited)
    assert report.worker_id == told["worker_id"] != again["worker_id"]
    assert report.reason == "its lifetime is over; it had not left in time, and was killed"
    assert (report.running, report.kind) == ([], REQUESTED)
    assert report.facts["peak_nbytes"] == 5 << 20
    assert [*tmp_path.glob(f"{told['worker_id']}*")] == []
    spawner.writer.write_eof()
    assert await spawner.code() == 1
    await scheduler.stop()


def test_without_a_place_for_the_note_no_reason_is_known(tmp_path):
    ask_because(tmp_path / "gone" / "w.started", "why")
    assert asked_because(tmp_path / "gone" / "w.started") == ""
    assert asked_because(None) == ""


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
        "def be_killed(score):\n"
        "    open('/proc/self/oom_score_adj', 'w').write(str(score))\n"
        # The kernel may take a second process while the first one's memory is given back.
        "be_killed(-1000)\n"
        "import weft\n"
        "from weft.deploy.local.cluster import LocalCluster\n"
        "def gorge():\n"
        "    be_killed(0)\n"
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
