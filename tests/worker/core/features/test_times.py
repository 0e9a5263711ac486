"""times.py: when attempts ended and on which thread, reported before their ends if it is wanted."""

from __future__ import annotations

from tests.worker.builders import Hands, assign, locate  # noqa: F401
from weft.protocol.wire.messages import (
    AttemptsErred,
    AttemptsFinished,
    AttemptsRunning,
    AttemptTimes,
    DiskTimes,
    RecordTimes,
)
from weft.worker.core.events import ChunkDone, SchedulerLost, SessionOpened
from weft.worker.core.features.times import LEAST_AGE_US, disk_report, running_report
from weft.worker.core.reports import LONGEST_S


def recording(n_threads: int = 1) -> Hands:
    worker = Hands(n_threads)
    worker.now = 50.0
    assert worker.receive(RecordTimes(on=True)) == []
    return worker


def test_nothing_is_reported_unless_it_is_wanted(worker):
    worker.receive(assign("1 a", "2 b", "3 c"))
    worker.start()
    assert [type(message) for message in worker.report()] == [AttemptsFinished]
    worker.receive(RecordTimes(on=True))
    worker.start()
    assert [type(message) for message in worker.report()] == [AttemptTimes, AttemptsFinished]
    worker.receive(RecordTimes(on=False))
    worker.start()
    assert [type(message) for message in worker.report()] == [AttemptsFinished]


def test_the_ends_of_a_chunk_are_counted_back_from_its_report():
    worker = recording()
    worker.receive(assign("1 first"))
    worker.run_all()  # its function's duration is known now: what follows comes in chunks
    worker.receive(assign("2 a", "3 b", "4 c"))
    worker.now = 60.0
    for _ in range(3):
        worker.start()
    times, _ = worker.report(duration_us=10)
    assert isinstance(times, AttemptTimes)
    assert times.attempts == [2, 3, 4]
    assert times.ended_us == [59_999_980, 59_999_990, 60_000_000]
    assert times.durations_us == [10, 10, 10]
    assert times.nbytes == [100, 100, 100]
    assert times.threads == [0, 0, 0]
    assert times.failed == times.waited_us == times.fetched_us == []


def test_failed_attempts_have_the_name_of_their_exception():
    worker = recording()
    worker.receive(assign("1 a"))
    worker.start()
    times, erred = worker.report(failed=["a"])
    assert isinstance(times, AttemptTimes)
    assert isinstance(erred, AttemptsErred)
    assert (times.attempts, times.failed, times.types) == ([1], [1], ["ValueError"])


def test_attempts_that_raised_follow_the_others_of_their_report():
    worker = recording()
    worker.receive(assign("1 first"))
    worker.run_all()
    worker.receive(assign("2 a", "3 b", "4 c"))
    worker.now = 60.0
    for _ in range(3):
        worker.start()
    times, finished, erred = worker.report(failed=["b"], duration_us=10)
    assert isinstance(times, AttemptTimes)
    assert (finished.attempts, erred.attempts) == ([2, 4], [3])
    assert (times.attempts, times.failed) == ([2, 4, 3], [0, 0, 1])
    assert times.ended_us == [59_999_980, 59_999_990, 60_000_000]


def test_waits_lie_between_start_and_end_and_are_no_part_of_the_duration():
    worker = recording()
    worker.receive(assign("1 a"))
    task = worker.start()
    assert task is not None
    worker.block(0)
    worker.resume(0)
    worker.now = 70.0
    worker.store.add(1)
    worker.started[0].clear()
    worker.awake.discard(0)
    event = ChunkDone(0, [1], [100], [2000], [None], types=["int"], waited_us={1: 5_000_000})
    times, finished = worker.handle(event)
    assert isinstance(times, AttemptTimes)
    assert finished.attempts == [1]
    assert (times.ended_us, times.durations_us, times.waited_us) == (
        [70_000_000],
        [2000],
        [5_000_000],
    )
    assert times.types == ["int"]


def test_fetched_inputs_have_the_times_of_arrival_and_of_the_last_input():
    worker = recording()
    worker.receive(assign("2 b <- a", located=[("a", 1, 100, ["tcp://other"])]))
    worker.now = 51.5
    worker.answer("tcp://other")
    worker.now = 52.0
    worker.start()
    times, finished = worker.report()
    assert isinstance(times, AttemptTimes)
    assert finished.attempts == [2]
    assert (times.arrived_us, times.fetched_us) == ([50_000_000], [51_500_000])


def test_reports_that_wait_grow_together_with_their_times():
    worker = recording(2)
    worker.receive(assign(*(f"{i} k{i}" for i in range(1, 9))))
    for slot in (0, 1):
        worker.start(slot)
    worker.report(0, duration_us=900)
    state = worker.state
    state.to_scheduler[:] = worker.messages[-2:]  # they were not sent yet
    worker.now += 0.0001
    times, finished = worker.report(1, duration_us=900)
    assert isinstance(times, AttemptTimes)
    assert isinstance(finished, AttemptsFinished)
    assert times.attempts == finished.attempts
    assert sorted(times.attempts) == [1, 2]
    assert times.threads == [0, 1]
    assert state.reporting.until <= worker.now + LONGEST_S


def test_rows_that_grow_fill_columns_that_were_empty():
    worker = recording(2)
    worker.receive(assign(*(f"{i} k{i}" for i in range(1, 5))))
    for slot in (0, 1):
        worker.start(slot)
    worker.report(0, duration_us=900)
    worker.state.to_scheduler[:] = worker.messages[-2:]
    failing = worker.started[1][0].key
    sent = worker.report(1, failed=[failing], duration_us=900)
    times = sent[0]
    assert isinstance(times, AttemptTimes)
    assert times.failed == [0, 1]
    assert len(times.attempts) == 2
    assert [type(message) for message in sent] == [AttemptTimes, AttemptsFinished, AttemptsErred]


def test_a_new_session_begins_without_times():
    worker = recording()
    worker.handle(SchedulerLost())
    worker.handle(SessionOpened(is_first=False))
    worker.receive(assign("1 a"))
    worker.start()
    assert AttemptTimes not in map(type, worker.report())


def test_attempts_that_run_for_some_time_are_listed_while_that_is_wanted(worker):
    running = [(1, 0, LEAST_AGE_US), (2, 1, LEAST_AGE_US - 1), (3, 2, 9_000_000)]
    worker.receive(RecordTimes(on=True))  # of an earlier scheduler, which does not know the list
    assert running_report(worker.state, running) is None
    worker.receive(RecordTimes(on=True, running=True))
    assert running_report(worker.state, running) == AttemptsRunning(
        attempts=[1, 3], threads=[0, 2], ages_us=[LEAST_AGE_US, 9_000_000]
    )
    assert running_report(worker.state, running[1:2]) is None
    worker.receive(RecordTimes(on=False))
    assert running_report(worker.state, running) is None


def test_values_that_went_to_disk_and_came_back_are_reported_while_that_is_wanted():
    worker = Hands()
    times = [(1.0, 1.5, 10, False), (4.0, 4.25, 20, True)]
    assert disk_report(worker.state, times, 5.0) is None
    worker.receive(RecordTimes(on=True, running=True))
    assert disk_report(worker.state, times, 5.0) == DiskTimes(
        ages_us=[4_000_000, 1_000_000],
        durations_us=[500_000, 250_000],
        nbytes=[10, 20],
        reads=[0, 1],
    )
    assert disk_report(worker.state, [], 5.0) is None
