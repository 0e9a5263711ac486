"""The latest events, for `overview` and `health`: some times, and the last failures.

Everything is noted per batch, or per task that fails by itself. Nothing here is decided by.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.failure import Failure
from ..events import Load, SchedulerTick
from ..feature import Feature

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: Failures that are remembered, and groups of them.
MAX_FAILURES: Final = 20
MAX_GROUPS: Final = 50
#: Characters of the text of one.
MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class RecentFailure:
    """A task that failed by itself."""

    when: float
    key: str
    function: str
    kind: str
    text: str
    #: name of the worker, "" = none
    worker: str

    def described(self, now: float) -> dict[str, Any]:
        """Return it as a map for an answer."""
        return {
            "key": self.key,
            "function": self.function,
            "kind": self.kind,
            "text": self.text,
            "worker": self.worker,
            "age_s": now - self.when,
        }


@dataclass(slots=True)
class FailureGroup:
    """The failures of a function that have one type: how many, and the last one."""

    n: int
    last: RecentFailure


class Recent:
    """The notes."""

    __slots__ = ("failures", "groups", "load", "measurements", "workerless_since")

    def __init__(self) -> None:
        #: the last ones, newest last
        self.failures: deque[RecentFailure] = deque(maxlen=MAX_FAILURES)
        #: {(function, type)}: those that failed last come last
        self.groups: dict[tuple[str, str], FailureGroup] = {}
        #: since when no worker takes tasks, while `SchedulerState.staying` is empty; None = since
        #: the start
        self.workerless_since: float | None = None
        self.load = Load()
        #: the measurements that the shell made last, for the metrics
        self.measurements: dict[str, Any] = {}

    def note(self, failure: RecentFailure, kind: str) -> None:
        """Remember a failure of this type."""
        self.failures.append(failure)
        name = failure.function, kind
        group = self.groups.pop(name, None) or FailureGroup(0, failure)
        group.n += 1
        group.last = failure
        self.groups[name] = group
        if len(self.groups) > MAX_GROUPS:
            del self.groups[next(iter(self.groups))]

    def described_groups(self, now: float) -> list[dict[str, Any]]:
        """Describe the groups, the one that failed last first."""
        return [
            {"type": kind, "n": group.n, **group.last.described(now)}
            for (_, kind), group in reversed(self.groups.items())
        ]


def recent_of(state: SchedulerState) -> Recent:
    """Return the notes."""
    return state.record(Recent)


def _on_task_failed(
    state: SchedulerState, task: SchedulerTask, failure: Failure, worker: str
) -> None:
    """Remember that a task has failed by itself, and report it to users that follow that."""
    kind, text = str(failure[0]), text_of(failure)
    if kind == "worker-died" and len(failure) > 3:
        worker = _text(failure[3])
    function = task.group.prefix.name
    last = RecentFailure(state.now, task.key, function, kind, text, worker)
    recent_of(state).note(last, type_of(failure))
    state.report(
        "task-failed", key=task.key, function=function, kind=kind, text=text, worker=worker
    )


def _on_worker_leaving(state: SchedulerState, ws: WorkerHandle) -> None:
    if not state.staying:
        recent_of(state).workerless_since = state.now


def _on_tick(state: SchedulerState, tick: SchedulerTick) -> None:
    if tick.measurements:
        recent_of(state).measurements = tick.measurements
    if tick.load is not None:
        recent_of(state).load = tick.load


def type_of(failure: Failure) -> str:
    """Return the type of what was raised, or the kind of a failure without one."""
    is_exception = failure[0] == "exception" and len(failure) > 3
    return _text(failure[3] if is_exception else failure[0])[:MAX_TEXT]


def text_of(failure: Failure) -> str:
    """Return a failure in one line of at most MAX_TEXT characters. Its items come from a worker."""
    kind, *items = [_text(item) for item in failure[:6]]
    if kind == "exception" and len(items) > 3:
        text = f"{items[2]}: {items[3]}" if items[3] else items[2]
    elif kind == "worker-died" and len(items) > 3:
        text = f"{items[1]} workers died while they ran it, the last one: {items[3]}"
    elif kind == "rows-failed" and len(items) > 3:
        text = f"{items[1]} of {items[2]} rows have not succeeded: {items[3]}"
    else:
        text = items[1] if len(items) > 1 else kind
    line = " ".join(text[: 4 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def _text(item: Any) -> str:
    """Return the beginning of a text, or a number as text; "" for anything else."""
    if isinstance(item, str):
        return item[: 4 * MAX_TEXT]
    return str(item) if isinstance(item, int) else ""


FEATURE: Final = Feature(
    name="recent events",
    records=(Recent,),
    task_failed=(_on_task_failed,),
    worker_leaving=(_on_worker_leaving,),
    ticked=(_on_tick,),
)
