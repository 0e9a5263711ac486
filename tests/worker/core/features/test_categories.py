"""Attempts of categories: what they use, and which of them are reported, and when."""

from __future__ import annotations

from tests.worker.builders import Hands, assign, drop
from weft.protocol.wire.messages import (
    ALONE,
    OWN_PROCESS,
    SHARED,
    AttemptsExceeded,
    AttemptsFinished,
    AttemptsMeasured,
)
from weft.worker.core.events import SchedulerLost, SessionOpened
from weft.worker.core.features.categories import (
    REPORT_AGAIN_S,
    AttemptUsed,
    MeasuredAttempts,
    MemorySeen,
)
from weft.worker.core.tasks import usage_of

MB = 1 << 20


def of_category(*lines, mb=100):
    message = assign(*lines)
    message.allotted_nbytes = [mb * MB] * len(lines)
    return message


def see(worker, mb, *attempts):
    """Let the shell see what the process takes; return what is reported as too much."""
    return worker.handle(MemorySeen(mb * MB, attempts)).of(AttemptsExceeded)


def too_much(attempt, mb):
    return [AttemptsExceeded(attempts=[attempt], used_nbytes=[mb * MB])]


def started(*lines, mb=100):
    worker = Hands()
    worker.receive(of_category(*lines, mb=mb))
    see(worker, 50)
    worker.start()
    return worker


def measured(worker, attempt):
    return worker.state.record(MeasuredAttempts)[attempt]


def test_growth_of_the_process_is_that_of_the_only_attempt():
    worker = started("1 a")
    assert worker.n_memory_looks == 1
    assert see(worker, 150, 1) == []
    assert see(worker, 70, 1) == []
    assert (measured(worker, 1).peak_nbytes, measured(worker, 1).kind) == (100 * MB, ALONE)
    # The least is less than it was when this began.
    assert see(worker, 40, 1) == []
    assert see(worker, 141, 1) == too_much(1, 101)


def test_an_attempt_that_uses_too_much_is_reported_again_and_in_the_next_session():
    worker = started("1 a")
    assert see(worker, 200, 1) == too_much(1, 150)
    assert see(worker, 300, 1) == []
    worker.now += REPORT_AGAIN_S
    assert see(worker, 100, 1) == too_much(1, 250)
    worker.handle(SchedulerLost())
    worker.handle(SessionOpened(7))
    assert see(worker, 100, 1) == too_much(1, 250)


def test_attempts_that_run_together_are_not_told_apart():
    worker = started("1 a")
    assert see(worker, 120, 1, 2) == []
    assert see(worker, 500, 1) == []
    assert (measured(worker, 1).peak_nbytes, measured(worker, 1).kind) == (0, SHARED)


def test_a_process_of_its_own_counts_whatever_else_runs():
    worker = started("1 a")
    usage = worker.state.by_attempt[1].usage
    usage.kind, usage.peak_nbytes = OWN_PROCESS, 99 * MB
    assert see(worker, 5000, 1, 2) == []
    usage.peak_nbytes = 101 * MB
    assert see(worker, 5000, 1, 2) == too_much(1, 101)


def test_measured_use_is_reported_before_the_result():
    worker = started("1 a")
    see(worker, 80, 1)
    usage = measured(worker, 1)
    usage.cpu_us, usage.read_nbytes, usage.written_nbytes = 5, 6, 7
    out = worker.report()
    kinds = [
        type(message) for message in out if type(message) in (AttemptsMeasured, AttemptsFinished)
    ]
    assert kinds == [AttemptsMeasured, AttemptsFinished]
    (report,) = out.of(AttemptsMeasured)
    assert (report.attempts, report.kinds, report.peaks_nbytes) == ([1], [ALONE], [30 * MB])
    assert (report.cpu_us, report.read_nbytes, report.written_nbytes) == ([5], [6], [7])
    assert not worker.state.record(MeasuredAttempts)


def test_an_attempt_that_uses_too_much_as_it_ends_keeps_its_result():
    worker = started("1 a")
    out = worker.handle(MemorySeen(200 * MB, [1], is_over=True))
    assert out.of(AttemptsExceeded) == []
    out = worker.report()
    (report,) = out.of(AttemptsMeasured)
    assert report.peaks_nbytes == [150 * MB]
    assert [type(message) for message in out] == [AttemptsMeasured, AttemptsFinished]


def test_other_attempts_of_the_message_are_not_measured(worker):
    message = of_category("1 a", "2 b")
    message.allotted_nbytes[1] = 0
    worker.receive(message)
    assert list(worker.state.record(MeasuredAttempts)) == [1]
    assert not hasattr(worker.state.by_attempt[2], "usage")
    assert see(worker, 900, 2) == []


def test_a_dropped_attempt_is_measured_no_more():
    worker = started("1 a")
    worker.receive(drop(1))
    assert not worker.state.record(MeasuredAttempts)
    assert see(worker, 900, 1) == []


# -- attempts that are measured as they end --------------------------------------------------------
def used(worker, attempt, cpu_us=7, peak=300):
    return worker.handle(AttemptUsed(attempt, cpu_us, 1, 2, peak * MB))


def first(out):
    """Return what was measured, which comes before all else."""
    messages = list(out)
    assert AttemptsMeasured not in {type(message) for message in messages[1:]}
    return messages[0]


def test_a_function_that_took_some_time_is_reported_with_the_peak_of_its_process(worker):
    worker.receive(assign("1 a", "2 b"))
    worker.start()
    assert used(worker, 1) == []
    report = first(worker.report())
    assert (report.attempts, report.cpu_us, report.kinds) == ([1], [7], [SHARED])
    assert (report.peaks_nbytes, report.failed) == ([300 * MB], [])
    assert (report.read_nbytes, report.written_nbytes) == ([1], [2])
    assert not worker.state.record(MeasuredAttempts)


def test_numbers_of_other_processes_that_an_executor_has_written_are_kept(worker):
    worker.receive(assign("1 a"))
    usage = usage_of(worker.start())
    usage.kind, usage.cpu_us, usage.peak_nbytes = OWN_PROCESS, 50, 9 * MB
    used(worker, 1)
    report = first(worker.report())
    assert (report.kinds, report.cpu_us, report.peaks_nbytes) == ([OWN_PROCESS], [50], [9 * MB])


def test_the_memory_of_the_only_attempt_of_a_category_is_what_was_seen():
    worker = started("1 a")
    see(worker, 80, 1)
    used(worker, 1)
    report = first(worker.report())
    assert (report.kinds, report.cpu_us, report.peaks_nbytes) == ([ALONE], [7], [30 * MB])


def test_failed_attempts_are_marked():
    worker = started("1 a")
    used(worker, 1)
    report = first(worker.report(failed=["a"]))
    assert (report.attempts, report.failed) == ([1], [1])


def test_numbers_of_a_dropped_attempt_are_not_reported(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.receive(drop(1))
    used(worker, 1)
    assert AttemptsMeasured not in {type(message) for message in worker.report()}
    assert not worker.state.record(MeasuredAttempts)


def test_memory_is_watched_for_a_category_while_another_attempt_is_about_to_be_reported(worker):
    worker.receive(assign("1 a"))
    worker.start()
    used(worker, 1)
    worker.receive(of_category("2 b"))
    assert worker.n_memory_looks == 1
