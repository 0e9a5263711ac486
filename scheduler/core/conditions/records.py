"""What tasks wait for beside their inputs, and when they are given up."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ..records.peers import ClientHandle
from ..records.tasks import SchedulerTask

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: Names of times, by the options that have them.
START: Final = "start_ms"
BEGIN_BY: Final = "begin_by_ms"
END_BY: Final = "end_by_ms"
#: ... and of a length of time.
NO_WORKER_FOR: Final = "no_worker_ms"

#: Entries that are gone are taken out of the heap when there are so many, and as many as others.
MOST_GONE: Final = 64

#: What a keeper is sent of a task that has ended, or has begun when it was to be given back.
_NOTED: Final = (
    m.ResultsReady,
    m.KeysInMemory,
    m.KeysErred,
    m.KeysCancelled,
    m.KeysUnknown,
    m.KeysStarted,
)


class Conditions:
    """The conditions of one task that are not met yet, and its times that have not come."""

    __slots__ = ("times", "unmet")

    def __init__(self) -> None:
        #: {key of another task: the states in which it is to end}
        self.unmet: dict[str, list[str]] = {}
        #: {option: the number of its entry in `Times`}
        self.times: dict[str, int] = {}

    @property
    def is_met(self) -> bool:
        """True if the task may run, as far as its conditions go."""
        return not self.unmet and START not in self.times


class Times:
    """The times of all tasks, in a heap: one deadline serves all, and each costs one entry."""

    __slots__ = ("_heap", "_n_gone", "_next_number", "look")

    def __init__(self) -> None:
        #: (ms since 1970, number, task, its conditions, option); some are gone
        self._heap: list[tuple[int, int, SchedulerTask, Conditions, str]] = []
        self._next_number = 0
        self._n_gone = 0
        #: when the first is looked at; pending while there are some
        self.look: Deadline | None = None

    def add(self, when_ms: int, task: SchedulerTask, row: Conditions, name: str) -> None:
        """Add a time of a task."""
        self._next_number += 1
        row.times[name] = self._next_number
        heappush(self._heap, (when_ms, self._next_number, task, row, name))

    def drop(self, row: Conditions, name: str) -> None:
        """Drop a time that is of no use any more; O(1) on average."""
        if row.times.pop(name, None) is not None:
            self._n_gone += 1
            if self._n_gone > MOST_GONE and self._n_gone * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if _is_there(entry)]
                heapify(self._heap)
                self._n_gone = 0

    def first_ms(self) -> int | None:
        """Return the earliest time; None = there is none."""
        while self._heap and not _is_there(self._heap[0]):
            heappop(self._heap)
            self._n_gone -= 1
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: float) -> list[tuple[SchedulerTask, Conditions, str]]:
        """Take the times that have come, in order."""
        due = []
        while (first := self.first_ms()) is not None and first <= now_ms:
            _, _, task, row, name = heappop(self._heap)
            del row.times[name]
            due.append((task, row, name))
        return due

    def __len__(self) -> int:
        return len(self._heap) - self._n_gone


def _is_there(entry: tuple[int, int, SchedulerTask, Conditions, str]) -> bool:
    _, number, _, row, name = entry
    return row.times.get(name) == number


class ConditionsOfTasks(dict[SchedulerTask, Conditions]):
    """{task: its conditions} of all with some, until they are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        #: (task, conditions) of those that were forgotten since the last pass
        self.dropped: list[tuple[SchedulerTask, Conditions]] = []

    def pop(self, task: SchedulerTask, *default: Any) -> Any:
        """Note that a task is forgotten."""
        row = super().pop(task, None)
        if row is not None:
            self.dropped.append((task, row))
        return row


class Watched:
    """The tasks whose end others wait for.

    The class is in `SchedulerState.busy` while any task has conditions.
    """

    __slots__ = ("behind_s", "ended", "keeper", "opened_late", "times", "waiters", "withdrawn")

    def __init__(self) -> None:
        #: Wants those that are watched. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "conditions", 0, receive=_note_end, is_watcher=True)
        #: {key: {task that waits for its end: None}}; none is empty
        self.waiters: dict[str, dict[SchedulerTask, None]] = {}
        #: {key: the message that it has ended, or how it has by the journal} of those that others
        #: wait for, since the last pass
        self.ended: dict[str, Message | str] = {}
        #: {task: None} of those whose conditions are met, and that workers ran already
        self.opened_late: dict[SchedulerTask, None] = {}
        #: {key: why} of those that a worker was asked to give back if they have not begun
        self.withdrawn: dict[str, str] = {}
        self.times = Times()
        #: how far the clock of the machine is behind the epoch and the time since
        self.behind_s = 0.0


def watched_of(state: SchedulerState) -> Watched:
    """Return the tasks whose end others wait for."""
    return state.record(Watched)


def conditions_of(state: SchedulerState) -> ConditionsOfTasks:
    """Return the conditions of all tasks that have some."""
    return state.record(ConditionsOfTasks)


def unrunnable_since(task: SchedulerTask) -> float:
    """Return when a task began to wait that no worker could run since then."""
    group = task.group
    return max(group.task_class.unrunnable_since, getattr(task, "since", group.submitted))


def _note_end(state: SchedulerState, message: Message) -> None:
    """Note what the keeper would be sent: its sender may be in the middle of a batch."""
    if isinstance(message, _NOTED):
        ended = watched_of(state).ended
        for key in message.keys:
            ended[key] = message
