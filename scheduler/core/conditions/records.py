"""What tasks wait for beside their inputs, and when they are given up."""

from __future__ import annotations

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
        #: {option: when it is looked at}
        self.times: dict[str, Deadline] = {}

    @property
    def is_met(self) -> bool:
        """True if the task may run, as far as its conditions go."""
        return not self.unmet and START not in self.times


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

    __slots__ = ("behind_s", "ended", "keeper", "opened_late", "waiters", "withdrawn")

    def __init__(self) -> None:
        #: Wants those that are watched. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "conditions", 0, receive=_note_end, is_watcher=True)
        #: {key: {task that waits for its end: None}}; none is empty
        self.waiters: dict[str, dict[SchedulerTask, None]] = {}
        #: {key: the message that it has ended} of those that others wait for, since the last pass
        self.ended: dict[str, Message] = {}
        #: {task: None} of those whose conditions are met, and that workers ran already
        self.opened_late: dict[SchedulerTask, None] = {}
        #: {key: why} of those that a worker was asked to give back if they have not begun
        self.withdrawn: dict[str, str] = {}
        #: how far the clock of the machine is behind the epoch and the time since
        self.behind_s = 0.0


def watched_of(state: SchedulerState) -> Watched:
    """Return the tasks whose end others wait for."""
    return state.record(Watched)


def conditions_of(state: SchedulerState) -> ConditionsOfTasks:
    """Return the conditions of all tasks that have some."""
    return state.record(ConditionsOfTasks)


def _note_end(state: SchedulerState, message: Message) -> None:
    """Note what the keeper would be sent: its sender may be in the middle of a batch."""
    if isinstance(message, _NOTED):
        ended = watched_of(state).ended
        for key in message.keys:
            ended[key] = message
