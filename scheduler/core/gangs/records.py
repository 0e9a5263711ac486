"""Gangs: who belongs to them, which of them wait, and which workers are kept for one."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....protocol.wire.failure import Failure
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import SchedulerTask, TaskClass

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..records.deadlines import Deadline
    from ..state import SchedulerState


#: Workers are kept for a gang for so long at first, seconds, and then are open for as long. If it
#: was not seated meanwhile, it is twice as long the next time.
KEEP_S: Final = 30.0


class HeldBack(NamedTuple):
    """An exception that is not counted yet: another member may have been lost before it."""

    ws: WorkerHandle
    task: SchedulerTask
    failure: Failure
    duration_us: int
    queued_us: int


class GangRecord:
    """One gang: tasks that begin together."""

    __slots__ = (
        "ending",
        "ending_until",
        "failure",
        "held_back",
        "is_complete",
        "is_over",
        "keep_s",
        "lone",
        "members",
        "n_raised",
        "name",
        "not_before",
        "ready_since",
        "revived",
        "shape",
        "size",
        "verdict",
        "workers",
    )

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        #: {rank: task}, not forgotten; `GangsOfTasks` is the inverse
        self.members: dict[int, SchedulerTask] = {}
        #: when those are given up that wait for others which do not come; pending only meanwhile
        self.lone: Deadline | None = None
        #: all of them have been there
        self.is_complete = False
        #: none of them ran or waited when that was looked at last, and none was assigned since
        self.is_over = False
        #: {task: None}: those whose inputs came, or that were taken back, since the last look
        self.revived: dict[SchedulerTask, None] = {}
        #: the first that has failed by itself since the last look, and why
        self.failure: tuple[SchedulerTask, Failure] | None = None
        #: {attempt: an exception of it}; those that are not current any more do not count
        self.held_back: dict[int, HeldBack] = {}
        #: when the first of them counts; pending only while there is one
        self.verdict: Deadline | None = None
        #: the greatest number of exceptions of a member that is known
        self.n_raised = 0
        #: it is seated no earlier, in waking time: a retry has a pause
        self.not_before = 0.0
        #: dropped attempts of the last run, and until when, in waking time, the next one waits
        self.ending: list[tuple[WorkerHandle, int]] = []
        self.ending_until = 0.0
        #: since when it waits for places, in waking time; None = it does not
        self.ready_since: float | None = None
        #: for how long workers are kept for it the next time
        self.keep_s = KEEP_S
        #: what each member asks of its worker; of no task, so it is in no table
        self.shape = TaskClass((), (), False, ())
        #: the workers that may run members; None = they are to be found anew
        self.workers: list[WorkerHandle] | None = None

    @property
    def priority(self) -> int:
        """That of its first member: smaller is better, or older."""
        return next(iter(self.members.values())).priority

    def rank_of(self, task: SchedulerTask) -> int:
        """Return the rank of a member."""
        return next(rank for rank, member in self.members.items() if member is task)

    def __repr__(self) -> str:
        return f"<GangRecord {self.name} {len(self.members)} of {self.size}>"


class GangsOfTasks(dict[SchedulerTask, GangRecord]):
    """{task: its gang} of all members, until they are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        #: (task, gang) of those that were forgotten since the last pass
        self.dropped: list[tuple[SchedulerTask, GangRecord]] = []

    def pop(self, task: SchedulerTask, *default: Any) -> Any:
        """Note that a task is forgotten."""
        gang = super().pop(task, None)
        if gang is not None:
            self.dropped.append((task, gang))
        return gang


class Gangs:
    """All gangs. The class is in `SchedulerState.busy` while there is one."""

    __slots__ = (
        "by_name",
        "changed",
        "ending",
        "is_deciding",
        "keep_until",
        "keeper",
        "kept",
        "kept_for",
        "living_on",
        "look_at",
        "n_in_turn",
        "open_until",
        "over",
        "too_large",
        "waiting",
    )

    def __init__(self) -> None:
        #: {name: gang}; each has a member
        self.by_name: dict[str, GangRecord] = {}
        #: {gang: None}: those with a member that something has happened to since the last pass
        self.changed: dict[GangRecord, None] = {}
        #: {gang: None}: those that wait for places
        self.waiting: dict[GangRecord, None] = {}
        #: how many of those, behind the first, had their turn; 0 = none, or all
        self.n_in_turn = 0
        #: {gang: None}: those that the workers cannot hold; all wait again when workers change
        self.too_large: dict[GangRecord, None] = {}
        #: the one for which workers are kept, among `waiting`; None = none are kept
        self.kept_for: GangRecord | None = None
        #: {worker: None} of all and only those that are `KEPT`
        self.kept: dict[WorkerHandle, None] = {}
        #: until when they are kept, in waking time
        self.keep_until = 0.0
        #: no worker is kept earlier, in waking time
        self.open_until = 0.0
        #: those that wait are looked at no earlier, in waking time; each look adds its share
        self.look_at = -inf
        #: (worker, attempt): dropped attempts whose end was reported before
        self.over: list[tuple[WorkerHandle, int]] = []
        #: exceptions that were held back are being counted
        self.is_deciding = False
        #: {gang: a member that is needed by others}: those of which `keeper` wants members
        self.living_on: dict[GangRecord, SchedulerTask] = {}
        #: {task: None}: those cancelled since the last pass, or of gangs that nobody needs now
        self.ending: dict[SchedulerTask, None] = {}
        #: wants members that nobody else needs while another is needed, and those that it cancels
        #: for all. It is no client of the cluster
        self.keeper = ClientHandle("", "gangs", 0, receive=_ignore, is_watcher=True)

    def stop_waiting(self, gang: GangRecord) -> None:
        """Let a gang wait neither for places nor for workers."""
        self.waiting.pop(gang, None)
        self.too_large.pop(gang, None)


def gangs_of(state: SchedulerState) -> Gangs:
    """Return all gangs."""
    return state.record(Gangs)


def gangs_of_tasks(state: SchedulerState) -> GangsOfTasks:
    """Return the gangs of tasks that have one."""
    return state.record(GangsOfTasks)


def _ignore(state: SchedulerState, message: Message) -> None:
    """Take what the keeper would be sent: it asks for nothing but an end."""
