"""Tasks in the background (`fire_and_forget`): they go on until they have ended, wanted or not.

A client that stands for all of them wants them. It has no connection; what the scheduler would send
it names the tasks that have ended, and these are let go with the next tick, because the sender may
be in the middle of a batch.

They are kept as long as the scheduler lives. A later one has no record of them: it runs those again
that a client still wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.message import Message
from ....protocol.wire.messages.coordination import BACKGROUND, TOO_LARGE
from ..invariants.checking import is_due, unless
from ..moves.transitions import activate, release_unneeded
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, MEMORY, RELEASED, SchedulerTask
from ..requests import wanted_keys
from .records import Call, ObjectKind, ObjectOperation, ObjectRecord, OperationRefused, Reply

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: The most tasks in the background at a time.
MAX_TASKS: Final = 1_000_000
#: One answer names so many unknown keys.
MAX_UNKNOWN_NAMED: Final = 20


class BackgroundTasks:
    """The tasks in the background."""

    __slots__ = ("due", "ended", "keeper")

    def __init__(self) -> None:
        #: Wants all of them. It is no client of the cluster, and never has a connection.
        self.keeper = ClientHandle("", "background", 0, receive=_note_sent)
        #: {key: None} of those that have ended, and of others that the keeper was sent
        self.ended: dict[str, None] = {}
        #: when they are let go; pending if there are some
        self.due: Deadline | None = None


def background_of(state: SchedulerState) -> BackgroundTasks:
    """Return the tasks in the background."""
    return state.record(BackgroundTasks)


def _note_sent(state: SchedulerState, message: Message) -> None:
    """Note the tasks whose end the keeper would be sent."""
    if isinstance(message, (m.ResultsReady, m.KeysInMemory, m.KeysErred)) and message.keys:
        background = background_of(state)
        background.ended.update(dict.fromkeys(message.keys))
        if background.due is None:
            background.due = state.call_after(0.0, _let_go)


def _let_go(state: SchedulerState) -> None:
    background = background_of(state)
    background.due = None
    ended, background.ended = background.ended, {}
    keeper = background.keeper
    unneeded = []
    for key in ended:
        task = state.tasks.get(key)
        # Its result may have been lost meanwhile; the task has ended all the same.
        if task is not None and task in keeper.wants:
            wanted_keys.unwant(keeper, task)
            unneeded.append(task)
    release_unneeded(state, unneeded)
    wanted_keys.drop_functions(state, keeper)


def _make(call: Call) -> ObjectRecord:
    return ObjectRecord(call.kind, call.name)


def _keep(state: SchedulerState, _record: ObjectRecord, call: Call) -> Reply:
    """Keep tasks until they have ended."""
    background = background_of(state)
    keeper = background.keeper
    if len(keeper.wants) + len(call.keys) > MAX_TASKS:
        raise OperationRefused(
            TOO_LARGE,
            f"{len(keeper.wants)} tasks of the cluster are in the background, and "
            f"{len(call.keys)} more would exceed the limit of {MAX_TASKS}; keep the futures of the "
            "others until these have ended",
        )
    unknown = []
    for key in call.keys:
        task = state.tasks.get(key)
        if task is None:
            if wanted_keys.want_unknown(state, keeper, key) is None:
                unknown.append(key)
        elif task.state == RELEASED and task.delivered:
            continue  # it has finished, its client has the result, and the last copy is gone
        elif task.state not in (MEMORY, ERRED):
            background.ended.pop(key, None)  # the result of an earlier run was lost just now
            wanted_keys.want(keeper, task)
            if task.state == RELEASED:
                activate(state, task)
    return Reply({"unknown": unknown[:MAX_UNKNOWN_NAMED], "n_unknown": len(unknown)})


def _drop(_record: ObjectRecord, _client: ClientHandle) -> None:
    """The tasks go on when the client that has submitted them is gone."""


BACKGROUNDS: Final = ObjectKind(
    BACKGROUND,
    _make,
    {"keep": ObjectOperation(_keep, takes_keys=True)},
    _drop,
    lambda _record: True,
)


# -- invariants ------------------------------------------------------------------------------------
def _wanted(state: SchedulerState) -> dict[SchedulerTask, None]:
    return background_of(state).keeper.wants


#: {what holds: what breaks it}
BACKGROUND_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "tasks in the background are known, and know it": lambda s: [
        task
        for task in _wanted(s)
        if s.tasks.get(task.key) is not task or background_of(s).keeper not in task.wanted_by
    ],
    "a task in the background that has ended is let go soon": lambda s: [
        task
        for task in _wanted(s)
        if task.state in (MEMORY, ERRED) and task.key not in background_of(s).ended
    ],
    "tasks in the background that have ended have a deadline": lambda s: unless(
        not background_of(s).ended or is_due(background_of(s).due),
        background_of(s).ended,
    ),
}
