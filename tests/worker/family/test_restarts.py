"""The consequences of a worker process's end, and the way in which a family's workers are ended."""

from __future__ import annotations

import signal

import pytest

from weft.protocol.restart_pauses import RestartPauses
from weft.worker.family.exits import EXIT_CONFIG, EXIT_CRASHED, EXIT_REFUSED
from weft.worker.family.restarts import (
    Ending,
    Restart,
    Retire,
    StopFamily,
    WorkerExit,
    judge,
    memory_verdict,
)


def judged(code, *, running=(), served=(), lived_s=1.0, backoff=None, **texts):
    ended = WorkerExit(code=code, lived_s=lived_s, running=[*running], served=[*served], **texts)
    return judge(ended, backoff or RestartPauses())


# --- Verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["running", "served"])
def test_deaths_of_tasks_and_of_served_results_do_not_delay_the_next_start(kind):
    backoff = RestartPauses()
    for _ in range(3):
        assert judged(-9, **{kind: [1]}, backoff=backoff).pause_s == 0.0
    assert judged(-9, backoff=backoff).pause_s == 0.2
    assert judged(-9, lived_s=61.0, backoff=backoff).pause_s == 0.0


def test_a_worker_that_left_because_of_a_signal_to_it_alone_is_started_again():
    reason = "it got SIGTERM, from a task or another process"
    assert judged(0, signal="SIGTERM") == Restart(reason, 0.0)


def test_a_worker_that_ends_with_0_and_runs_nothing_was_asked_to():
    assert judged(0) == Retire()
    assert judged(0, served=[1]) == Retire()
    assert judged(0, running=[1]) == Restart("exit code 0", 0.0)


@pytest.mark.parametrize(
    ("code", "refusal", "outcome"),
    [
        (EXIT_CONFIG, "", StopFamily("cannot run with its configuration", 2)),
        (EXIT_REFUSED, "too old", StopFamily("was refused", EXIT_REFUSED, "too old")),
        (EXIT_REFUSED, "", StopFamily("was refused", EXIT_REFUSED, "the scheduler refused it")),
    ],
)
def test_an_exit_that_the_next_worker_would_repeat_stops_the_family(code, refusal, outcome):
    assert judged(code, refusal=refusal) == outcome
    # A task may end the process with the same code.
    assert judged(code, refusal=refusal, running=[1]) == Restart(f"exit code {code}", 0.0)


@pytest.mark.parametrize(
    ("code", "texts", "reason"),
    [
        (3, {}, "exit code 3"),
        (-6, {}, "killed by SIGABRT"),
        (-9, {}, "killed by SIGKILL, by another process or the kernel's out-of-memory killer"),
        (-11, {"fault": "in f (a.py:3)"}, "killed by SIGSEGV in f (a.py:3)"),
        (3, {"fault": "in f (a.py:3)"}, "exit code 3"),
        (-9, {"verdict": "memory limit"}, "memory limit"),
        (EXIT_CRASHED, {"crash": "weft failed"}, "weft failed"),
        (-9, {"verdict": "memory limit", "crash": "weft failed"}, "memory limit"),
    ],
)
def test_the_reason_of_a_death_is_the_best_known_one(code, texts, reason):
    assert judged(code, **texts) == Restart(reason, 0.0)


def test_a_worker_above_95_percent_of_its_memory_limit_is_killed_with_the_sizes():
    assert memory_verdict(950_000_000, 1_000_000_000) == ""
    assert memory_verdict(10**12, 0) == ""
    text = memory_verdict(951_000_000, 1_000_000_000)
    assert text == "memory limit: 0.95 of 1.00 GB, killed by the supervisor"


# --- The end of the family ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grace_period_s", "signals", "first", "patience_s"),
    [
        (0.0, [], signal.SIGTERM, 3.0),
        (0.0, [signal.SIGTERM], signal.SIGTERM, 3.0),
        (0.0, [signal.SIGINT], signal.SIGTERM, 3.0),
        (60.0, [], signal.SIGINT, 3.0),
        (60.0, [signal.SIGTERM], signal.SIGTERM, 63.0),
        (60.0, [signal.SIGINT], signal.SIGINT, 3.0),
        (60.0, [signal.SIGHUP], signal.SIGINT, 3.0),
    ],
)
def test_only_sigterm_lets_workers_use_their_grace_period(
    grace_period_s, signals, first, patience_s
):
    ending = Ending(3.0, grace_period_s)
    assert not any(ending.on_signal(number) for number in signals)
    assert (ending.first_signal(), ending.patience_s()) == (first, patience_s)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_kills_the_workers_at_once(number):
    ending = Ending(3.0, 60.0)
    assert not ending.on_signal(signal.SIGTERM)
    assert ending.on_signal(number)
    assert ending.patience_s() == 3.0
