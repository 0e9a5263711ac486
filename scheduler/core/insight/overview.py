"""The question `overview`: the cluster on one page, for status pages and commands.

It looks at each worker once, and never at all tasks or all functions, so that it takes about
1 ms (0.8 ms on an idle machine) with 1 000 workers, any number of tasks and 200 functions with
work.
"""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.message import MAX_NUMBER
from ....protocol.wire.question_arguments import Info, Page
from ..blocking.feature import block_of, blocks_of
from ..journal.jobs import journal_of
from ..leaving.describing import describe, held_up
from ..memory.records import memory_of
from ..moves.transitions import ACTIVE
from ..plugins.plugins import n_preparing
from ..plugins.records import plugins_of
from ..records.prefixes import MAX_SHOWN, OTHER, Prefix
from ..recovery.barrier import waits_for
from .closed import memory_text
from .cluster_totals import totals_of
from .desired import AtWorkers, desired_workers
from .health import MAX_NAMED, RefusedWorkers, SetAside, Signs, Unrunnable, judge
from .info import task_counts
from .metrics import count_workers
from .recent_failures import recent_of
from .refused_workers import current_refusals, explain_unrunnable
from .unreached_workers import recently_unreached

if TYPE_CHECKING:
    from ..state import SchedulerState

_BY_WORK: Final = attrgetter("n_unfinished", "compute_ns")


def ask_overview(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the cluster on one page."""
    return overview(state), ""


def overview(state: SchedulerState) -> dict[str, Any]:
    """Describe the cluster on one page. O(workers + functions + task classes)."""
    facts = state.facts
    totals = totals_of(state)
    desired = desired_workers(state)
    tasks = task_counts(state, desired.at_workers.n_processing)
    with_work = state.prefixes.with_work()
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
        "n_workers": count_workers(state),
        "threads": totals.nthreads,
        "threads_busy": desired.at_workers.n_threads_busy,
        "memory": {
            "managed": min(totals.managed, MAX_NUMBER),
            "resident": min(totals.resident, MAX_NUMBER),
            "limit": min(totals.memory_limit, MAX_NUMBER),
        },
        "n_clients": len(state.clients),
        "desired_workers": desired.n_workers,
        "cpu_s": float(recent_of(state).measurements.get("cpu_seconds_total", 0.0)),
        "loop_lag_s": recent_of(state).load.loop_lag_s,
        "totals": _totals(state),
        "functions": _functions(state, tasks, with_work),
        "failures": [
            failure.described(state.now) for failure in reversed(recent_of(state).failures)
        ],
        "failure_groups": recent_of(state).described_groups(state.now),
        "health": judge(_signs(state, tasks, desired.at_workers, with_work)),
    }


def _signs(
    state: SchedulerState, tasks: dict[str, int], at_workers: AtWorkers, with_work: list[Prefix]
) -> Signs:
    """Collect the facts by which the health of the cluster is judged."""
    workerless_s = None
    if not state.staying:
        since = recent_of(state).workerless_since
        workerless_s = state.now - (since if since is not None else state.started or state.now)
    running = [prefix for prefix in with_work if prefix.n_processing]
    is_known = all(prefix.n_finished for prefix in running)
    expected_s = max((prefix.estimate_ns for prefix in running), default=0) / 1e9
    leaving = held_up(state)
    full = [(ws.resident_nbytes / ws.memory_limit, ws.name) for ws in totals_of(state).full]
    return Signs(
        recovering=waits_for(state),
        n_waiting=tasks["queued"] + tasks["no_worker"],
        workerless_s=workerless_s,
        unrunnable=_unrunnable(state) if tasks["no_worker"] and state.staying else [],
        n_away=count_workers(state)["away"],
        n_preparing=n_preparing(state),
        away_s=state.settings.away_s,
        leaving=[f"{ws.name}: {describe(state, ws)}" for ws in leaving[:MAX_NAMED]],
        n_leaving=len(leaving),
        full=nlargest(MAX_NAMED, full),
        n_full=len(full),
        **_blocked(state),
        n_set_aside=len(memory_of(state).aside),
        paused=[
            f"{ws.name}: {memory_text(ws)}" for ws in islice(memory_of(state).paused, MAX_NAMED)
        ],
        n_paused=len(memory_of(state).paused),
        refused=_refused(state),
        n_processing=tasks["processing"],
        quiet_s=state.now - at_workers.last_progress if tasks["processing"] else 0.0,
        expected_s=expected_s if is_known else None,
        load=recent_of(state).load,
        unreached=recently_unreached(state),
        set_aside=[
            SetAside(plugin.name, plugin.n_deaths, plugin.last_death)
            for plugin in plugins_of(state).kept.values()
            if plugin.is_aside
        ],
        journal_error=journal_of(state).error,
        journal_s=state.now - journal_of(state).failed_at,
    )


def _blocked(state: SchedulerState) -> dict[str, Any]:
    """Return the facts about blocked workers: all if there is no other, else what no user did."""
    if not blocks_of(state):
        return {}
    blocks = {ws: block_of(state, ws) for ws in state.staying.values()}
    are_all = bool(blocks) and all(blocks.values())
    found = [(ws, one) for ws, one in blocks.items() if one and (are_all or one.is_automatic)]
    return {
        "blocked": [f"{ws.name}: {one.describe()}" for ws, one in found[:MAX_NAMED]],
        "n_blocked": len(found),
        "are_all_blocked": are_all,
    }


def _unrunnable(state: SchedulerState) -> list[Unrunnable]:
    """Return the tasks that no worker may run, by class, the most tasks first.

    Only those that were set aside for longer than a moment.
    """
    classes = [
        c
        for c in state.classes.values()
        if c.unrunnable
        and not c.members
        and c.has_recipes
        and state.now - c.unrunnable_since >= state.settings.unrunnable_after_s
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
    for refusal in reversed(current_refusals(state)):
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
        + counters.tasks_failed_lost_data
        + counters.tasks_failed_memory,
        "cancelled": counters.tasks_cancelled,
        "retried": counters.tasks_retried,
        "recomputed": counters.tasks_recomputed,
        "workers_lost": counters.workers_lost,
    }


def _functions(
    state: SchedulerState, tasks: dict[str, int], with_work: list[Prefix]
) -> list[dict[str, Any]]:
    """Describe the functions: those with most unfinished tasks, and all others together.

    Of those without unfinished tasks, the ones that took most time come first.
    """
    prefixes = state.prefixes
    dropped = prefixes.dropped
    shown = nlargest(MAX_SHOWN, prefixes.of_interest(with_work), key=_BY_WORK)
    described = [_describe(prefix) for prefix in shown]
    if len(prefixes) > len(shown) or dropped.n_finished or dropped.n_failed:
        # The sums over all are known, so that the others need not be looked at.
        others = Prefix(OTHER)
        others.n_finished = state.counters.tasks_completed
        others.n_failed = state.counters.n_failed
        others.n_unfinished = sum(tasks[name] for name in ACTIVE)
        others.n_processing = tasks["processing"]
        others.n_before = prefixes.n_before
        others.n_failed_before = prefixes.n_failed_before
        others.compute_ns = prefixes.compute_ns
        for prefix in shown:
            others.n_finished -= prefix.n_finished
            others.n_failed -= prefix.n_failed
            others.n_unfinished -= prefix.n_unfinished
            others.n_processing -= prefix.n_processing
            others.n_before -= prefix.n_before
            others.n_failed_before -= prefix.n_failed_before
            others.compute_ns -= prefix.compute_ns
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
        # expected of the next result; 0 = small, or not known
        "result_nbytes": prefix.result_nbytes,
    }
