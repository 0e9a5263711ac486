"""What must hold at rest: wanted tasks have ended, processes agree, at the end nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.client.core.features.coordination import calls_of
from weft.scheduler.core.data.relays import relays_of
from weft.scheduler.core.interruption.interrupted import interruptions_of
from weft.scheduler.core.invariants.validate import validate as validate_scheduler
from weft.scheduler.core.recovery.records import KEPT, recovery_of

from . import copies, following, memory, pausing, plugins, reading, retiring
from .client_node import FAILED
from .graphs import INDEX

if TYPE_CHECKING:
    from .simulation import Simulation


def check_ends(sim: Simulation) -> None:
    """Check that every wanted key has its value or the expected failure."""
    retiring.check(sim)
    plugins.check(sim)
    reading.check(sim)
    following.check(sim)
    copies.check(sim)
    for client in sim.clients:
        if not client.is_alive:
            continue
        assert client.core.is_linked, f"{client!r} is not connected"
        for future in client.futures:
            state = future.state
            assert state.status != "pending", _why_pending(sim, future.spec.key, state)
            if state.status == "finished":
                is_read = state.has_data or future.spec.function == INDEX
                assert is_read, f"{state!r} was watched and its data never came"
                assert future.spec.can_finish, f"{state!r} cannot have finished"
        for watcher in client.watchers:
            left = [s for s in watcher.awaited if s.status != "pending" and s.has_data]
            assert not left, f"{client!r}: {left} are ready and the watcher was not told"
    parents = [one.describe() for worker in sim.workers.values() for one in worker.parents.values()]
    assert not parents, f"tasks that submit tasks never end: {parents}"


def _why_pending(sim: Simulation, key: str, state: Any) -> str:
    known = sim.scheduler.known(key)
    lines = [f"{state!r} never ends (phase {state.phase}); the scheduler has {known!r}"]
    stack = [known] if known is not None else []
    while stack and len(lines) < 10:
        task = stack.pop()
        lines.append(f"  {task!r} on {task.worker!r} attempt {task.attempt}")
        stack.extend(d for d in task.waiting_on or ())
    for worker in sim.workers.values():
        record = worker.core.by_key.get(key)
        if record is not None:
            lines.append(f"  {worker!r} has {record!r}")
        lines += [f"  {parent.describe()}" for parent in worker.parents.values()]
    return "\n".join(lines)


def check_agreement(sim: Simulation) -> None:
    """Check that, at rest, all processes agree about wanted keys and their holders."""
    core = sim.scheduler.core
    validate_scheduler(core)
    for client in sim.clients:
        if not client.is_alive:
            continue
        handle = core.clients[client.client_id]
        for task in handle.wants:
            if task.delivered:
                got = client.table.states[task.key]
                # One that failed before it was run again, for others, stays failed.
                has = got.has_data or got.failure is not None
                assert has, f"{client!r} never got what was delivered: {got!r}"
        theirs = {task.key: None for task in handle.wants}
        mine = client.wants()
        odd = [key for key in theirs if key not in mine]
        assert not odd, f"the scheduler thinks that {client!r} wants {odd}"
        # A failed task is not needed. A finished one is not reported to a scheduler that is
        # new, gave up waiting, or missed the last submission of a result of an earlier one.
        forgot = (
            sim.n_restarts or core.counters.clients_expired or client.session.machine.number > 1
        )
        over = (*FAILED, "finished") if forgot else FAILED
        odd = [key for key in mine if key not in theirs]
        odd = [key for key in odd if client.table.states[key].status not in over]
        # A forced cancel ends the wants of others too, but keeps results that they have.
        odd = [key for key in odd if key not in sim.cancelled]
        assert not odd, f"the scheduler does not know that {client!r} wants {odd}"
    assert len(core.workers) == len(sim.workers), "all workers are registered"
    for worker in sim.workers.values():
        ws = core.workers_by_id[worker.worker_id]
        waiting = [
            (row.key, row.attempt)
            for row in recovery_of(core).rows_at.get(ws, {}).values()
            if row.kind == KEPT
        ]
        theirs_kept = sorted([(task.key, task.attempt) for task in ws.has_what] + waiting)
        kept = sorted(
            (record.key, record.attempt)
            for record in worker.core.by_key.values()
            if record.state == "memory"
        )
        assert theirs_kept == kept, f"{worker!r} has {kept}, the scheduler thinks {theirs_kept}"
        nbytes = sum(sim.nbytes(key) for key, _ in kept) - sum(
            sim.nbytes(key) for key, _ in waiting
        )
        assert ws.nbytes == nbytes, f"{worker!r} has {nbytes} bytes, and not {ws.nbytes}"
        for task in ws.processing.values():
            record = worker.core.by_attempt.get(task.attempt)
            assert record is not None, f"{worker!r} does not have {task!r}"
        worker.check_at_rest()
    memory.check_at_rest(sim)
    pausing.check_at_rest(sim)


def lets_go_later(sim: Simulation) -> bool:
    """Return whether the scheduler keeps tasks for some time yet: their clients may come back."""
    core = sim.scheduler.core
    is_leased = any(client.lease is not None for client in core.clients.values())
    return is_leased or core.awaits_owners or sim.gangs.wait_for_members(core)


def check_empty(sim: Simulation) -> None:
    """Check that, when all clients have left, nothing is left anywhere."""
    core = sim.scheduler.core
    validate_scheduler(core)
    assert not core.tasks, f"tasks are left: {list(core.tasks.values())}"
    used = [f for f in core.functions.values() if f not in core.idle_functions]
    assert not used, "functions are left"
    waited_for = [ws for ws in core.workers.values() if ws.zombies]
    assert not waited_for, f"attempts that never ended, it seems: {waited_for}"
    assert list(core.classes.values()) == [core.default_class], "classes are left"
    assert not relays_of(core), "relays are left"
    assert not recovery_of(core).rows, "rows of inventories are left"
    assert not recovery_of(core).functions, "functions of earlier schedulers are left"
    assert not recovery_of(core).twins, "attempts that run twice are left"
    assert not core.failed_at, "failures are left"
    assert not interruptions_of(core), "interrupted attempts are left"
    away = [ws for ws in core.workers.values() if ws.is_away]
    assert not away, f"workers are expected back: {away}"
    memory.check_at_rest(sim)
    pausing.check_at_rest(sim)
    for client in sim.clients:
        if client.is_alive:
            assert not client.table.states, f"{client!r} has futures left"
            assert not client.core.unsent
    for worker in sim.workers.values():
        worker.check_at_rest()
        assert not worker.core.by_key, f"{worker!r} keeps {list(worker.core.by_key.values())}"
        assert not worker.store, f"{worker!r} keeps values"
        actors = list(worker.actors.by_attempt.values())
        assert not actors, f"actors are left: {actors}"
        kept = list(worker.core.failures.by_attempt)
        assert not kept, f"{worker!r} keeps the failures of {kept}"
        ws = core.workers_by_id[worker.worker_id]
        sent = [f.function_id for f in core.idle_functions if ws in f.workers]
        assert sorted(worker.core.functions) == sorted(sent), f"{worker!r} keeps functions"
        inside = worker.task_client
        if inside is not None:
            assert not inside.table.states, f"{inside!r} has futures left"
            assert not calls_of(inside.core).leases, f"{inside!r} holds locks"


def count_probes(sim: Simulation) -> None:
    """Note how often the scheduler counted what is rare."""
    counters = sim.scheduler.core.counters
    for name in (
        "tasks_completed",
        "tasks_failed_memory",
        "tasks_failed_worker_died",
        "tasks_retried",
        "tasks_recomputed",
        "tasks_returned",
        "tasks_assigned_ahead",
        "tasks_cancelled",
        "reports_stale",
        "replicas_missing",
        "clients_expired",
    ):
        sim.world.probes[name] += getattr(counters, name)
    n_timed_out = interruptions_of(sim.scheduler.core).n_timed_out
    sim.world.probes["attempts_timed_out"] += n_timed_out
