"""The exceptions that users get, made from failures as messages carry them."""

from __future__ import annotations

import pickle

import pytest

from weft.client.core.tasks import FutureState
from weft.client.results.failures import exception_of
from weft.protocol.death_facts import DeathFacts
from weft.protocol.errors import WorkerDied
from weft.protocol.values.exceptions import pack_exception
from weft.protocol.wire.failure import worker_died


@pytest.mark.parametrize(
    ("attempts", "notes"), [([], []), ([3], ["weft: attempt 3 of 3: each one raised"])]
)
def test_the_error_of_a_task_that_raised_in_each_attempt_has_their_number(attempts, notes):
    state = FutureState("x")
    state.failure = ["exception", "x", *pack_exception(ValueError("bad"), "x", "w1"), *attempts]
    assert exception_of(state).__notes__ == ["weft: task x on worker w1", *notes]


@pytest.mark.parametrize("facts", [DeathFacts(), DeathFacts(1 << 30, 1, (), ("the last line",))])
def test_the_error_of_a_task_whose_workers_died_has_the_facts_of_the_last_one(facts):
    state = FutureState("x")
    state.failure = worker_died("x", 4, "w", "killed by SIGSEGV", facts)
    error = exception_of(state)
    assert isinstance(error, WorkerDied)
    assert (error.attempts, error.last_worker, error.facts) == (4, "w", facts)
    first, *more = str(error).splitlines()
    assert first == "task 'x' was given up: its worker died 4 times, last on w: killed by SIGSEGV"
    assert more == str(facts).splitlines()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
