"""The metrics of the scheduler and their values, which are read off the state only on request.

A metric is declared once: counters in `counters.py`, what is read off the state by the feature that
it is of (here in `SHOWN` and `_FOUND`), what the shell measures in `_MEASURED`, the numbers of
workers and supervisors in `protocol/reported.py`.

Nothing here walks over tasks: the cost is that of the workers, of the classes of tasks, and of at
most 50 names of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ....protocol.metrics import Metric
from ....protocol.reported import OF_SUPERVISORS, OF_WORKERS
from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_NUMBER
from ..blocking.feature import is_barred
from ..feature import Feature, StateMetric
from ..job_queues.feature import is_held_by_queue, paused_queues_of
from ..memory.records import memory_of
from ..plugins.plugins import is_preparing, n_preparing
from ..records.counters import COUNTED, totals
from ..records.peers import AWAY, LEAVING, PAUSED
from ..upkeep.running_limits import is_held, running_limits_of
from .cluster_totals import totals_of
from .desired import Desired, desired_workers
from .info import task_counts
from .recent_failures import recent_of

if TYPE_CHECKING:
    from ..records.prefixes import Series
    from ..state import SchedulerState


@dataclass(frozen=True, slots=True)
class _Found(Metric):
    """A metric that comes of the pass over all workers that `desired_workers` makes."""

    read: Callable[[SchedulerState, Desired], Any] = lambda state, found: 0


def _by_prefix(name: str, text: str, field: str, per_unit: int = 1) -> StateMetric:
    """Declare a counter with a value per function name."""
    get: Callable[[Series], int] = attrgetter(field)

    def read(state: SchedulerState) -> dict[str, float]:
        if per_unit == 1:
            return state.prefixes.totals(lambda series: min(get(series), MAX_NUMBER))
        return state.prefixes.totals(lambda series: get(series) / per_unit)

    return StateMetric(name, text, ("prefix",), read=read)


def count_workers(state: SchedulerState) -> dict[str, int]:
    """Count the workers by state; only those that run get tasks."""
    n, n_leaving, n_away = len(state.workers), 0, -n_preparing(state)
    n_paused = sum(not ws.closed & (AWAY | LEAVING) for ws in memory_of(state).paused)
    n_blocked = 0
    for ws in state.workers.values():
        n_blocked += is_barred(ws) and not ws.closed & (AWAY | LEAVING | PAUSED)
        n_away += ws.is_away
        n_leaving += ws.is_leaving and (not ws.is_away or is_preparing(state, ws))
    n_running = n - n_paused - n_blocked - n_leaving - n_away
    counts = {"running": n_running, "paused": n_paused, "blocked": n_blocked}
    return {**counts, "leaving": n_leaving, "away": n_away}


def count_unrunnable(state: SchedulerState) -> dict[str, int]:
    """Count the tasks that could run now, but that no worker may run, by the reason. O(classes)."""
    counts = dict.fromkeys(
        ("no_workers", "workers", "resources", "inputs", "memory", "paused", "held", "no_recipe"), 0
    )
    for task_class in state.classes.values():
        n = len(task_class.unrunnable)
        if n and state.paused:
            n_paused = sum(task in state.paused for task in task_class.unrunnable)
            counts["paused"] += n_paused
            n -= n_paused
        if n and memory_of(state).aside:
            n_aside = sum(task in memory_of(state).aside for task in task_class.unrunnable)
            counts["memory"] += n_aside
            n -= n_aside
        if n and running_limits_of(state):
            n_held = sum(is_held(state, task) for task in task_class.unrunnable)
            counts["held"] += n_held
            n -= n_held
        if n and paused_queues_of(state):
            n_held = sum(is_held_by_queue(state, task) for task in task_class.unrunnable)
            counts["held"] += n_held
            n -= n_held
        if not n:
            continue
        if not task_class.has_recipes:
            reason = "no_recipe"
        elif task_class.members:
            reason = "inputs"
        elif not state.staying:
            reason = "no_workers"
        else:
            reason = "workers" if task_class.workers else "resources"
        counts[reason] += n
    return counts


def _epoch_s(state: SchedulerState) -> float:
    return state.epoch / 1e9


#: What is read off the state; features have their own.
SHOWN: Final = (
    StateMetric(
        "unrunnable_tasks",
        "Tasks that could run now, but that no worker may run: there is none (no_workers), none of "
        "the wanted workers (workers) or none that offers their resources (resources) is "
        "connected, their inputs are out of reach (inputs), they would add to workers whose memory "
        "is nearly full (memory), they pause before a retry (paused), as many of their user run as "
        "may or their queue is paused (held), or their client has not come "
        "back yet (no_recipe).",
        ("reason",),
        read=count_unrunnable,
    ),
    StateMetric(
        "task_duration_seconds",
        "Time that attempts ran which finished.",
        is_histogram=True,
        read=lambda state: state.prefixes.durations.plain(),
    ),
    StateMetric(
        "task_queue_seconds",
        "Time that tasks waited for a worker, and there for a thread and their inputs: from when "
        "they could last run (at their submission, when their inputs were there, or when they were "
        "to run again), or were sent ahead to the worker of their inputs, to their start.",
        is_histogram=True,
        read=lambda state: state.prefixes.queue_times.plain(),
    ),
    _by_prefix("tasks_finished_total", "Tasks that finished, by function.", "n_finished"),
    _by_prefix("attempts_raised_total", "Attempts that raised, by function.", "n_raised"),
    _by_prefix(
        "task_compute_seconds_total",
        "Time that attempts ran which finished, by function.",
        "compute_ns",
        10**9,
    ),
    _by_prefix(
        "task_erred_seconds_total",
        "Time that attempts ran which raised, by function.",
        "erred_us",
        10**6,
    ),
    _by_prefix(
        "task_queued_seconds_total",
        "Time from the arrival of attempts at a worker to the start of their chunk, by function.",
        "queued_us",
        10**6,
    ),
    _by_prefix(
        "task_fetched_seconds_total",
        "The part of the queued time until the last input came from another worker, by function.",
        "fetched_us",
        10**6,
    ),
    _by_prefix("task_output_bytes_total", "Bytes of results, by function.", "nbytes"),
    StateMetric(
        "workers",
        "Workers by state: they get no tasks while their processes use too much memory (paused), "
        "users have blocked them, they leave in order, or their connection is broken and they are "
        "expected back.",
        ("state",),
        read=count_workers,
    ),
    StateMetric(
        "clients",
        "Clients that are connected or expected back.",
        read=lambda state: len(state.clients),
    ),
    StateMetric("connections", "Open connections.", read=lambda state: len(state.roles)),
    StateMetric(
        "epoch_timestamp_seconds",
        "When the scheduler started.",
        read=_epoch_s,
    ),
)
#: What is found in one pass over the workers.
_FOUND: Final = (
    _Found(
        "tasks",
        "Tasks that the scheduler knows, by state.",
        ("state",),
        read=lambda state, found: task_counts(state, found.at_workers.n_processing),
    ),
    _Found(
        "desired_workers",
        "Workers that would finish the present work in about the target time.",
        read=lambda state, found: found.n_workers,
    ),
    _Found(
        "worker_threads_busy",
        "Threads that have a task.",
        read=lambda state, found: found.at_workers.n_threads_busy,
    ),
    _Found(
        "results_bytes",
        "Bytes of the results and copies that should be at workers, by their sizes when they were "
        "made.",
        read=lambda state, found: min(found.at_workers.nbytes, MAX_NUMBER),
    ),
)
#: Values that the shell measures and passes in with ticks (`SchedulerTick.measurements`).
_MEASURED: Final = (
    Metric("auth_failures_total", "Connections refused before they proved the token."),
    Metric("bytes_total", "Bytes on all connections, by the peer's role.", ("direction", "peer")),
    Metric("frames_total", "Frames on all connections, by the peer's role.", ("direction", "peer")),
    Metric(
        "messages_total", "Messages received and sent, by the peer's role.", ("direction", "peer")
    ),
    Metric("cpu_seconds_total", "Processor time of the scheduler's process."),
    Metric(
        "loop_seconds_total",
        "Time of turns of the event loop: core = handle the messages that had come, send = encode "
        "and write the answers. It has neither reading and decoding, nor what is handled outside "
        "of turns: ticks, and short messages that come while a turn is due. cpu_seconds_total has "
        "all.",
        ("activity",),
    ),
    Metric(
        "event_loop_lag_seconds",
        "How late the event loop's timer was, measured four times per second while there is work.",
        is_histogram=True,
    ),
    Metric("gc_seconds_total", "Time in which the collector of garbage has stopped the scheduler."),
    Metric(
        "python_gc_collections_total",
        "Collections of garbage, by generation.",
        ("generation",),
    ),
    Metric("python_gc_objects_collected_total", "Objects that they have freed.", ("generation",)),
    Metric(
        "python_gc_objects_uncollectable_total",
        "Objects that they could not free.",
        ("generation",),
    ),
)


def declared(features: Sequence[Feature]) -> dict[str, Metric]:
    """Return every metric of a scheduler's page that has its own declaration, by name."""
    shown = [metric for feature in features for metric in feature.metrics]
    every = (*COUNTED, *shown, *_FOUND, *_MEASURED, *OF_WORKERS, *OF_SUPERVISORS)
    return {metric.name: metric for metric in every}


def metrics(state: SchedulerState) -> dict[str, Any]:
    """Return every metric: name -> number, {label: number}, or the plain form of a histogram.

    The numbers of workers and supervisors are summed over those that have no page of their own.
    """
    found = desired_workers(state)
    return {
        **{metric.name: metric.read(state) for metric in state.features.metrics},
        **{metric.name: metric.read(state, found) for metric in _FOUND},
        **totals(state.counters),
        **totals_of(state).of_workers.values(),
        **totals_of(state).of_supervisors.values(),
        **recent_of(state).measurements,
    }


def on_get_metrics(state: SchedulerState, peer: int, message: m.GetMetrics) -> None:
    """A viewer asks for all metrics."""
    state.send(peer, m.Metrics(request=message.request, values=metrics(state)))
