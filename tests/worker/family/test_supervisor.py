from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import weft
from tests.deploy.daemons import gone
from tests.worker.family.test_supervisor_link import (
    SECURITY,
    SchedulerOfSupervisors,
    greet,
    welcome,
)
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.reported import OF_SUPERVISORS, REQUESTED, values_of
from weft.protocol.trust.security import Security
from weft.protocol.wire.messages import EndWorkers, RegisterSupervisor, WorkerExited, WorkersAlive
from weft.worker.family import spawn
from weft.worker.family.config import SupervisorConfig, WorkerSpec
from weft.worker.family.exits import SIGNALLED, note
from weft.worker.family.supervisor import Supervisor
from weft.worker.slots.started import StartedRecord


async def test_a_worker_that_is_gone_before_it_is_looked_at_holds_up_nothing(tmp_path):
    def find():
        return [f"unix://{tmp_path}/none"], Security(token=b"0123456789abcdefgh")

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    ours, theirs = socket.socketpair()
    workers = [WorkerSpec("a", memory_limit=0, options={})]
    config = SupervisorConfig(find, workers, str(tmp_path), embedded=True)
    supervisor = asyncio.get_running_loop().create_task(Supervisor(config, theirs).run())
    reader, writer = await asyncio.open_connection(sock=ours)
    verb, told = json.loads(await reader.readline())
    assert verb == "start"
    for line in (["started", told["worker_id"], dead.pid], ["exited", dead.pid, 0]):
        writer.write(json.dumps(line).encode() + b"\n")
    assert await asyncio.wait_for(supervisor, 20) == 1
    writer.close()
    await writer.wait_closed()


# --- With the test as spawner, and as scheduler ---------------------------------------------------


class Spawner:
    """The spawner's side of a supervisor, controlled by the test."""

    def __init__(self, config: SupervisorConfig) -> None:
        self.socket, theirs = socket.socketpair()
        self.run = asyncio.get_running_loop().create_task(Supervisor(config, theirs).run())

    async def open(self) -> Spawner:
        self.reader, self.writer = await asyncio.open_connection(sock=self.socket)
        return self

    def say(self, *what: object) -> None:
        self.writer.write(json.dumps(what).encode() + b"\n")

    async def asked(self) -> list[object]:
        return json.loads(await asyncio.wait_for(self.reader.readline(), 20))

    async def code(self) -> int:
        code = await asyncio.wait_for(self.run, 20)
        await self.close()
        return code

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def greet_and_abort(connection):
    connection.send([welcome()])
    asyncio.get_running_loop().call_later(0.01, connection.abort)


def config_for(addresses, directory, **options):
    workers = [WorkerSpec("a", memory_limit=0, options={})]
    return SupervisorConfig(lambda: (addresses, SECURITY), workers, str(directory), **options)


async def test_a_spawner_that_dies_with_something_unread_is_noticed(tmp_path):
    spawner = Spawner(config_for([f"unix://{tmp_path}/none"], tmp_path, embedded=True))
    spawner.socket.setblocking(False)
    await asyncio.get_running_loop().sock_recv(spawner.socket, 1)  # of the order to start a worker
    spawner.socket.close()
    assert await asyncio.wait_for(spawner.run, 20) == 1


async def test_a_stop_does_not_wait_for_a_scheduler_that_does_not_answer(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        spawner = await Spawner(config_for([address], tmp_path)).open()
        accepted, _ = await asyncio.get_running_loop().run_in_executor(None, deaf.accept)
        with accepted:
            spawner.say("signal", int(signal.SIGTERM))
            assert await asyncio.wait_for(spawner.run, 5) == 0
    await spawner.close()
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_second_signal_does_not_wait_for_a_worker_that_is_just_started(tmp_path):
    scheduler = SchedulerOfSupervisors("patient", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path)).open()
    _, told = await spawner.asked()
    spawner.say("signal", int(signal.SIGINT))
    spawner.say("signal", int(signal.SIGINT))
    spawner.say("started", told["worker_id"], 1234567)
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGKILL)]
    spawner.say("exited", 1234567, int(signal.SIGKILL))
    assert await spawner.code() == 0
    await scheduler.stop()


async def test_a_worker_that_could_not_be_started_is_tried_again(tmp_path, caplog):
    scheduler = SchedulerOfSupervisors("patient", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path)).open()
    ids = []
    for i in range(3):
        verb, told = await spawner.asked()
        assert verb == "start"
        ids.append(told["worker_id"])
        if i == 2:  # a start that fails after the order to stop is not tried again
            spawner.say("signal", int(signal.SIGTERM))
        spawner.say("failed", ids[-1], "[Errno 11] no process is left")
    assert await spawner.code() == 0
    assert len(set(ids)) == 3
    first, more = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "worker a could not be started" in first
    assert "[Errno 11] no process is left" in first
    assert "raise the limit (ulimit -u)" in first
    assert more.startswith("workers could not be started ")
    await scheduler.stop()


async def test_a_worker_is_replaced_on_request_and_no_attempt_is_named(tmp_path):
    connections = []

    def greet_and_keep(connection):
        connections.append(connection)
        greet(connection)

    scheduler = SchedulerOfSupervisors("asks", greet_and_keep)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path)).open()
    _, first = await spawner.asked()
    spawner.say("started", first["worker_id"], 1234567)
    await scheduler.until(lambda: scheduler.of(RegisterSupervisor))
    order = EndWorkers(worker_ids=[first["worker_id"], "of nobody"], reason="a task")
    connections[-1].send([order, order])
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGKILL)]
    spawner.say("exited", 1234567, int(signal.SIGKILL))
    verb, second = await spawner.asked()
    assert verb == "start"
    assert second["worker_id"] != first["worker_id"]
    await scheduler.until(lambda: scheduler.of(WorkerExited))
    (report,) = scheduler.of(WorkerExited)
    assert (report.reason, report.running) == ("a task", [])
    spawner.say("started", second["worker_id"], 1234568)
    spawner.say("signal", int(signal.SIGTERM))
    assert await spawner.asked() == ["kill", 1234568, int(signal.SIGTERM)]
    spawner.say("exited", 1234568, 0)
    assert await spawner.code() == 0
    await scheduler.stop()


async def test_a_worker_that_left_after_a_signal_counts_as_no_death(tmp_path, caplog):
    """A worker of a program is started again: the signal came from a task, perhaps."""
    scheduler = SchedulerOfSupervisors("drained", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path, embedded=True)).open()
    for pid, notes in ((1234567, (SIGNALLED,)), (1234568, ())):
        _, told = await spawner.asked()
        spawner.say("started", told["worker_id"], pid)
        path = Path(told["started_path"])
        record = StartedRecord(path, 1)
        record.note_joined()
        record.note_left()
        for kind in notes:
            note(path, kind, "SIGTERM")
        record.close()
        spawner.say("exited", pid, 0 if notes else 3 << 8)
    await spawner.asked()
    await scheduler.until(lambda: len(scheduler.of(WorkerExited)) == 2)
    assert [report.kind for report in scheduler.of(WorkerExited)] == [REQUESTED, "exit"]

    def died():
        numbers = scheduler.of(WorkersAlive)[-1].numbers
        return values_of(OF_SUPERVISORS, numbers)["weft_supervisor_workers_died_total"]

    await scheduler.until(lambda: died()["exit"] == 1)
    assert sum(died().values()) == 1
    spawner.say("signal", int(signal.SIGTERM))
    spawner.say("failed", told["worker_id"], "the test ends")
    await spawner.close()
    await asyncio.wait_for(spawner.run, 20)
    await scheduler.stop()


@pytest.mark.parametrize("embedded", [True, False])
async def test_a_supervisor_that_lost_only_its_connection_comes_back(tmp_path, embedded):
    def greet_or_go(connection):
        (greet_and_abort if len(scheduler.of(RegisterSupervisor)) < 3 else greet)(connection)

    scheduler = SchedulerOfSupervisors("there", greet_or_go)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path, embedded=embedded)).open()
    await scheduler.until(lambda: len(scheduler.of(RegisterSupervisor)) == 3)
    spawner.say("signal", int(signal.SIGTERM))
    _, told = await spawner.asked()
    spawner.say("started", told["worker_id"], 1234567)
    assert await spawner.asked() == ["kill", 1234567, int(signal.SIGTERM)]
    spawner.say("exited", 1234567, 0)
    assert await spawner.code() == 0
    await scheduler.stop()


@pytest.mark.slow
async def test_a_suspended_worker_is_not_reported_alive(tmp_path, wait_until):
    scheduler = SchedulerOfSupervisors("judge", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path)).open()
    _, told = await spawner.asked()
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        spawner.say("started", told["worker_id"], worker.pid)
        await scheduler.until(
            lambda: scheduler.of(WorkersAlive)[-1:] and scheduler.of(WorkersAlive)[-1].rss
        )
        worker.send_signal(signal.SIGSTOP)
        await scheduler.until(lambda: not scheduler.of(WorkersAlive)[-1].rss)
        worker.send_signal(signal.SIGCONT)
        await scheduler.until(
            lambda: scheduler.of(WorkersAlive)[-1].worker_ids == [told["worker_id"]]
        )
    finally:
        worker.kill()
        worker.wait()
    spawner.writer.write_eof()
    assert await spawner.code() == 1
    await scheduler.stop()


async def test_a_bug_in_a_background_task_ends_the_supervisor(tmp_path, caplog):
    spawner = await Spawner(config_for([f"unix://{tmp_path}/none"], tmp_path, embedded=True)).open()
    await spawner.asked()
    spawner.say("exited", 1234567, 0)  # no worker was reported as started
    spawner.writer.write_eof()
    assert await spawner.code() == 1
    assert "a bug of weft ends the supervisor" in caplog.text


# --- Real families --------------------------------------------------------------------------------


@pytest.fixture
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50) as cluster:
        cluster.wait_for_workers(timeout=30)
        yield cluster


@pytest.fixture
def client(cluster):
    with cluster.get_client() as client:
        yield client


def processes_of(cluster):
    """Return the spawner, the supervisor and the workers of a cluster that are alive."""
    spawner = psutil.Process(cluster._workers.process.pid)
    alive = [child for child in spawner.children() if not gone([child])]  # reaped or not
    supervisor, *workers = sorted(alive, key=lambda child: child.create_time())
    return spawner, supervisor, workers


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_the_map_completes(cluster, client, wait_until):
    _, _, workers = processes_of(cluster)
    gate = cluster._directory + "/gate"
    open(gate, "w").close()

    def work(i):
        import os

        while i == 50 and os.path.exists(gate):
            os.sched_yield()
        return i, os.getpid()

    futures = client.map(work, range(400))
    weft.wait([futures[0]], timeout=30)
    workers[0].kill()
    os.unlink(gate)
    results = client.gather(futures, timeout=60)
    assert [i for i, _ in results] == list(range(400))
    client.wait_for_workers(2, timeout=30)
    wait_until(lambda: gone(workers[:1]) and len(processes_of(cluster)[2]) == 2)
    wait_until(lambda: workers[0] not in processes_of(cluster)[2])
    assert workers[1] in processes_of(cluster)[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poison", "words"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os._exit(0), "exit code 0"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "killed by SIGKILL, by another process",
        ),
        (lambda: os.abort(), "killed by SIGABRT"),
    ],
)
def test_a_task_that_kills_its_workers_is_given_up_with_the_reason(client, poison, words):
    innocent = client.map(abs, range(100))
    future = client.submit(poison)
    with pytest.raises(weft.WorkerDied) as caught:
        future.result(timeout=60)
    assert words in str(caught.value)
    assert caught.value.attempts == 4
    assert client.gather(innocent, timeout=60) == list(range(100))
    assert client.submit(abs, -1).result(timeout=60) == 1


def crash_in_c():
    import ctypes

    ctypes.string_at(0)


@pytest.mark.slow
def test_a_crash_in_c_is_reported_with_the_line_that_called_it(client):
    with pytest.raises(weft.WorkerDied) as caught:
        client.submit(crash_in_c).result(timeout=60)
    assert "killed by SIGSEGV in string_at (__init__.py:" in str(caught.value)
    line = crash_in_c.__code__.co_firstlineno + 3
    assert f", from crash_in_c (test_supervisor.py:{line})" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_a_task_sends_a_signal_is_replaced(number, wait_until):
    with LocalCluster(n_workers=1, silence_logs=50) as cluster, cluster.get_client() as client:
        for _ in range(2):
            (worker,) = client.nthreads()
            client.submit(lambda: os.kill(os.getpid(), number), pure=False).exception(timeout=60)
            wait_until(lambda gone=worker: gone not in client.nthreads())
            assert client.submit(abs, -1, pure=False).result(timeout=60) == 1


@pytest.mark.slow
def test_a_worker_above_its_memory_limit_is_killed_and_reported():
    def gorge():
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20) * 4))

    with (
        LocalCluster(n_workers=1, memory_limit="200MiB", silence_logs=50) as cluster,
        cluster.get_client() as client,
    ):
        with pytest.raises(weft.WorkerDied) as caught:
            client.submit(gorge).result(timeout=120)
        assert "memory limit: " in str(caught.value)
        assert "of 200.00 MiB, more than 95 %" in str(caught.value)
        assert client.submit(abs, -1).result(timeout=60) == 1


@pytest.mark.slow
def test_a_worker_that_sleeps_in_c_and_one_that_burns_are_not_taken_for_dead(cluster, client):
    # Both hold the interpreter lock or the thread for longer than a heartbeat.
    burning = client.submit(sum, range(10**7))
    assert burning.result(timeout=60) == sum(range(10**7))
    assert cluster.scheduler_info["n_workers"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["spawner", "supervisor"])
@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_no_process_outlives_the_family(victim, is_busy, wait_until):
    with LocalCluster(n_workers=2, silence_logs=50) as cluster:
        cluster.wait_for_workers(timeout=30)
        spawner, supervisor, workers = processes_of(cluster)
        assert len(workers) == 2
        with cluster.get_client() as client:
            if is_busy:
                # Each holds the interpreter lock in one long call into C, and handles no signal.
                busy = client.map(pow, [3, 5], [10**8, 10**8], pure=False)
                wait_until(lambda: any(w.cpu_percent() > 10 for w in workers), 30)
            (spawner, supervisor)[victim].kill()
            wait_until(lambda: gone([spawner, supervisor, *workers]), 30)
            if is_busy:
                client.cancel(busy)


@pytest.mark.slow
def test_without_the_kernel_s_help_workers_notice_the_end_of_a_pipe(tmp_path, wait_until):
    import subprocess

    from tests.deploy.daemons import ROOT

    code = """
import os, signal, sys
from weft.worker.family import spawn
spawn._ask_kernel_to_kill_with_parent = lambda: False
def supervise(commands):
    commands.sendall(b'["start", {"worker_id": "w"}]\\n')
    while commands.recv(4096):
        pass
    return 0
def work(plain):
    print(os.getpid(), flush=True)
    while True:
        signal.pause()
sys.exit(spawn.run(supervise, work))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        worker = psutil.Process(int(process.stdout.readline()))
        family = psutil.Process(process.pid).children()
        assert worker in family
        process.kill()
        wait_until(lambda: gone(family), 30)


def test_thread_pools_are_limited_by_the_usual_names():
    assert "OMP_NUM_THREADS" in spawn.THREAD_DEFAULTS
    assert set(spawn.THREAD_DEFAULTS.values()) == {"1"}
