"""Workers that do nothing at all: the decision, and a real process that is asked for its stacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.daemons import ROOT
from tests.worker.family.test_supervisor import Spawner, config_for
from tests.worker.family.test_supervisor_link import SchedulerOfSupervisors, greet
from weft.worker.slots.silence import SilenceWatch
from weft.worker.slots.started import (
    StartedRecord,
    read_beats,
    read_joined,
    read_left,
    read_served,
    read_started,
)


def test_a_loop_that_beats_is_not_reported():
    watch = SilenceWatch(10)
    assert not any(watch.look(n, 0.0, 3.0) for n in range(1, 20))


def test_silence_without_work_is_reported_once_and_again_after_a_beat():
    watch = SilenceWatch(10)
    assert [watch.look(1, 0.5, 3.0) for _ in range(8)] == [False] * 4 + [True] + [False] * 3
    assert watch.silent_s >= 10
    assert [watch.look(2, 0.5, 3.0) for _ in range(6)] == [False] * 4 + [True, False]


def test_a_task_that_computes_with_the_interpreter_lock_is_not_reported():
    watch = SilenceWatch(10)
    assert not any(watch.look(1, cpu, 1.0) for cpu in range(100))
    # It sleeps now; threads that wait for the lock take a little.
    assert [watch.look(1, 99 + n * 0.05, 1.0) for n in range(1, 11)] == [False] * 9 + [True]


def test_a_worker_that_has_not_begun_is_not_judged():
    watch = SilenceWatch(10)
    assert not any(watch.look(0, 0.0, 3.0) for _ in range(20))


def test_beats_and_a_registration_are_kept_apart_from_attempts(tmp_path: Path):
    path = tmp_path / "w.started"
    record = StartedRecord(path, 2)
    assert read_beats(path) == read_beats(tmp_path / "none") == 0
    record.beat()
    record.beat()
    record.note(1, 5)
    record.note_serving(0, 6)
    assert not read_joined(path)
    assert not read_joined(tmp_path / "none")
    record.note_joined()
    assert read_joined(path)
    assert not read_left(path)
    record.note_left()
    record.close()
    assert read_joined(path)
    assert read_left(path)
    assert (read_beats(path), read_started(path), read_served(path)) == (2, [5], [6])


STUCK = """
import ctypes, sys, threading
from pathlib import Path
from weft.worker.family.process import _stacks
from weft.worker.slots.started import StartedRecord

def sleep_with_the_lock():
    ctypes.PyDLL(None).pause()

path = Path(sys.argv[1])
record = StartedRecord(path, 1)
with _stacks(path):
    record.beat()
    thread = threading.Thread(target=sleep_with_the_lock)
    thread.start()
    thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs pause() of the C library")
async def test_a_worker_that_is_stuck_is_reported_with_its_stacks_and_left_alone(tmp_path, caplog):
    def is_reported():
        return "has not answered" in caplog.text

    scheduler = SchedulerOfSupervisors("there", greet)
    await scheduler.start()
    spawner = await Spawner(config_for([scheduler.address], tmp_path, silent_after_s=0.5)).open()
    _, told = await spawner.asked()
    worker = subprocess.Popen(
        [sys.executable, "-c", STUCK, told["started_path"]],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        spawner.say("started", told["worker_id"], worker.pid)
        verb, pid, number = await spawner.asked()
        assert (verb, pid, number) == ("kill", worker.pid, int(signal.SIGUSR2))
        worker.send_signal(number)
        await scheduler.until(is_reported)
        assert f"worker a (process {worker.pid}) has not answered" in caplog.text
        assert "in sleep_with_the_lock" in caplog.text
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()
    spawner.writer.write_eof()
    assert await spawner.code() == 1
    await scheduler.stop()
