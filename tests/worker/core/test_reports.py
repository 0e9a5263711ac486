"""reports.py: which reports wait for the next ones, and that none waits for long."""

from __future__ import annotations

from tests.worker.builders import INC, SLOW, Hands, assign
from weft.protocol.wire.messages import AssignTasks, AttemptsFinished, ReplicasAdded
from weft.worker.core.events import Leave, SchedulerLost, SessionOpened
from weft.worker.core.reports import LONGEST_S, SHORTEST_S, WORTH, Reporting

#: The length of a chunk: the next one is needed after one such task.
LENGTH_US = 900


def busy(n_threads: int = 1, function: bytes = INC) -> Hands:
    """Return a worker whose slots have begun with tasks of 900 us, and have more of them."""
    worker = Hands(n_threads)
    worker.receive(*_lines(100, n_threads, function))
    for slot in range(n_threads):
        worker.start(slot)
        worker.report(slot, duration_us=LENGTH_US)
    worker.receive(*_lines(1, 8, function))
    for slot in range(n_threads):
        worker.start(slot)
    return worker


def _lines(first: int, n: int, function: bytes) -> list[AssignTasks]:
    lines = [f"{attempt} key-{attempt}" for attempt in range(first, first + n)]
    return [assign(*lines, function=function)]


def waits(worker: Hands) -> bool:
    """Return whether what the last event left in the out-box may wait."""
    return worker.state.reporting.until > worker.state.now


def test_the_report_of_a_slot_that_goes_on_waits():
    worker = busy()
    assert worker.report(duration_us=LENGTH_US)
    assert waits(worker)


def test_the_report_of_a_slot_that_rests_does_not_wait():
    worker = busy()
    for _ in range(8):
        sent = worker.report(duration_us=LENGTH_US)
        worker.start()
    assert not worker.awake
    assert sent
    assert not waits(worker)


def test_reports_wait_no_longer_than_their_time():
    worker = busy()
    worker.report(duration_us=LENGTH_US)
    until = worker.state.reporting.until
    assert worker.now + SHORTEST_S <= until <= worker.now + LONGEST_S
    worker.state.to_scheduler.append(worker.messages.pop())  # it was not sent
    worker.start()
    worker.now = until
    worker.report(duration_us=LENGTH_US)
    assert not waits(worker)


def test_later_reports_do_not_extend_the_time():
    worker = busy()
    worker.report(duration_us=LENGTH_US)
    until = worker.state.reporting.until
    worker.state.to_scheduler.append(worker.messages.pop())
    worker.start()
    worker.now = until / 2
    worker.report(duration_us=LENGTH_US)
    assert worker.state.reporting.until == until


def test_a_report_before_a_task_of_unknown_duration_does_not_wait():
    worker = busy()
    worker.receive(assign("50 unknown", priority=0, function=SLOW))
    worker.report(duration_us=LENGTH_US)
    assert worker.start().key == "unknown"
    assert not waits(worker)


def test_a_report_before_a_long_task_does_not_wait():
    worker = busy()
    worker.report(duration_us=int(LONGEST_S * 1e6) * 20)
    assert not waits(worker)


def test_a_report_before_the_tasks_of_another_client_does_not_wait():
    worker = busy()
    other = assign("50 other", "51 another")
    other.function_clients = [7]
    worker.receive(other)
    worker.report(duration_us=LENGTH_US)
    assert worker.start().client == 7
    assert not waits(worker)
    worker.report(duration_us=LENGTH_US)
    assert worker.start().client == 0
    assert not waits(worker)


def test_a_report_of_many_tasks_waits_no_longer_than_others():
    n = 100
    worker = busy()
    worker.receive(*_lines(200, n, INC))
    worker.report(duration_us=1)
    until = worker.state.reporting.until
    for _ in range(n - 2):
        worker.state.to_scheduler.append(worker.messages.pop())
        worker.start()
        worker.report(duration_us=1)
        assert waits(worker)
    assert worker.state.reporting.until == until
    assert len(worker.messages[-1].attempts) == n - 1


def test_a_failure_does_not_wait():
    worker = busy()
    worker.report(failed=["key-1"], duration_us=LENGTH_US)
    assert not waits(worker)


def test_a_copy_is_reported_with_the_tasks_of_a_busy_slot():
    worker = busy()
    worker.receive(assign("50 reader <- copy", located=[("copy", 60, 10, ["tcp://a"])]))
    assert [type(message) for message in worker.answer("tcp://a")] == [ReplicasAdded]
    assert waits(worker)


def test_a_copy_is_reported_at_once_while_all_slots_rest(worker):
    rows = [("one", 60, 10, ["tcp://a"]), ("two", 61, 10, ["tcp://b"])]
    worker.receive(assign("50 reader <- one two", located=rows))
    worker.answer("tcp://a")
    assert not waits(worker)


def test_nothing_waits_while_the_worker_leaves_or_begins_a_session():
    worker = busy()
    worker.report(duration_us=LENGTH_US)
    worker.handle(Leave("test"))
    assert not waits(worker)
    worker = busy()
    worker.report(duration_us=LENGTH_US)
    worker.state.to_scheduler.append(worker.messages.pop())
    worker.handle(SchedulerLost())
    assert worker.handle(SessionOpened(is_first=False))
    assert not waits(worker)


def test_an_event_that_reports_nothing_leaves_what_waits_waiting():
    worker = busy()
    worker.report(duration_us=LENGTH_US)
    until = worker.state.reporting.until
    worker.state.to_scheduler.append(worker.messages.pop())
    worker.receive(assign("50 later"))
    assert worker.state.reporting.until == until


def test_the_time_is_a_multiple_of_the_measured_cost():
    reporting = Reporting()
    assert reporting.patience_s == LONGEST_S
    for _ in range(100):
        reporting.note_cost(SHORTEST_S / WORTH * 2)
    assert abs(reporting.patience_s - SHORTEST_S * 2) < 1e-6
    for _ in range(100):
        reporting.note_cost(0.0)
    assert reporting.patience_s == SHORTEST_S


def test_reports_of_one_stretch_are_one_message():
    worker = busy()
    first = worker.report(duration_us=LENGTH_US)
    worker.state.to_scheduler.extend(first)
    worker.start()
    (message,) = worker.report(duration_us=LENGTH_US)
    assert isinstance(message, AttemptsFinished)
    assert message.attempts == [1, 2]
