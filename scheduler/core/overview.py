"""The question `overview`: the cluster on one page, for status pages and commands.

It looks at each worker and function once, never at tasks, so that it takes at most about 1 ms with
1 000 workers and any number of tasks.
"""

from __future__ import annotations

from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.message import MAX_NUMBER
from .asked import Info, Page
from .barrier import waits_for
from .desired import desired_workers
from .health import MAX_NAMED, MEMORY_HIGH, RefusedWorkers, Signs, Unrunnable, judge
from .info import task_counts
from .prefixes import MAX_SHOWN, OTHER, Prefix
from .refusals import explain_unrunnable, recent_refusals
from .tasks import WITHOUT_RECIPE

if TYPE_CHECKING:
    from .state import SchedulerState

_BY_WORK: Final = attrgetter("n_unfinished", "compute_ns")


def ask_overview(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the cluster on one page."""
    return overview(state), ""


def overview(state: SchedulerState) -> dict[str, Any]:
    """Describe the cluster on one page. O(workers + functions + task classes)."""
    facts = state.facts
    workers = _Workers(state)
    tasks = task_counts(state)
    prefixes = [prefix for _, prefix in state.prefixes.items()]
    started = state.now if state.started is None else state.started
    return {
        "name": str(facts.get("name", "")),
        "version": str(facts.get("weft", "")),
        "python": str(facts.get("python", "")),
        "host": str(facts.get("host", "")),
        "pid": facts.get("pid", 0),
        "epoch": state.epoch,
        "uptime_s": state.now - started,
        "recovering": waits_for(state),
        "tasks": tasks,
        "n_workers": {
            "running": len(state.workers) - workers.n_leaving - workers.n_away,
            "leaving": workers.n_leaving,
            "away": workers.n_away,
        },
        "threads": workers.threads,
        "threads_busy": workers.busy,
        "memory": {
            "managed": min(workers.managed, MAX_NUMBER),
            "resident": min(workers.resident, MAX_NUMBER),
            "limit": min(workers.limit, MAX_NUMBER),
        },
        "n_clients": len(state.clients),
        "desired_workers": desired_workers(state).n_workers,
        "cpu_s": float(state.measurements.get("cpu_seconds_total", 0.0)),
        "loop_lag_s": state.recent.load.loop_lag_s,
        "totals": _totals(state),
        "functions": _functions(prefixes, state.prefixes.dropped),
        "failures": [
            {
                "key": failure.key,
                "function": failure.function,
                "kind": failure.kind,
                "text": failure.text,
                "worker": failure.worker,
                "age_s": state.now - failure.when,
            }
            for failure in reversed(state.recent.failures)
        ],
        "health": judge(_signs(state, tasks, workers, prefixes)),
    }


class _Workers:
    """Sums over all workers, made in one pass."""

    def __init__(self, state: SchedulerState) -> None:
        self.n_leaving = self.n_away = 0
        self.threads = self.busy = 0
        self.managed = self.resident = self.limit = 0
        #: (part of its limit, name) of those above MEMORY_HIGH
        self.full: list[tuple[float, str]] = []
        #: when one that has tasks last finished something, or got a task while it was idle
        self.progress = float("-inf")
        for ws in state.workers.values():
            nthreads, n_processing = ws.nthreads, len(ws.processing)
            resident, limit = ws.resident_nbytes, ws.memory_limit
            if ws.is_away:
                self.n_away += 1
            elif ws.is_leaving:
                self.n_leaving += 1
            self.threads += nthreads
            self.busy += min(nthreads, n_processing)
            if n_processing and ws.last_progress > self.progress:
                self.progress = ws.last_progress
            self.resident += resident
            self.limit += limit
            if resident > MEMORY_HIGH * limit > 0:
                self.full.append((resident / limit, ws.name))
            if ws.status is not None:
                self.managed += ws.status.managed_nbytes


def _signs(
    state: SchedulerState, tasks: dict[str, int], workers: _Workers, prefixes: list[Prefix]
) -> Signs:
    """Collect the facts by which the health of the cluster is judged."""
    workerless_s = None
    if not state.staying:
        since = state.recent.workerless_since
        workerless_s = state.now - (since if since is not None else state.started or state.now)
    running = [prefix for prefix in prefixes if prefix.n_processing]
    is_known = all(prefix.n_finished for prefix in running)
    expected_s = max((prefix.estimate_ns for prefix in running), default=0) / 1e9
    return Signs(
        recovering=waits_for(state),
        n_waiting=tasks["queued"] + tasks["no_worker"],
        workerless_s=workerless_s,
        unrunnable=_unrunnable(state) if tasks["no_worker"] and state.staying else [],
        n_away=workers.n_away,
        away_s=state.away_s,
        full=nlargest(MAX_NAMED, workers.full),
        n_full=len(workers.full),
        refused=_refused(state),
        n_processing=tasks["processing"],
        quiet_s=state.now - workers.progress if tasks["processing"] else 0.0,
        expected_s=expected_s if is_known else None,
        load=state.recent.load,
    )


def _unrunnable(state: SchedulerState) -> list[Unrunnable]:
    """Return the tasks that no worker may run, by class, the most tasks first.

    Only those that were set aside for longer than a moment.
    """
    classes = [
        c
        for c in state.classes.values()
        if c.unrunnable
        and not c.members
        and c.key is not WITHOUT_RECIPE
        and state.now - c.unrunnable_since >= state.unrunnable_after_s
    ]
    classes.sort(key=lambda c: -len(c.unrunnable))
    return [
        Unrunnable(
            len(c.unrunnable),
            next(iter(c.unrunnable)).group.prefix.name,
            # The later ones are only counted.
            explain_unrunnable(state, c) if i < MAX_NAMED else "",
            state.now - c.unrunnable_since,
        )
        for i, c in enumerate(classes)
    ]


def _refused(state: SchedulerState) -> list[RefusedWorkers]:
    """Return the reasons for which workers were refused, the latest first."""
    by_why: dict[str, list[float]] = {}
    for refusal in reversed(recent_refusals(state)):
        by_why.setdefault(refusal.why, []).append(refusal.when)
    return [RefusedWorkers(len(when), why, state.now - when[0]) for why, when in by_why.items()]


def _totals(state: SchedulerState) -> dict[str, int]:
    """Return counts that never go back."""
    counters = state.counters
    return {
        "submitted": counters.tasks_submitted,
        "completed": counters.tasks_completed,
        "failed": counters.tasks_failed_exception
        + counters.tasks_failed_worker_died
        + counters.tasks_failed_lost_data,
        "cancelled": counters.tasks_cancelled,
        "retried": counters.tasks_retried,
        "recomputed": counters.tasks_recomputed,
        "workers_lost": counters.workers_lost,
    }


def _functions(prefixes: list[Prefix], dropped: Prefix) -> list[dict[str, Any]]:
    """Describe the functions: those with most unfinished tasks, and all others together.

    Of those without unfinished tasks, the ones that took most time come first.
    """
    prefixes = sorted(prefixes, key=_BY_WORK, reverse=True)
    described = [_describe(prefix) for prefix in prefixes[:MAX_SHOWN]]
    rest = prefixes[MAX_SHOWN:]
    if rest or dropped.n_finished or dropped.n_failed:
        others = Prefix(OTHER)
        for prefix in (*rest, dropped):
            others.n_finished += prefix.n_finished
            others.n_failed += prefix.n_failed
            others.n_unfinished += prefix.n_unfinished
            others.n_processing += prefix.n_processing
            others.n_before += prefix.n_before
            others.n_failed_before += prefix.n_failed_before
            others.compute_ns += prefix.compute_ns
        described.append(_describe(others))
    return described


def _describe(prefix: Prefix) -> dict[str, Any]:
    return {
        "name": prefix.name,
        "n_finished": prefix.n_finished,
        "n_failed": prefix.n_failed,
        "n_unfinished": prefix.n_unfinished,
        "n_processing": prefix.n_processing,
        # of those since it last had no unfinished task; and of these, those that failed
        "n_done": prefix.n_finished + prefix.n_failed - prefix.n_before,
        "n_done_failed": prefix.n_failed - prefix.n_failed_before,
        "compute_s": prefix.compute_ns / 1e9,
    }
