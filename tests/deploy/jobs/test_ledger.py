"""The jobs of a cluster: which count, which end first, and what is said of them."""

from __future__ import annotations

import pytest

from weft.deploy.jobs.ledger import MAX_FAILURES, RUNNING, WAITING, JobState, Ledger


def ledger_of(n_jobs: int, n_processes: int = 2) -> Ledger:
    ledger = Ledger(n_processes)
    ledger.add(ledger.names("c", n_jobs), [str(i) for i in range(1, n_jobs + 1)])
    return ledger


def join(ledger: Ledger, *names: str) -> None:
    ledger.note_workers({name: (f"tcp://{name}", "s") for name in names})


def test_jobs_are_numbered_on():
    ledger = ledger_of(2)
    assert [job.name for job in ledger.jobs.values()] == ["c-1", "c-2"]
    assert ledger.names("c", 1) == ["c-3"]


def test_a_job_counts_before_its_workers_have_joined_and_while_it_has_some():
    ledger = ledger_of(2)
    assert ledger.n_workers == 4
    join(ledger, "c-1-0", "c-1-1", "c-2-0", "another")
    assert ledger.n_workers == 4
    join(ledger, "c-2-0")  # the others have left, so job 1 is about to end
    assert [job.name for job in ledger.counting()] == ["c-2"]


def test_a_job_with_one_process_has_one_worker_of_its_name():
    ledger = ledger_of(12, 1)
    join(ledger, "c-1", "c-12")
    assert [job.name for job in ledger.with_workers([])] == ["c-1", "c-12"]


def test_the_newest_waiting_jobs_end_first_then_those_that_start():
    ledger = ledger_of(4)
    ledger.note({"1": RUNNING, "4": RUNNING})
    join(ledger, "c-1-0")
    assert [job.id for job in ledger.without_workers()] == ["3", "2", "4"]


def test_of_jobs_with_workers_the_costliest_worker_counts():
    ledger = ledger_of(2)
    join(ledger, "c-1-0", "c-1-1", "c-2-0", "c-2-1")
    order = ["c-1-0", "c-2-0", "c-2-1", "c-1-1"]
    assert [job.name for job in ledger.with_workers(order)] == ["c-2", "c-1"]


def test_the_end_of_a_job_is_told_once():
    ledger = ledger_of(2)
    over = ledger.note({"1": JobState("ended", "TIMEOUT", failed=True), "9": RUNNING})
    assert [job.describe() for job in over] == ["job 1 (c-1) has failed: TIMEOUT"]
    assert not ledger.note({"1": JobState("ended", "TIMEOUT", failed=True)})
    assert ledger.n_workers == 2


@pytest.mark.parametrize(("has_joined", "n_failures"), [(False, 1), (True, 0)])
def test_a_job_of_unknown_end_has_failed_if_no_worker_of_it_joined(has_joined, n_failures):
    ledger = ledger_of(1)
    if has_joined:
        join(ledger, "c-1-0")
    ledger.note({"1": JobState("ended", "unknown", failed=None)})
    assert len(ledger.failures) == n_failures


def test_jobs_that_fail_in_a_row_are_given_up_and_a_worker_that_joins_ends_the_row():
    ledger = ledger_of(MAX_FAILURES + 1)
    failed = JobState("ended", "exit code 1", failed=True)
    ledger.note({str(i): failed for i in range(1, MAX_FAILURES + 1)})
    assert ledger.has_given_up
    join(ledger, f"c-{MAX_FAILURES + 1}-0")
    assert not ledger.has_given_up


def test_the_end_of_a_job_that_was_asked_for_is_no_failure():
    ledger = ledger_of(1)
    ledger.jobs["1"].is_ending = True
    (over,) = ledger.note({"1": JobState("ended", "CANCELLED", failed=True)})
    assert over.describe() == "job 1 (c-1) was ended by this cluster"
    assert not ledger.failures


def test_jobs_are_counted_in_one_line():
    ledger = ledger_of(5)
    assert ledger_of(0).describe() == "no jobs"
    ledger.note({"1": RUNNING, "2": JobState("waiting", "Priority"), "3": WAITING})
    ledger.note({"4": JobState("ended", "exit code 1", failed=True)})
    ledger.jobs["5"].is_ending = True
    assert ledger.describe() == "3 jobs: 1 runs, 2 wait (Priority), 1 more leaves, 1 failed"


def test_problems_name_the_jobs_that_failed_and_the_first_that_wait():
    ledger = ledger_of(6)
    ledger.note({"1": JobState("ended", "exit code 1", failed=True)})
    ledger.note({"2": JobState("waiting", "PartitionTimeLimit", hint="walltime= is too long")})
    assert ledger.problems() == [
        "job 1 (c-1) has failed: exit code 1",
        "job 2 (c-2) waits: PartitionTimeLimit (walltime= is too long)",
        "job 3 (c-3) waits",
        "job 4 (c-4) waits",
        "and 2 more jobs that wait",
    ]


OVER = JobState("ended")


def holding(n_jobs: int, n_held: int) -> Ledger:
    """Return a ledger of jobs that run, and whose workers live for 60 s."""
    ledger = Ledger(1, lifetime_s=60.0, poll_s=10.0)
    ledger.add(ledger.names("c", n_jobs), [str(i) for i in range(1, n_jobs + 1)])
    ledger.hold(n_held)
    ledger.note({str(i): RUNNING for i in range(1, n_jobs + 1)}, 100.0)
    return ledger


@pytest.mark.parametrize(("now", "n"), [(120.0, 0), (149.0, 0), (150.0, 1), (161.0, 1)])
def test_a_job_that_ends_after_the_lifetime_of_its_workers_is_replaced(now, n):
    ledger = holding(2, 2)
    ledger.note({"1": OVER}, now)
    assert ledger.n_to_replace == n


def test_a_job_that_its_system_ends_by_the_limit_is_replaced_too():
    ledger = holding(2, 2)
    ledger.note({"1": JobState("ended", "the time limit", failed=True)}, 180.0)
    assert ledger.n_to_replace == 1


def test_a_job_is_replaced_once():
    ledger = holding(2, 2)
    ledger.note({"1": OVER}, 160.0)
    ledger.add(ledger.names("c", 1), ["3"])
    assert ledger.n_to_replace == 0
    ledger.note({"2": OVER}, 161.0)
    assert ledger.n_to_replace == 1


def test_a_job_that_this_cluster_has_ended_is_not_replaced():
    ledger = holding(2, 2)
    ledger.jobs["1"].is_ending = True
    ledger.note({"1": OVER}, 160.0)
    assert ledger.n_to_replace == 0


@pytest.mark.parametrize("n_held", [0, 1])
def test_no_more_jobs_are_started_than_are_held(n_held):
    ledger = holding(2, n_held)
    ledger.note({"1": OVER}, 160.0)
    assert ledger.n_to_replace == 0


def test_jobs_that_expired_before_a_number_is_held_are_not_replaced():
    ledger = holding(2, 2)
    ledger.note({"1": OVER}, 160.0)
    ledger.hold(2)
    assert ledger.n_to_replace == 0


def test_jobs_without_a_lifetime_are_not_replaced():
    ledger = ledger_of(1)
    ledger.hold(1)
    ledger.note({"1": RUNNING}, 100.0)
    ledger.note({"1": OVER}, 1e6)
    assert ledger.n_to_replace == 0


def test_nothing_is_replaced_after_failures_in_a_row():
    ledger = holding(MAX_FAILURES, MAX_FAILURES)
    failed = JobState("ended", "exit code 1", failed=True)
    ledger.note({str(i): failed for i in range(1, MAX_FAILURES + 1)}, 160.0)
    assert ledger.n_to_replace == 0
