"""The state of the brake on memory. Records only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .usage import spilled_nbytes

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle, WorkerHandle
    from ..records.tasks import SchedulerTask, TaskClass
    from ..state import SchedulerState


class Kill(NamedTuple):
    """The end of a process that used more memory than it may, because of the results in it."""

    when: float
    worker: str
    #: tasks whose only copy it had
    results: list[SchedulerTask]


class Pause:
    """What a worker has done since it is paused, as far as it has reported that."""

    __slots__ = ("n_reports", "spilled_nbytes", "status")

    def __init__(self, ws: WorkerHandle) -> None:
        #: the last report, and how many of them have come since it was last seen to spill more
        self.status = ws.status
        self.n_reports = 0
        #: of results that it had written to its disk when that was last looked at
        self.spilled_nbytes = spilled_nbytes(ws)


class Aside:
    """Tasks in state no_worker that would add to full workers, by class."""

    __slots__ = ("by_class",)

    def __init__(self) -> None:
        #: {class: {task: None}}, first come first; none of the inner maps is empty
        self.by_class: dict[TaskClass, dict[SchedulerTask, None]] = {}

    def add(self, task: SchedulerTask) -> None:
        """Add a task behind those of its class."""
        self.by_class.setdefault(task.group.task_class, {})[task] = None

    def discard(self, task: SchedulerTask) -> None:
        """Take a task out if it is there."""
        task_class = task.group.task_class
        tasks = self.by_class.get(task_class)
        if tasks is not None and task in tasks:
            del tasks[task]
            if not tasks:
                del self.by_class[task_class]

    def __contains__(self, task: SchedulerTask) -> bool:
        return task in self.by_class.get(task.group.task_class, ())

    def __iter__(self) -> Iterator[SchedulerTask]:
        return (task for tasks in self.by_class.values() for task in tasks)

    def __len__(self) -> int:
        return sum(map(len, self.by_class.values()))

    def __bool__(self) -> bool:
        return bool(self.by_class)


class Expected:
    """The bytes that the tasks of a worker may add to it, by the results of their functions so far.

    It is too large where some have ended since it was summed up.
    """

    __slots__ = ("nbytes", "summed_at")

    def __init__(self) -> None:
        self.nbytes = 0
        self.summed_at = float("-inf")


class Memory:
    """What the brake knows."""

    __slots__ = ("aside", "expected", "kills", "look", "noticed", "paused", "stalled", "stocked")

    def __init__(self) -> None:
        self.aside = Aside()
        #: {worker: what it has done since} of those that are paused
        self.paused: dict[WorkerHandle, Pause] = {}
        #: of those that were looked at
        self.expected: dict[WorkerHandle, Expected] = {}
        #: {worker: None} of those that get no more roots, see `admission`
        self.stocked: dict[WorkerHandle, None] = {}
        #: when `relief` looks at those that are set aside, or at what paused workers do not get;
        #: pending while there are some
        self.look: Deadline | None = None
        #: {class of waiting tasks: since when nothing goes on that could make room for these}, in
        #: waking time
        self.stalled: dict[TaskClass, float] = {}
        #: {client: None}: sent a notice that tasks of it wait for memory, while some do
        self.noticed: dict[ClientHandle, None] = {}
        #: the latest, oldest first
        self.kills: deque[Kill] = deque()


def expected_at(state: SchedulerState, ws: WorkerHandle) -> Expected:
    """Return what the tasks of a worker may add to it."""
    expected = memory_of(state).expected
    found = expected.get(ws)
    if found is None:
        found = expected[ws] = Expected()
    return found


def memory_of(state: SchedulerState) -> Memory:
    """Return what the brake knows."""
    return state.record(Memory)
