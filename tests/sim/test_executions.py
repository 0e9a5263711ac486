"""Which executions the simulator allows to be repeated, where no worker fails."""

from __future__ import annotations

import pytest

from weft.worker.core.tasks import NO_FUNCTION, WorkerTask

from .graphs import Spec
from .simulation import Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(0, sessions=True)


def execute(sim: Simulation, key: str, attempt: int, *inputs: WorkerTask) -> WorkerTask:
    """Let the function of a task be called, with the values of these attempts."""
    task = WorkerTask(key, attempt, 0, NO_FUNCTION, b"", 0)
    task.inputs = [*inputs]
    sim.executed[attempt] = key
    spec = Spec(0, key, "f", [], 0.0, 0, 0, False, None, b"", ancestors={key: None})
    sim.executions.begin(task, spec)
    return task


def test_a_task_runs_again_if_what_it_read_took_too_long(sim):
    first = execute(sim, "a", 1)
    between = execute(sim, "b", 2, first)
    execute(sim, "c", 3, between)
    sim.timed_out["a"] = {1: None}
    again = execute(sim, "a", 4)
    execute(sim, "c", 6, execute(sim, "b", 5, again))


def test_a_task_does_not_run_again_with_the_same_value(sim):
    first = execute(sim, "a", 1)
    execute(sim, "b", 2, first)
    sim.timed_out["a"] = {1: None}  # the report was lost
    with pytest.raises(AssertionError, match="executed again: 1 times before"):
        execute(sim, "b", 3, first)


def test_each_value_that_took_too_long_allows_one_execution(sim):
    first = execute(sim, "a", 1)
    execute(sim, "b", 2, first)
    sim.timed_out["a"] = {1: None}
    again = execute(sim, "a", 3)
    execute(sim, "b", 4, again)
    with pytest.raises(AssertionError, match="executed again: 2 times before"):
        execute(sim, "b", 5, again)


def test_a_task_does_not_run_again_because_its_input_did(sim):
    first = execute(sim, "a", 1)
    execute(sim, "b", 2, first)
    sim.n_raised["a"] = 1
    again = execute(sim, "a", 3)
    with pytest.raises(AssertionError, match="executed again: 1 times before"):
        execute(sim, "b", 4, again)


def test_only_what_a_worker_had_that_was_ended_for_a_task_runs_again(sim):
    sim.world.probes["ended for a task"] += 1
    execute(sim, "a", 1)
    execute(sim, "b", 2)
    sim.executions.lose([1])
    execute(sim, "a", 3)
    with pytest.raises(AssertionError, match="executed again: 1 times before"):
        execute(sim, "b", 4)
