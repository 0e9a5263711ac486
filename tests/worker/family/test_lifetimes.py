"""lifetimes.py: how long workers live, and what they are sent of it."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.worker.family.test_supervisor import Spawner, config_for
from tests.worker.family.test_supervisor_link import SchedulerOfSupervisors, greet
from weft.protocol.reported import TIME_LEFT
from weft.protocol.trust.security import Security
from weft.worker.config import WorkerConfig
from weft.worker.family.lifetimes import Lifetime, Lifetimes


def lifetimes(lifetime: Lifetime | None) -> Lifetimes:
    return Lifetimes(lifetime, 1.0, lambda worker_id, number: None)


def test_lifetimes_of_workers_differ_by_the_stagger_and_stay_the_same():
    some = lifetimes(Lifetime(100.0, stagger_s=10.0))
    seconds = [some.seconds_of(f"worker-{i}") for i in range(50)]
    assert seconds == [some.seconds_of(f"worker-{i}") for i in range(50)]
    assert all(one is not None and 90.0 <= one <= 110.0 for one in seconds)
    assert len({*seconds}) == 50
    assert lifetimes(None).seconds_of("worker-1") is None


def facts_of(tasks_end_at: float | None) -> dict[str, Any]:
    security = Security(b"token" * 8)
    config = WorkerConfig(scheduler="tcp://h:1", security=security, tasks_end_at=tasks_end_at)
    return config.facts()


def test_a_worker_reports_how_much_time_it_has_left():
    assert facts_of(time.monotonic() + 100.0)[TIME_LEFT] == pytest.approx(100.0, abs=10.0)
    assert facts_of(time.monotonic() - 1.0)[TIME_LEFT] == 0.0
    assert TIME_LEFT not in facts_of(None)


@pytest.mark.parametrize("lives", [True, False])
async def test_a_worker_is_sent_when_its_tasks_have_to_have_ended(lives, tmp_path):
    scheduler = SchedulerOfSupervisors("patient", greet)
    await scheduler.start()
    options: dict[str, Any] = {"lifetime": Lifetime(1000.0) if lives else None}
    options["grace_period_s"] = 100.0
    spawner = await Spawner(config_for([scheduler.address], tmp_path, **options)).open()
    _, told = await spawner.asked()
    if lives:
        assert told["tasks_end_at"] - time.monotonic() == pytest.approx(1100.0, abs=60.0)
    else:
        assert "tasks_end_at" not in told
    spawner.say("started", told["worker_id"], 1234567)
    spawner.say("signal", int(signal.SIGTERM))
    assert (await spawner.asked())[0] == "kill"
    spawner.say("exited", 1234567, 0, 5 << 20)
    await spawner.code()
    await scheduler.stop()
