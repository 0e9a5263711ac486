"""The time of a worker's threads, by activity, and the numbers that a worker reports."""

from __future__ import annotations

import pytest

from weft.protocol.reported import ACTIVITIES, OF_WORKERS, values_of
from weft.protocol.values.serialize import dumps_arguments
from weft.protocol.wire.messages import WANTED
from weft.worker.slots.activity import SAMPLE_NS, SlotClock, Transfers, WorkerMeter

MS = 1_000_000


class Time:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def after(self, ns):
        self.now += ns
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def clock(time):
    return SlotClock(time)


def shown(clock, time):
    return {
        activity: ns for activity, ns in zip(ACTIVITIES, clock.read(time.now), strict=True) if ns
    }


def test_all_time_is_in_one_of_the_activities(clock, time):
    clock.begin(time.after(10 * MS), fetched_us=4_000)
    clock.load(time.after(3 * MS))
    clock.run(time.after(20 * MS), 2, 1, 20 * MS)
    clock.report(time.after(1 * MS))
    clock.run(time.after(5 * MS), 1, 0, 5 * MS)
    clock.rest(time.after(2 * MS))
    time.after(7 * MS)
    assert shown(clock, time) == {
        "idle": 6 * MS + 7 * MS,
        "fetch_wait": 4 * MS,
        "deserialize": 3 * MS,
        "compute": 25 * MS,
        "other": 3 * MS,
    }
    assert sum(clock.read(time.now)) == time.now
    assert (clock.n_finished, clock.n_failed) == (3, 1)


def test_a_task_that_still_runs_counts_as_compute(clock, time):
    clock.begin(time.after(MS), 0)
    time.after(60_000 * MS)
    assert shown(clock, time) == {"idle": MS, "compute": 60_000 * MS}


def test_the_wait_for_inputs_is_no_longer_than_the_rest(clock, time):
    clock.begin(time.after(2 * MS), fetched_us=60_000_000)
    assert shown(clock, time) == {"fetch_wait": 2 * MS}


def test_a_measured_task_shows_its_pickling(clock, time):
    clock.begin(time.now, 0)
    clock.next_sample = -1
    clock.unpacking, clock.packing = 2 * MS, 1 * MS
    clock.run(time.after(10 * MS), 1, 0, 10 * MS)
    assert shown(clock, time) == {
        "deserialize": 2 * MS, "serialize": MS, "compute": 7 * MS
    }  # fmt: skip
    assert clock.next_sample == time.now + SAMPLE_NS


def test_tasks_that_are_not_measured_have_the_proportions_of_the_last_one(clock, time):
    clock.begin(time.now, 0)
    clock.next_sample = -1
    clock.unpacking = MS // 100
    clock.run(time.after(MS), 10, 0, MS // 10)
    clock.run(time.after(MS), 10, 0, MS // 10)
    assert shown(clock, time) == {"deserialize": 2 * MS // 10, "compute": 2 * MS - 2 * MS // 10}


def test_a_measured_time_is_never_more_than_that_of_the_task(clock, time):
    clock.begin(time.now, 0)
    clock.next_sample = -1
    clock.unpacking = clock.packing = 5 * MS
    clock.run(time.after(6 * MS), 1, 0, 4 * MS)
    assert sum(clock.read(time.now)) == time.now
    assert min(clock.read(time.now)) >= 0


def test_unpickling_is_measured_also_if_it_fails(clock, time):
    def load(attempt):
        time.after(3 * MS)
        raise ValueError(attempt)

    with pytest.raises(ValueError, match="7"):
        clock.unpack_inputs(
            dumps_arguments("f", (), {})[0], load, [type("R", (), {"attempt": 7})()]
        )
    assert clock.unpacking == 3 * MS
    clock.unpack(dumps_arguments("f", (1,), {})[0])
    assert clock.pack(1, "key", WANTED)[1] > 0


def numbers(meter):
    found = meter.numbers((1, 2, 3, 4), 5, 100, 250, 1000)
    return values_of(OF_WORKERS, found)


def test_a_worker_reports_what_is_declared():
    transfers = Transfers()
    transfers.nbytes[0] = 77
    transfers.seconds.add(1000)
    meter = WorkerMeter([SlotClock(), SlotClock()], transfers)
    meter.note_lag(0.5)
    found = numbers(meter)
    assert found["weft_worker_tasks"] == {"executing": 1, "ready": 2, "waiting": 3, "fetching": 4}
    assert found["weft_worker_results"] == 5
    assert found["weft_worker_threads"] == 2
    assert found["weft_worker_transfer_bytes_total"] == {"in": 77, "out": 0}
    assert found["weft_worker_transfer_seconds"]["sum"] == 0.001
    assert found["weft_worker_event_loop_lag_seconds"]["sum"] == 0.5
    assert found["weft_worker_memory_limit_bytes"] == 1000


@pytest.mark.parametrize("is_own", [False, True])
def test_of_a_process_that_others_share_only_the_values_are_counted(monkeypatch, is_own):
    monkeypatch.setattr("weft.worker.slots.activity.is_worker_process", lambda: is_own)
    found = numbers(WorkerMeter([SlotClock()], Transfers()))
    memory = {"managed": 100, "unmanaged": 150 if is_own else 0}
    assert found["weft_worker_memory_bytes"] == memory
    assert (found["weft_worker_cpu_seconds_total"] > 0) == is_own


def test_no_activity_goes_back_and_their_sum_is_the_time():
    meter = WorkerMeter([SlotClock()], Transfers())
    last = [0] * len(ACTIVITIES)
    for state in (
        {"idle": 10},  # it waits for inputs, which is known when the wait ends
        {"idle": 2, "fetch_wait": 10},
        {"idle": 2, "fetch_wait": 10, "compute": 20},
        {"idle": 12, "fetch_wait": 10, "compute": 20},
    ):
        found = meter.smooth([state.get(activity, 0) * 1000 for activity in ACTIVITIES])
        assert all(after >= before for before, after in zip(last, found, strict=True))
        assert sum(found) == pytest.approx(sum(state.values()) * 1000, abs=len(ACTIVITIES))
        last = found
