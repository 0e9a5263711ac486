"""The rows of panels of the dashboard and their queries, as a table.

`dashboard.py` makes Grafana's JSON of it, `benchmarks/dashboard_picture.py` draws it without
Grafana, and tests run each query on a Prometheus that has scraped a busy cluster.

Each query selects by the dashboard's variables. A label that no target has is the empty string,
which `.*` matches: so a Prometheus that gives its targets no label `cluster` works as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: The dashboard's variables, and their label: Grafana fills in what was chosen, or `.*`.
VARIABLES: Final = {"cluster": "cluster", "instance": "instance"}
#: Selects the series of the chosen clusters and instances.
WHERE: Final = ",".join(f'{label}=~"${name}"' for name, label in VARIABLES.items())
#: The interval of rates: Grafana chooses at least four scrapes.
RATE: Final = "$__rate_interval"
#: One series for each scheduler that answers. weft_build_info is on the pages of workers as well.
IS_SCHEDULER: Final = f"weft_scheduler_epoch_timestamp_seconds{{{WHERE}}}"

#: Grafana's ids of units.
Unit = Literal["short", "s", "bytes", "Bps", "cps", "percentunit", "none"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus.

    Attributes:
        expr: in PromQL, with the variables.
        legend: of its series; `{{label}}` stands for the value of a label.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: of the panel.
        text: what it shows, and what to do when it looks bad; a tooltip in Grafana.
        queries: at least one.
        unit: of the values.
        is_number: shows the latest value as a number; otherwise a graph over time.
        is_stacked: the values add up, and the areas are drawn on each other.
        warn_above: a number's colour is amber from here on; None = it never is.
        alarm_above: and red from here on.
        alarm_below: red below this.
    """

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    is_number: bool = False
    is_stacked: bool = False
    warn_above: float | None = None
    alarm_above: float | None = None
    alarm_below: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A question, and the panels that answer it."""

    title: str
    panels: tuple[Panel, ...]


def _scheduler(metric: str, *more: str) -> str:
    return f"weft_scheduler_{metric}{{{','.join((WHERE, *more))}}}"


def _worker(metric: str, *more: str) -> str:
    return f"weft_worker_{metric}{{{','.join((WHERE, *more))}}}"


def _rate(series: str) -> str:
    return f"rate({series}[{RATE}])"


def _sum(series: str, legend: str = "") -> Query:
    return Query(f"sum({series})", legend)


def _by(labels: str, series: str) -> Query:
    """Return the sums by these labels, which are the legend as well."""
    legend = " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
    return Query(f"sum by ({labels}) ({series})", legend)


def _top(labels: str, series: str) -> Query:
    """Return the ten largest of the sums by these labels."""
    query = _by(labels, series)
    return Query(f"topk(10, {query.expr})", query.legend)


def _quantiles(metric: str) -> tuple[Query, ...]:
    """Return the median, the 95th and the 99th percentile of a histogram, in seconds."""
    buckets = f"sum by (le) ({_rate(metric.replace('{', '_bucket{', 1))})"
    return tuple(
        Query(f"histogram_quantile({quantile}, {buckets})", legend)
        for quantile, legend in (("0.5", "median"), ("0.95", "95 %"), ("0.99", "99 %"))
    )


_HEALTH: Final = Row(
    "Is it healthy?",
    (
        Panel(
            "Schedulers",
            "Schedulers that answer. 0: the process is down, or Prometheus may not read its page.",
            (Query(f"count({IS_SCHEDULER}) or vector(0)"),),
            is_number=True,
            alarm_below=1,
        ),
        Panel(
            "Running since",
            "How long ago the scheduler started. A short time may be a restart: see its log.",
            (Query(f"time() - max({_scheduler('epoch_timestamp_seconds')})"),),
            unit="s",
            is_number=True,
        ),
        Panel(
            "Workers",
            "Workers that take tasks.",
            (_sum(_scheduler("workers", 'state="running"')),),
            is_number=True,
            alarm_below=1,
        ),
        Panel(
            "Threads with a task",
            "Part of all threads that have a task. 100 % for long: more workers would help.",
            (
                Query(
                    f"sum({_scheduler('worker_threads_busy')}) / "
                    f"clamp_min(sum({_scheduler('worker_threads')}), 1)"
                ),
            ),
            unit="percentunit",
            is_number=True,
        ),
        Panel(
            "Unfinished tasks",
            "Tasks that are known and not finished.",
            (_sum(_scheduler("tasks", 'state=~"waiting|queued|no_worker|processing"')),),
            is_number=True,
        ),
        Panel(
            "No worker can run",
            "Tasks that no connected worker may run: 'weft info KEY' says what they need.",
            (Query(f"sum({_scheduler('unrunnable_tasks')}) or vector(0)"),),
            is_number=True,
            alarm_above=1,
        ),
        Panel(
            "Failures",
            "Part of the tasks that ended in the last 5 minutes and failed.",
            (
                Query(
                    f"sum(increase({_scheduler('tasks_failed_total')}[5m])) / clamp_min("
                    f"sum(increase({_scheduler('tasks_failed_total')}[5m])) + "
                    f"sum(increase({_scheduler('tasks_completed_total')}[5m])), 1)"
                ),
            ),
            unit="percentunit",
            is_number=True,
            warn_above=0.01,
            alarm_above=0.05,
        ),
        Panel(
            "Alerts",
            "Alerts of the rules in rules.yaml that fire now.",
            (Query('count(ALERTS{alertname=~"Weft.*",alertstate="firing"}) or vector(0)'),),
            is_number=True,
            alarm_above=1,
        ),
    ),
)

_THROUGHPUT: Final = Row(
    "How much is done, how fast?",
    (
        Panel(
            "Tasks per second",
            "Tasks that were submitted, finished and failed.",
            (
                _sum(_rate(_scheduler("tasks_submitted_total")), "submitted"),
                _sum(_rate(_scheduler("tasks_completed_total")), "finished"),
                _sum(_rate(_scheduler("tasks_failed_total")), "failed"),
            ),
            unit="cps",
        ),
        Panel(
            "Tasks by state",
            "waiting: for inputs; queued: for a free thread; no_worker: for a worker that may run "
            "them; processing: at a worker; memory: their results are kept.",
            (_by("state", _scheduler("tasks")),),
            is_stacked=True,
        ),
        Panel(
            "Time that tasks run",
            "Of the tasks that finished. Buckets are wide, so a quantile is an estimate.",
            _quantiles(_scheduler("task_duration_seconds")),
            unit="s",
        ),
        Panel(
            "Time from submission to start",
            "It contains the time in which inputs are computed. High with idle threads: tasks wait "
            "for inputs or for workers that may run them.",
            _quantiles(_scheduler("task_queue_seconds")),
            unit="s",
        ),
        Panel(
            "Functions: tasks per second",
            "The ten functions with the most finished tasks.",
            (_top("prefix", _rate(_scheduler("tasks_finished_total"))),),
            unit="cps",
        ),
        Panel(
            "Functions: threads in use",
            "Seconds of run time per second, which is the number of threads that a function fills.",
            (_top("prefix", _rate(_scheduler("task_compute_seconds_total"))),),
        ),
    ),
)

_TIME: Final = Row(
    "Where does the time go?",
    (
        Panel(
            "What the workers' threads do",
            "Seconds per second, so that the sum is the number of threads. fetch_wait: tasks wait "
            "for results of other workers; much of it: larger tasks, or fewer and larger results.",
            (_by("activity", _rate(_worker("activity_seconds_total"))),),
            is_stacked=True,
        ),
        Panel(
            "Bytes between workers",
            "in: fetched from other workers; out: sent to workers and clients.",
            (_by("direction", _rate(_worker("transfer_bytes_total"))),),
            unit="Bps",
        ),
        Panel(
            "Time of a transfer",
            "From the request for results until they are here.",
            _quantiles(_worker("transfer_seconds")),
            unit="s",
        ),
        Panel(
            "Functions: bytes of results",
            "The ten functions whose results are the largest, all together.",
            (_top("prefix", _rate(_scheduler("task_output_bytes_total"))),),
            unit="Bps",
        ),
    ),
)

_WORKERS: Final = Row(
    "Are there enough workers, and enough memory?",
    (
        Panel(
            "Workers",
            "By state, and the number that the work at hand would keep busy (desired).",
            (
                _by("state", _scheduler("workers")),
                _sum(_scheduler("desired_workers"), "desired"),
            ),
        ),
        Panel(
            "Threads",
            "Threads of all workers, and those that have a task.",
            (
                _sum(_scheduler("worker_threads"), "all"),
                _sum(_scheduler("worker_threads_busy"), "with a task"),
            ),
        ),
        Panel(
            "Memory of workers",
            "managed: results that are kept; unmanaged: the rest of the processes. A worker that "
            "comes near its limit is ended, and its tasks run again elsewhere.",
            (
                _by("kind", _worker("memory_bytes")),
                _sum(_worker("memory_limit_bytes"), "limit"),
            ),
            unit="bytes",
        ),
        Panel(
            "Largest workers",
            "Memory of the ten largest, if workers have pages of their own; otherwise of all.",
            (_top("instance, worker", _worker("memory_bytes")),),
            unit="bytes",
        ),
        Panel(
            "Workers lost, by reason",
            "In the last 15 minutes. memory: above the limit, or out of memory; signal: killed by "
            "another process; silent: no heartbeat.",
            (
                Query(
                    f"sum by (reason) (increase({_scheduler('workers_lost_total')}[15m]))",
                    "{{reason}}",
                ),
            ),
        ),
    ),
)

_FAILURES: Final = Row(
    "What fails?",
    (
        Panel(
            "Tasks that failed, by reason",
            "exception: the function raised; worker_died: its workers died, several times; "
            "lost_data: an input is gone and cannot be computed again; timed_out: it took longer "
            "than its timeout=; memory: it did not fit into the memory of the workers.",
            (_by("reason", _rate(_scheduler("tasks_failed_total"))),),
            unit="cps",
        ),
        Panel(
            "Attempts that raised, by function",
            "The ten functions with the most exceptions, retries included.",
            (_top("prefix", _rate(_scheduler("attempts_raised_total"))),),
            unit="cps",
        ),
        Panel(
            "Work that was done again",
            "retried: an attempt raised and the task had retries left; recomputed: the only copy "
            "of a result was lost with its worker.",
            (
                _sum(_rate(_scheduler("tasks_retried_total")), "retried"),
                _sum(_rate(_scheduler("tasks_recomputed_total")), "recomputed"),
            ),
            unit="cps",
        ),
        Panel(
            "Peers that were refused",
            "auth: no or a wrong token; protocol: messages that break its rules; denied: requests "
            "that need a token of a higher role. Anything but 0 deserves a look at the log.",
            (
                _sum(_rate(_scheduler("auth_failures_total")), "auth"),
                _sum(_rate(_scheduler("protocol_errors_total")), "protocol"),
                _sum(_rate(_scheduler("denied_total")), "denied"),
            ),
            unit="cps",
        ),
    ),
)

_SCHEDULER: Final = Row(
    "Is the scheduler the bottleneck?",
    (
        Panel(
            "Processor time",
            "Of the scheduler's process, in cores. It uses one at most: near 1, tasks should be "
            "larger.",
            (_by("instance", _rate(_scheduler("cpu_seconds_total"))),),
            unit="percentunit",
        ),
        Panel(
            "What its event loop does",
            "Seconds per second.",
            (_by("activity", _rate(_scheduler("loop_seconds_total"))),),
            unit="percentunit",
            is_stacked=True,
        ),
        Panel(
            "Lag of its event loop",
            "How late it is for what is due. Above 1 s: heartbeats and new connections are late.",
            _quantiles(_scheduler("event_loop_lag_seconds")),
            unit="s",
        ),
        Panel(
            "Messages per second",
            "Received and sent, by peer.",
            (_by("direction, peer", _rate(_scheduler("messages_total"))),),
            unit="cps",
        ),
        Panel(
            "Bytes per second",
            "Received and sent, by peer. Results do not pass the scheduler; large ones of clients "
            "go straight to workers.",
            (_by("direction, peer", _rate(_scheduler("bytes_total"))),),
            unit="Bps",
        ),
        Panel(
            "Memory of its process",
            "It grows with the tasks that are known, about 0.5 kB each.",
            (
                # Every program with a page has this metric; those of a scheduler are meant.
                Query(
                    f"sum by (instance) (process_resident_memory_bytes{{{WHERE}}}"
                    f" and on (job, instance, cluster, namespace) {IS_SCHEDULER})",
                    "{{instance}}",
                ),
            ),
            unit="bytes",
        ),
        Panel(
            "Clients and connections",
            "A client that is gone keeps its tasks for a minute.",
            (
                _sum(_scheduler("clients"), "clients"),
                _sum(_scheduler("connections"), "connections"),
            ),
        ),
    ),
)

ROWS: Final = (_HEALTH, _THROUGHPUT, _TIME, _WORKERS, _FAILURES, _SCHEDULER)
PANELS: Final = tuple(panel for row in ROWS for panel in row.panels)
