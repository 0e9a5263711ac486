"""Many simulated runs, one seed each. A failure prints the command that repeats it (README.md)."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from weft.client.core.features.actor_calls import Callbacks, ConnectionCalls
from weft.scheduler.core.coordination import cycles
from weft.scheduler.core.coordination.leases import LOCKS
from weft.scheduler.core.members import lost_workers
from weft.scheduler.core.memory import relief, set_aside
from weft.scheduler.core.records.tasks import SchedulerTask
from weft.scheduler.core.reports import completion
from weft.worker.actors.core.actor_calls import HolderConnections

from . import arrays, gangs
from .simulation import Simulation, SimulationFailed

ROOT = Path(__file__).resolve().parents[2]
N_BATCHES = 23
SEEDS_PER_BATCH = 10
N_SESSION_BATCHES = 4

many_seeds = pytest.mark.thorough("seeds beyond the first; a seed is half a second")

#: Situations that some seeds must reach, or the tests prove less than they seem to.
EXPECTED = {
    "actor call: a future comes",
    "actor call: actor-in-doubt",
    "actor call: actor-lost",
    "actor call: again",
    "actor call: done in doubt",
    "actor call: exception",
    "actor call: in a task",
    "actor call: lost while it is under way",
    "actor call: not past the loop",
    "actor call: raises",
    "actor call: refused",
    "actor call: result",
    "actor call: sent alone",
    "actor connection: breaks",
    "actor connection: idle",
    "actor waits",
    "attempts adopted",
    "attempts_timed_out",
    "blocked",
    "blip",
    "break",
    "array: cancel_rows",
    "array: done",
    "array: ended",
    "array: failed",
    "array: read by the next scheduler",
    "array: retry_rows",
    "array: row assigned",
    "array: rows recorded",
    "cancel",
    "cancelled in a task",
    "category: copy",
    "category: exceeded",
    "category: measured",
    "category: repeated",
    "category: straggler",
    "clients_expired",
    "clock set back",
    "copies kept",
    "disk: an input is lost",
    "disk: lost for a peer",
    "drain",
    "drain: family",
    "drain: not in time",
    "ended without a seat",
    "executed twice at once",
    "failure allotment-exceeded",
    "failure cancelled",
    "failure exception",
    "failure gang-ended",
    "failure memory-exceeded",
    "failure timed-out",
    "failure worker-died",
    "fetch given up",
    "fetch missing",
    "fetch refused",
    "freeze",
    "gang",
    "member of a gang",
    "objects: acquire cycle",
    "objects: acquire done",
    "objects: get done",
    "objects: given up",
    "objects: keep done",
    "objects: next done",
    "objects: publish done",
    "interrupt",
    "interrupted in the end",
    "interrupted in a task",
    "job of a user: read by the next scheduler",
    "join",
    "kill",
    "large request passed on",
    "large request waits",
    "leave",
    "locked in a task",
    "a lock of a task fails",
    "plugin: register_plugin done",
    "plugin: register_supervisor_plugin done",
    "plugin: unregister_plugin done",
    "memory: asked back",
    "memory: full",
    "memory: full at rest",
    "memory: killed",
    "memory: killed too often",
    "memory: notice",
    "memory: room again",
    "memory: scattered data set aside",
    "memory: set aside",
    "memory: stalled",
    "memory: taken up",
    "parked",
    "parts: asked",
    "parts: gone",
    "parts: read",
    "parts: unreachable",
    "paused",
    "poison",
    "read in a task: exception",
    "read in a task: not-permitted",
    "records: came",
    "records: left out",
    "released early",
    "retire",
    "retire: results moved",
    "retired: kept",
    "retired: left",
    "queue paused",
    "host blocked by itself",
    "worker blocked",
    "worker unblocked",
    "queue recorded",
    "queue resumed: tasks were held",
    "reconciled",
    "replicas_missing",
    "reports_stale",
    "results kept",
    "reschedule",
    "retry",
    "recurring: ended",
    "recurring: read by the next scheduler",
    "recurring: run assigned",
    "rows dropped",
    "scale to zero",
    "scattered data lost",
    "scheduler restart",
    "scheduler silent",
    "shared",
    "stall",
    "submitted in a task",
    "supervisor plugin: hangs",
    "supervisor plugin: workers replaced",
    "supervisor replaced",
    "tasks_assigned_ahead",
    "tasks_cancelled",
    "tasks_failed_worker_died",
    "tasks_recomputed",
    "tasks_retried",
    "tasks_returned",
    "too much for one look at the sockets",
    "two schedulers",
    "withdraw",
    "waited for a seat",
}


def batches(n: int, n_quick: int) -> list[Any]:
    """Return the numbers of `n` batches, of which `make test` has the first ones."""
    return [
        pytest.param(batch, marks=[pytest.mark.slow, *([many_seeds] if batch >= n_quick else [])])
        for batch in range(n)
    ]


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Counter[str]]:
    """Run a batch, unless this or another process of the same run has; return what happened."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def run(batch: int) -> Counter[str]:
        done = folder / f"probes-{batch}.json"
        if not done.exists():
            found: Counter[str] = Counter()
            for seed in range(batch * SEEDS_PER_BATCH, (batch + 1) * SEEDS_PER_BATCH):
                simulation = Simulation(seed)
                simulation.run()
                found.update(simulation.world.probes)
            written = Path(f"{done}.{os.getpid()}")
            written.write_text(json.dumps(found))
            written.rename(done)
        return Counter(json.loads(done.read_text()))

    return run


@pytest.mark.parametrize("batch", batches(N_BATCHES, 6))
def test_every_seed_holds_all_invariants_and_ends_as_the_serial_run(batch, probes):
    assert probes(batch)


@pytest.mark.parametrize("batch", batches(N_SESSION_BATCHES, 1))
def test_no_call_is_executed_again_where_only_connections_and_schedulers_fail(batch):
    for seed in range(batch * SEEDS_PER_BATCH, (batch + 1) * SEEDS_PER_BATCH):
        Simulation(seed, sessions=True).run()


@pytest.mark.slow
@many_seeds
def test_the_seeds_reach_every_rare_situation(probes):
    """Batches that have not been run are run here, while anything is missing."""
    missing = {*EXPECTED}
    for batch in range(N_BATCHES):
        if missing:
            missing -= {name for name, n in probes(batch).items() if n}
    assert missing == set()


def test_a_seed_can_be_replayed():
    """Repeat the seed of WEFT_SIM_SEED; with WEFT_SIM_SESSIONS the run of the second kind."""
    sessions = bool(os.environ.get("WEFT_SIM_SESSIONS"))
    Simulation(int(os.environ.get("WEFT_SIM_SEED", "0")), sessions=sessions).run()


@pytest.mark.slow
def test_a_seed_is_the_same_run_whatever_the_order_of_hashes():
    def traces(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seeds", "6", "--first", "3", "--trace"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = traces("1")
    assert len(first.splitlines()) == 6
    assert traces("2") == first


@pytest.mark.slow
def test_a_seed_is_the_same_run_whenever_memory_is_short():
    """It is one of the seeds in which a client is told of a record that is garbage in a cycle."""
    thresholds = gc.get_threshold()

    def trace(*thresholds: int) -> int:
        gc.set_threshold(*thresholds)
        simulation = Simulation(10000004, traced=True)
        simulation.run()
        return simulation.world.trace

    try:
        assert trace(0) == trace(100, 2, 2)
    finally:
        gc.set_threshold(*thresholds)


def run_until_failure(n: int, *, first: int = 0, sessions: bool = False) -> str:
    for seed in range(first, first + n):
        try:
            Simulation(seed, sessions=sessions).run()
        except SimulationFailed as error:
            return str(error)
    return ""


@pytest.mark.slow
def test_a_lost_wake_up_is_found_and_reported_with_the_command_that_repeats_it():
    with patch.object(lost_workers, "replace_lost", lambda _state, _lost: None):
        report = run_until_failure(40)
    assert "replay: WEFT_SIM_SEED=" in report
    assert "-m pytest tests/sim -k replay" in report
    assert "story of" in report


@pytest.mark.slow
def test_a_lock_that_is_given_away_before_its_holder_could_be_back_is_found():
    early = LOCKS.operations["acquire"]._replace(is_deferred=False)
    with patch.dict(LOCKS.operations, {"acquire": early}):
        # About one of 130 seeds has it: 243 does.
        report = run_until_failure(10, first=240, sessions=True)
    assert " was lost" in report


@pytest.mark.slow
def test_a_call_of_an_actor_that_comes_over_a_connection_given_up_is_found():
    with patch.object(HolderConnections, "accept", lambda *_: True):
        report = run_until_failure(5, first=38, sessions=True)  # 40 has such a call
    assert "is done behind call" in report


@pytest.mark.slow
def test_a_call_of_an_actor_that_is_said_not_to_be_done_and_is_is_found():
    def end(calls: ConnectionCalls, unsent: str, _sent: str) -> Callbacks:
        calls.waiting.extendleft(reversed(calls.sent.values()))
        calls.sent.clear()
        return real_end(calls, unsent, "")

    real_end = ConnectionCalls.end
    with patch.object(ConnectionCalls, "end", end):
        report = run_until_failure(40, sessions=True)
    assert "actor-lost" in report


@pytest.mark.slow
def test_waits_in_tasks_that_have_no_end_are_found():
    suspect = cycles.suspect

    def suspect_threads(state, node, *wait) -> None:
        if not isinstance(node, (SchedulerTask, cycles.Attempt)):
            suspect(state, node, *wait)

    with patch.object(cycles, "suspect", suspect_threads):
        # About one of 150 seeds has such a cycle: 108 does.
        report = run_until_failure(5, first=106)
    assert "tasks that submit tasks never end" in report or "never ends" in report
    assert "waits for" in report


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(set_aside, "take_up"), (relief, "_relieve")])
def test_tasks_that_wait_for_memory_for_ever_are_found(module, name):
    # Without gangs and arrays, whose runs differ, 308 has such tasks.
    without = patch.object(gangs, "P_GANGS", 0.0), patch.object(arrays, "P_ARRAYS", 0.0)
    with without[0], without[1], patch.object(module, name, lambda *_: None):
        report = run_until_failure(5, first=306)
    assert "never ends" in report


@pytest.mark.slow
def test_a_wrong_count_is_found_at_the_event_that_makes_it_wrong():
    free = completion.free_resources

    turns = itertools.cycle([True, False])

    def forget_half(ws, resources, n=1) -> None:
        if next(turns):
            free(ws, resources, n)

    with patch.object(completion, "free_resources", forget_half):
        assert "free and held resources of a worker" in run_until_failure(60)
