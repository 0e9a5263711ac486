"""The numbers that workers and supervisors report about themselves, as metrics.

They travel as one list of whole numbers, in the order of these tables: one per value of the label,
microseconds for a time, one per bucket and the sum for a histogram. New ones are added at the end
of a table. A receiver takes those that are missing, because the sender is of an earlier version,
as 0, and leaves out those that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .metrics import N_BUCKETS, Histogram, Metric

#: The fact of a worker or supervisor whose family has a metrics page of its own: its URL. The
#: scheduler leaves it out of the sums, so that no number is on two pages.
METRICS_URL: Final = "metrics_url"
#: The fact of a worker that writes results to its disk when its memory is nearly full.
SPILLS: Final = "spills"
#: The fact of a worker that starts a task with resources only when they are free there.
QUEUES_RESOURCES: Final = "queues_resources"
#: The fact of a worker that ends at a time that is known: for how long after its registration its
#: tasks may run, seconds.
TIME_LEFT: Final = "time_left_s"
#: A worker that uses more than this part of its limit is nearly full.
MEMORY_HIGH: Final = 0.8
#: Of these results, the bytes that are on the disk and not in memory.
SPILLED_BYTES: Final = "weft_worker_spilled_bytes"


@dataclass(frozen=True, slots=True)
class Reported(Metric):
    """A metric that is reported.

    Attributes:
        values: of its label, in the order of their numbers; () = it has no label.
    """

    values: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """How many numbers it has in the list."""
        return N_BUCKETS + 1 if self.is_histogram else max(len(self.values), 1)

    @property
    def is_time(self) -> bool:
        """Whether its numbers are microseconds."""
        return self.name.endswith(("_seconds", "_seconds_total"))


DIRECTIONS: Final = ("in", "out")
ACTIVITIES: Final = ("compute", "deserialize", "serialize", "fetch_wait", "idle", "other")
GENERATIONS: Final = ("0", "1", "2")

#: What a worker reports.
OF_WORKERS: Final = (
    Reported(
        "weft_worker_tasks",
        "Tasks and copies that are not in memory yet, by state.",
        ("state",),
        values=("executing", "ready", "waiting", "fetching"),
    ),
    Reported("weft_worker_results", "Results and copies in memory."),
    Reported("weft_worker_threads", "Threads that run tasks."),
    Reported(
        "weft_worker_activity_seconds_total",
        "Time of the threads that run tasks, by what they do: compute, (de)serialize arguments, "
        "functions and small results, fetch_wait = wait for inputs from other workers, idle, other "
        "= report and take tasks. All together are the time since the start, per thread.",
        ("activity",),
        values=ACTIVITIES,
    ),
    Reported(
        "weft_worker_tasks_executed_total",
        "Attempts that ended, by how they did.",
        ("outcome",),
        values=("finished", "raised"),
    ),
    Reported(
        "weft_worker_transfer_bytes_total",
        "Bytes of results that were fetched from other workers (in), or sent to workers and "
        "clients that fetched them (out).",
        ("direction",),
        values=DIRECTIONS,
    ),
    Reported(
        "weft_worker_transfers_total",
        "Requests for results that were made (in) or answered (out).",
        ("direction",),
        values=DIRECTIONS,
    ),
    Reported(
        "weft_worker_transfer_failures_total",
        "Requests for results that failed: the other end was out of reach, or did not have them.",
        ("direction",),
        values=DIRECTIONS,
    ),
    Reported(
        "weft_worker_transfer_seconds",
        "Time from a request for results to another worker until they were here.",
        is_histogram=True,
    ),
    Reported(
        "weft_worker_event_loop_lag_seconds",
        "How late the event loop's timer was, measured once per second.",
        is_histogram=True,
    ),
    Reported("weft_worker_cpu_seconds_total", "Processor time of the worker's process."),
    Reported(
        "weft_worker_gc_collections_total",
        "Collections of garbage, by generation.",
        ("generation",),
        values=GENERATIONS,
    ),
    Reported(
        "weft_worker_memory_bytes",
        "Memory of the worker's process: managed is that of the values in its store, unmanaged the "
        "rest.",
        ("kind",),
        values=("managed", "unmanaged"),
    ),
    Reported("weft_worker_memory_limit_bytes", "The memory limit; 0 = there is none."),
    Reported(SPILLED_BYTES, "Results and copies that are on disk, not in memory."),
    Reported(
        "weft_worker_spill_bytes_total",
        "Bytes of results that were written to disk because memory was short, or read from there.",
        ("direction",),
        values=("written", "read"),
    ),
    Reported(
        "weft_worker_unspillable_bytes",
        "Results that were to leave memory and cannot be written: they cannot be pickled.",
    ),
)

#: Why workers die, as their supervisors report it: `WorkerExited.kind`.
DEATHS: Final = ("exit", "signal", "memory", "crash")
#: The kind of an end that somebody has asked for: in `WorkerExited.kind` only.
REQUESTED: Final = "requested"
#: Why a worker ends that a plugin of its supervisor replaces: `WorkerExited.reason`.
RENEWED: Final = "restarted, because a plugin of its supervisor asks for it"

#: What a supervisor reports.
OF_SUPERVISORS: Final = (
    Reported("weft_supervisor_workers", "Worker processes that exist."),
    Reported("weft_supervisor_workers_started_total", "Worker processes that were started."),
    Reported(
        "weft_supervisor_workers_died_total",
        "Worker processes that ended without a request: with an exit code, by a signal of another "
        "process, by the memory limit or the kernel's out-of-memory killer, or because weft's own "
        "code failed in them.",
        ("reason",),
        values=DEATHS,
    ),
    Reported(
        "weft_supervisor_memory_bytes",
        "Resident memory of the supervisor and its workers.",
    ),
)


def n_numbers(table: Sequence[Reported]) -> int:
    """Return the length of the list of a table's numbers."""
    return sum(metric.n for metric in table)


def number_of(table: Sequence[Reported], numbers: Sequence[int], name: str) -> int:
    """Return the number of a metric without a label; 0 if it is not reported."""
    start = 0
    for metric in table:
        if metric.name == name:
            return numbers[start] if start < len(numbers) else 0
        start += metric.n
    return 0


def places_of(table: Sequence[Reported], name: str) -> range:
    """Return where the numbers of a metric are in the list."""
    start = 0
    for metric in table:
        if metric.name == name:
            return range(start, start + metric.n)
        start += metric.n
    raise KeyError(name)


def values_of(table: Sequence[Reported], numbers: Sequence[int]) -> dict[str, Any]:
    """Return the values of a list by metric, as pages take them."""
    values: dict[str, Any] = {}
    start = 0
    for metric in table:
        own = [*numbers[start : start + metric.n]]
        own += [0] * (metric.n - len(own))
        start += metric.n
        values[metric.name] = _value(metric, own)
    return values


def _value(metric: Reported, own: list[int]) -> Any:
    if metric.is_histogram:
        return {"counts": own[:-1], "sum": own[-1] / 1e6}
    shown: list[float] = [n / 1e6 for n in own] if metric.is_time else list(own)
    return dict(zip(metric.values, shown, strict=True)) if metric.values else shown[0]


def numbers_of(histogram: Histogram) -> Iterable[int]:
    """Return the numbers of a histogram in such a list."""
    return (*histogram.counts, histogram.sum_us)


def with_metrics_url(facts: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the facts of a process, with the URL of its family's page if it has one."""
    return {**facts, METRICS_URL: url} if url else facts
