"""The consequences of a worker process's end, and the way in which a family's workers are ended."""

from __future__ import annotations

import signal

import pytest

from weft.protocol.death_facts import DeathFacts
from weft.protocol.deaths import OUT_OF_MEMORY
from weft.protocol.host.exits import EXIT_CONFIG, EXIT_CRASHED, EXIT_NO_SCHEDULER, EXIT_REFUSED
from weft.protocol.reported import DEATHS, REQUESTED
from weft.protocol.restarting import Restarting
from weft.worker.family.restarts import (
    Ending,
    Restart,
    Retire,
    StopFamily,
    WorkerExit,
    after_request,
    give_up,
    judge,
    kind_of,
    memory_verdict,
)


def judged(code, *, running=(), served=(), lived_s=1.0, restarting=None, **facts):
    ended = WorkerExit(code=code, lived_s=lived_s, running=[*running], served=[*served], **facts)
    return judge(ended, restarting or Restarting())


@pytest.mark.parametrize(
    ("kind", "code", "facts"),
    [
        ("exit", 3, {}),
        ("exit", 0, {}),
        ("signal", -9, {}),
        ("signal", 0, {"signal": "SIGTERM"}),
        ("memory", -9, {"verdict": "memory limit: 4.10 of 4.00 GiB"}),
        ("memory", -9, {"is_oom_kill": True}),
        ("crash", EXIT_CRASHED, {"crash": "weft's own code failed in it"}),
        ("requested", 0, {"signal": "SIGTERM", "has_left": True}),
    ],
)
def test_the_kind_of_an_end_is_one_of_those_that_metrics_have(kind, code, facts):
    ended = WorkerExit(code=code, lived_s=1.0, running=[1], served=[], **facts)
    assert kind_of(ended) == kind
    assert kind in (*DEATHS, REQUESTED)


# --- Verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["running", "served"])
def test_deaths_of_tasks_and_of_served_results_do_not_delay_the_next_start(kind):
    restarting = Restarting()
    for _ in range(3):
        assert judged(-9, **{kind: [1]}, restarting=restarting).pause_s == 0.0
    assert judged(-9, restarting=restarting).pause_s == 0.2
    assert judged(-9, lived_s=61.0, restarting=restarting).pause_s == 0.0


def test_a_worker_that_left_because_of_a_signal_to_it_alone_is_started_again():
    reason = "it got SIGTERM, from a task or another process"
    assert judged(0, signal="SIGTERM") == Restart(reason, 0.0)
    left = Restart("it left after SIGTERM", 0.0)
    restarting = Restarting()
    for _ in range(9):
        assert judged(0, signal="SIGTERM", has_left=True, restarting=restarting) == left
        assert judged(0, signal="SIGTERM", has_left=True, running=[1]) == left


def test_a_signal_to_a_worker_of_no_program_is_the_wish_that_it_leaves():
    assert judged(0, signal="SIGTERM", may_leave=True) == Retire()
    reason = "it got SIGTERM, from a task or another process"
    assert judged(0, running=[1], signal="SIGTERM", may_leave=True) == Restart(reason, 0.0)


@pytest.mark.parametrize(
    ("code", "facts", "text"),
    [
        (-9, {}, "its lifetime is over; it had not left in time, and was killed"),
        (-11, {}, "its lifetime is over; killed by SIGSEGV"),
        (-9, {"is_oom_kill": True}, f"its lifetime is over; {OUT_OF_MEMORY}"),
        (EXIT_CRASHED, {"crash": "weft failed"}, "its lifetime is over; weft failed"),
        (0, {}, ""),
        (-9, {"has_left": True}, ""),
        (-15, {"has_joined": False}, ""),
    ],
)
def test_the_end_of_a_worker_that_was_asked_to_leave_has_that_reason_first(code, facts, text):
    facts = {"has_joined": True, **facts}
    ended = WorkerExit(code=code, lived_s=1.0, running=[1], served=[], **facts)
    assert after_request("its lifetime is over", ended) == text


def test_a_worker_that_ends_with_0_and_runs_nothing_was_asked_to():
    assert judged(0) == Retire()
    assert judged(0, has_joined=True, has_left=True) == Retire()
    assert judged(0, served=[1], has_left=True) == Retire()
    assert judged(0, running=[1], has_left=True) == Restart("exit code 0", 0.0)
    assert judged(0, has_joined=True).reason == "exit code 0", "a plugin may end the process"


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
        (
            -9,
            {"facts": DeathFacts(n_oom_kills=0)},
            "killed by SIGKILL, by another process: its control group counts no out-of-memory kill",
        ),
        (-9, {"is_oom_kill": True, "facts": DeathFacts(n_oom_kills=1)}, OUT_OF_MEMORY),
        (3, {"fault": "in f (a.py:3)"}, "exit code 3"),
        (1, {"failure": "OSError: no"}, "exit code 1: OSError: no"),
        (-11, {"failure": "OSError: no"}, "killed by SIGSEGV"),
        (-9, {"verdict": "memory limit"}, "memory limit"),
        (EXIT_CRASHED, {"crash": "weft failed"}, "weft failed"),
        (-9, {"verdict": "memory limit", "crash": "weft failed"}, "memory limit"),
    ],
)
def test_the_reason_of_a_death_is_the_best_known_one(code, texts, reason):
    assert judged(code, **texts) == Restart(reason, 0.0)


def test_a_worker_above_95_percent_of_its_memory_limit_is_killed_with_the_sizes():
    assert memory_verdict(950 << 20, 1000 << 20, 0.95) == ""
    assert memory_verdict(10**12, 0, 0.95) == ""
    assert memory_verdict(10**12, 1000 << 20, 0.0) == ""
    rest = "more than 95 %, killed by the supervisor"
    assert memory_verdict(951 << 20, 1000 << 20, 0.95) == (
        f"memory limit: 951.00 of 1000.00 MiB, {rest}"
    )
    assert memory_verdict(39 << 27, 5 << 30, 0.95) == f"memory limit: 4.88 of 5.00 GiB, {rest}"


# --- Starts that fail -----------------------------------------------------------------------------

BROKEN = {"code": 1, "failure": "ImportError: ctypes"}


def place(*deaths, restarting=None):
    restarting = restarting or Restarting()
    for death in deaths:
        judged(**death, restarting=restarting)
    return restarting


def test_equal_deaths_in_a_row_before_a_registration_end_the_family():
    assert give_up([place(BROKEN, BROKEN)]) is None
    outcome = give_up([place(BROKEN, BROKEN, BROKEN)])
    assert outcome is not None
    assert outcome.exit_code == 1
    assert "3 times in a row before it had joined the cluster" in outcome.refusal
    assert "the same reason: exit code 1: ImportError: ctypes; " in outcome.refusal
    assert give_up([place({"code": -11}, {"code": -11}, {"code": -11})]) is not None


def test_a_family_goes_on_while_one_place_has_hope():
    hopeless = place(BROKEN, BROKEN, BROKEN)
    assert give_up([hopeless, place()]) is None
    assert give_up([hopeless, place(BROKEN, BROKEN)]) is None
    assert give_up([hopeless, place(BROKEN, BROKEN, BROKEN)]) is not None
    assert give_up([hopeless, Restarting(reason="x", n_equal=3, was_ready=True)]) is None


@pytest.mark.parametrize(
    "other",
    [
        {"code": 1, "failure": "ImportError: other"},
        {"code": -11},
        {"code": -9},
        {"code": -15},
        {"code": -2},
        {"code": EXIT_NO_SCHEDULER},
        {"code": -9, "verdict": "memory limit"},
        {"code": 0, "signal": "SIGTERM"},
        {**BROKEN, "lived_s": 61.0},
        {**BROKEN, "has_joined": True},
        {**BROKEN, "running": [1]},
        {**BROKEN, "served": [1]},
        {"code": 0, "has_joined": True},
    ],
)
def test_a_death_of_another_kind_begins_a_new_row(other):
    assert give_up([place(BROKEN, BROKEN, other)]) is None
    assert give_up([place(BROKEN, BROKEN, other, BROKEN, BROKEN)]) is None


@pytest.mark.parametrize(
    "death",
    [
        {"code": -9},
        {"code": -15},
        {"code": EXIT_NO_SCHEDULER},
        {"code": -9, "verdict": "memory limit"},
        {"code": 0, "signal": "SIGTERM"},
        {**BROKEN, "lived_s": 61.0},
        {**BROKEN, "has_joined": True},
    ],
)
def test_deaths_that_do_not_come_from_the_start_never_end_a_family(death):
    assert give_up([place(*[death] * 10)]) is None


def test_a_place_whose_worker_was_registered_once_is_never_given_up():
    joined = place({**BROKEN, "has_joined": True})
    assert give_up([place(*[BROKEN] * 10, restarting=joined)]) is None


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
