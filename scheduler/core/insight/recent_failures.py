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

#: Failures that are remembered.
MAX_FAILURES: Final = 20
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


class Recent:
    """The notes."""

    __slots__ = ("failures", "load", "measurements", "workerless_since")

    def __init__(self) -> None:
        #: the last ones, newest last
        self.failures: deque[RecentFailure] = deque(maxlen=MAX_FAILURES)
        #: since when no worker takes tasks, while `SchedulerState.staying` is empty; None = since
        #: the start
        self.workerless_since: float | None = None
        self.load = Load()
        #: the measurements that the shell made last, for the metrics
        self.measurements: dict[str, Any] = {}


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
    recent_of(state).failures.append(last)
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
