"""Exit reports of a supervisor: each is sent until the scheduler has certainly read it."""

from __future__ import annotations

from weft.protocol.wire.messages import WorkerExited
from weft.worker.family.exit_reports import MAX_REPORTS, ExitReports


def report(name):
    return WorkerExited(worker_id=name, reason="killed", running=[], kind="signal")


def names(reports):
    return [report.worker_id for report in reports]


def test_reports_that_no_answer_covers_are_sent_again_in_the_next_session():
    reports = ExitReports()
    reports.on_session()
    reports.add(report("a"))
    assert names(reports.beat()) == ["a"]
    reports.add(report("b"))
    assert names(reports.take()) == ["b"]
    assert names(reports.beat()) == []
    reports.on_answers(1)  # of the beat before which "a" was sent
    reports.on_session()
    assert names(reports.beat()) == ["b"]
    reports.on_answers(1)
    reports.on_session()
    assert names(reports.beat()) == []


def test_an_answer_of_an_earlier_session_covers_nothing():
    reports = ExitReports()
    reports.on_session()
    reports.beat()
    reports.on_answers(1)
    reports.on_session()
    reports.add(report("a"))
    reports.beat()
    reports.on_answers(0)
    reports.on_session()
    assert names(reports.take()) == ["a"]


def test_more_answers_than_beats_cover_nothing():
    reports = ExitReports()
    reports.on_session()
    reports.on_answers(5)
    reports.add(report("a"))
    reports.take()
    reports.on_answers(9)
    reports.on_session()
    assert names(reports.take()) == ["a"]


def test_the_latest_reports_are_kept():
    reports = ExitReports()
    for i in range(MAX_REPORTS + 1):
        reports.add(report(str(i)))
    assert names(reports.take()) == [str(i) for i in range(1, MAX_REPORTS + 1)]
