"""The scheduler's view of workers, clients, supervisors. Records only.

`membership.py` decides when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....protocol.amounts import BESIDE, CORES
from ....protocol.reported import QUEUES_RESOURCES
from ....protocol.wire.address import names_of_process
from ....protocol.wire.messages import RegisterSupervisor, RegisterWorker, WorkerStatus
from .users import User

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..state import SchedulerState
    from .deadlines import Deadline
    from .tasks import Function, SchedulerTask, TaskClass

#: A worker gets more while its unstarted and running work is shorter than this (per thread).
BACKLOG_NS: Final = 30_000_000
#: ... up to this, so that an assignment of the shortest tasks fits into one message.
MAX_BACKLOG_NS: Final = 500_000_000
#: A worker all of whose threads are busy and that has finished nothing for this long gets no more.
STUCK_S: Final = 0.03
#: A worker is asked for work no more often, and less often each time that it has finished nothing
#: since: what it gave back may have had to come back to it.
RETURN_INTERVAL_S: Final = 0.02
#: Assumed until it is measured: 1 GB/s, a byte a nanosecond.
FETCH_NS_PER_MIB: Final = 1 << 20
#: A limit for what a worker holds that is never reached.
NEVER_WATCHED: Final = 1 << 62
#: Amounts of resources are kept to this many decimals: rounded sums and differences of such numbers
#: are exact, so after ten tasks of 0.1 have ended, 1 is free again, not 0.9999999999999999.
RESOURCE_DIGITS: Final = 9
#: No amount is as small as this.
ROUNDED: Final = 1e-9

#: Why a worker takes no tasks; see `moves/taking.py`. It is *full*: it gets only what adds nothing
#: to its memory. It is *paused*: by its own report its process uses too much memory. It is *away*:
#: its connection has ended, its inventory has not, or it prepares. It is *leaving*. It is *kept*
#: for tasks that begin together, or *barred* by users. All but full ones get nothing at all.
FULL: Final = 1
PAUSED: Final = 2
AWAY: Final = 4
LEAVING: Final = 8
KEPT: Final = 16
BARRED: Final = 32
TAKES_NOTHING: Final = PAUSED | AWAY | LEAVING | KEPT | BARRED


class _Reason:
    """One of the reasons in `WorkerHandle.closed`, as an attribute."""

    def __init__(self, reason: int) -> None:
        self._reason = reason

    def __get__(self, ws: WorkerHandle, owner: type[WorkerHandle]) -> bool:
        return ws.closed & self._reason != 0

    def __set__(self, ws: WorkerHandle, is_closed: bool) -> None:
        ws.closed = ws.closed | self._reason if is_closed else ws.closed & ~self._reason


class FailedFetches:
    """Fetches of a worker that did not reach a certain holder."""

    __slots__ = ("first", "last", "n")

    def __init__(self, now: float, n: int = 1) -> None:
        #: >= 1
        self.n = n
        #: first <= last
        self.first = self.last = now


class BlockedWait(NamedTuple):
    """The wait of an attempt that has begun and holds no thread."""

    #: when it was reported, in waking time
    since: float
    #: the first of the tasks, all of which it waits for without a time limit
    keys: Sequence[str]
    #: the results that the first of the calls go to that it waits for likewise, and the texts of
    #: these; both empty = it waits for something else, or not for ever
    callees: Sequence[str] = ()
    calls: Sequence[str] = ()


class WorkerHandle:
    """One worker process. It survives its connections until it is lost (see `disconnected.py`)."""

    __slots__ = (
        "address",
        "alone",
        "awaited",
        "away_due",
        "backlog_ns",
        "blocked",
        "classes",
        "closed",
        "facts",
        "fetch_ns_per_mib",
        "free_resources",
        "functions",
        "has_what",
        "host",
        "inventory",
        "is_new",
        "is_silent",
        "last_asked",
        "last_progress",
        "leaving_because",
        "measured_nbytes",
        "memory_limit",
        "n_apart",
        "n_asking",
        "n_behind",
        "n_fruitless",
        "name",
        "names",
        "nbytes",
        "nthreads",
        "occupancy_ns",
        "peer",
        "processing",
        "resident_nbytes",
        "resources",
        "return_asked",
        "status",
        "supervisor_id",
        "task_clients",
        "unreachable",
        "unreachable_from",
        "usual_backlog_ns",
        "watched_above",
        "worker_id",
        "zombies",
    )

    is_full = _Reason(FULL)
    is_paused = _Reason(PAUSED)
    is_away = _Reason(AWAY)
    #: it finishes what it runs, and is in no class
    is_leaving = _Reason(LEAVING)

    def __init__(self, peer: int, hello: RegisterWorker, now: float) -> None:
        self.peer = peer
        self.worker_id = hello.worker_id
        #: unique among the connected workers
        self.name = hello.name
        self.address = hello.address
        self.host = str(hello.facts.get("host", ""))
        #: by which tasks are restricted to it, beside `name`: those of its machine, and the one
        #: with which it registered, whether or not an earlier process of that name was still
        #: expected back at that time
        self.names = names_of_process(self.address, self.host) | {hello.name}
        self.nthreads = max(1, hello.nthreads)
        self.memory_limit = hello.memory_limit
        self.supervisor_id = hello.supervisor_id
        self.facts: dict[str, Any] = hello.facts
        #: why it takes no tasks: the sum of FULL and the like; 0 = it takes some. One that takes
        #: nothing is not idle, not loaded, and not open in its classes
        self.closed = 0
        #: when its present session began, it had been assigned no task and had no result
        self.is_new = not hello.last_epoch or hello.is_unused
        #: why, if it leaves
        self.leaving_because = ""
        #: its silence ends its session
        self.is_silent = False
        #: what it last reported about itself; None before the first heartbeat
        self.status: WorkerStatus | None = None
        #: memory of its process, as it or its supervisor last reported it; 0 = not known
        self.resident_nbytes = 0
        #: what a MiB of large values takes to come from other workers, as measured
        self.fetch_ns_per_mib = FETCH_NS_PER_MIB
        #: {attempt: task}: all and only tasks in state processing with `task.worker is self`
        self.processing: dict[int, SchedulerTask] = {}
        #: {attempt: resources}: dropped before they reported; each may hold a thread, and holds its
        #: resources, until the worker reports that it ended
        self.zombies: dict[int, tuple[tuple[str, float], ...]] = {}
        #: {attempt: what is known of its wait} of `processing` and `zombies`: they hold no thread
        self.blocked: dict[int, BlockedWait] = {}
        #: {client: None}: those in its tasks, which end with it
        self.task_clients: dict[ClientHandle, None] = {}
        #: {worker: failed fetches}: peers that this worker could not reach; see `unreached`
        self.unreachable: dict[WorkerHandle, FailedFetches] = {}
        #: {worker: None}: the inverse
        self.unreachable_from: dict[WorkerHandle, None] = {}
        #: {function: None} that it was sent; the inverse of `Function.workers`
        self.functions: dict[Function, None] = {}
        #: sum of `estimate_ns` over `processing`, exact; that of a blocked task is 0
        self.occupancy_ns = 0
        #: {task: None}: all and only tasks in memory with self among their replicas
        self.has_what: dict[SchedulerTask, None] = {}
        #: sum of `nbytes` over `has_what`, exact
        self.nbytes = 0
        #: ... when `resident_nbytes` was reported
        self.measured_nbytes = 0
        #: a feature follows each change of its load while `nbytes` is above this
        self.watched_above = NEVER_WATCHED
        self.resources = {n: round(float(a), RESOURCE_DIGITS) for n, a in hello.resources.items()}
        #: resources minus the sums over `processing` and `zombies`; below 0 if some wait for them
        self.free_resources = dict(self.resources)
        #: {name: how many of `processing` and `zombies` ask for it}
        self.n_asking = dict.fromkeys(self.resources, 0)
        #: how many of these wait for it at least, as far as the sums show: they hold no thread
        self.n_behind = 0
        #: the number of `processing` and `zombies` minus that of the threads that they take: those
        #: that wait take none, others may name more or fewer cores than one
        self.n_apart = 0
        #: classes without resources that this worker may run; symmetric with `TaskClass.members`
        self.classes: dict[TaskClass, None] = {}
        #: (self,), shared by all tasks whose only replica is here
        self.alone: tuple[WorkerHandle, ...] = (self,)
        #: it gets more while `occupancy_ns` is less; 0 = only for threads that are free, because
        #: the results of what it has take enough memory until some of them are read
        self.backlog_ns = self.usual_backlog_ns = min(BACKLOG_NS * self.nthreads, MAX_BACKLOG_NS)
        #: unanswered requests for unstarted work since it last finished something
        self.n_fruitless = 0
        #: a ReturnAttempts is unanswered
        self.return_asked = False
        #: when it is given up, or its session is ended because no row comes; None before that
        self.away_due: Deadline | None = None
        #: while it sends its inventory; None before and after that
        self.inventory: Inventory | None = None
        #: {client: {key: None}}: away only; they could not get these from it, and wait for its
        #: return or its loss
        self.awaited: dict[ClientHandle, dict[str, None]] = {}
        self.last_asked = float("-inf")
        #: when it last finished something, or was given something while idle
        self.last_progress = now

    @property
    def has_room(self) -> bool:
        """True if it may be given one more task (resources apart)."""
        if self.closed:
            return False
        if self.occupancy_ns < self.backlog_ns:
            return True
        return self.n_busy < self.nthreads

    @property
    def wants_more(self) -> bool:
        """True if it should be given more, of what it has room for, although it is not idle.

        Half of the backlog is enough until then, if each thread has a task that waits for it.
        """
        return self.occupancy_ns * 2 < self.backlog_ns or self.n_busy < 2 * self.nthreads

    def is_named(self, names: tuple[str, ...]) -> bool:
        """Return whether one of its names is among those that a restriction lists."""
        return self.name in names or not self.names.isdisjoint(names)

    @property
    def n_busy(self) -> int:
        """The number of attempts that may hold its threads."""
        n = len(self.processing) + len(self.zombies) - len(self.blocked) - self.n_apart
        return n if n > 0 else 0

    def is_stuck(self, now: float) -> bool:
        """Return whether all its threads have been busy for so long that others are preferred."""
        return now - self.last_progress > STUCK_S and self.n_busy >= self.nthreads

    def has_room_for(self, task_class: TaskClass, *, at_once: bool = False) -> bool:
        """Return whether it may be given a task of this class."""
        return self.has_room and self.has_resources_for(task_class, at_once=at_once)

    def has_resources_for(self, task_class: TaskClass, *, at_once: bool = True) -> bool:
        """Return whether what a task of this class asks for is free; or soon, unless `at_once`."""
        return all(self._has(name, amount, at_once) for name, amount in task_class.resources)

    def has_left(self, names: Iterable[str]) -> bool:
        """Return whether there may be a class that asks for one of these, and has room there."""
        return self.has_room and any(self._has(name, ROUNDED, False) for name in names)

    def _has(self, name: str, amount: float, at_once: bool) -> bool:
        """Return whether this is free; or soon, if tasks of a mean time wait for it there."""
        missing = amount - self.free_resources.get(name, 0.0)
        if at_once or missing <= 0.0 or not self.facts.get(QUEUES_RESOURCES) or self.keeps(name):
            return missing <= 0.0
        n_backlogs = BACKLOG_NS * len(self.processing)
        return missing * self.occupancy_ns < self.resources.get(name, 0.0) * n_backlogs

    def keeps(self, name: str) -> bool:
        """Return whether attempts that wait hold some of this, for a time that is not known."""
        tasks = {attempt: self.processing.get(attempt) for attempt in self.blocked}
        held = (t.group.task_class.resources if t else self.zombies[a] for a, t in tasks.items())
        return any(name == one for resources in held for one, _ in resources)

    def hold(self, resources: tuple[tuple[str, float], ...], n: int = 1) -> None:
        """Count so many more attempts that ask for this; below 0: so many less."""
        free, n_asking = self.free_resources, self.n_asking
        for name, amount in resources:
            free[name] = round(free[name] - n * amount, RESOURCE_DIGITS)
            n_asking[name] += n
        n_behind = 0
        for name, left in free.items():
            if left < 0.0:
                # The part of its tasks that is beyond what is there, of a mean amount each.
                n_over = int(n_asking[name] * -left / (self.resources[name] - left))
                n_behind = max(n_behind, n_over, 1)
        self.n_behind = self.n_apart = n_behind
        if n_asking.get(CORES) or n_asking.get(BESIDE):
            total = self.resources.get(CORES, 0.0)
            n_threads = ceil(min(total - free.get(CORES, 0.0), total) - ROUNDED)
            n_apart = n_asking.get(CORES, 0) + n_asking.get(BESIDE, 0) - n_threads
            # Those that have no thread to give up while they wait are among these already.
            waiting = [task for a in self.blocked if (task := self.processing.get(a))]
            n_apart -= sum(task.group.task_class.shares_core for task in waiting)
            self.n_apart = max(n_behind, n_apart) if n_behind else n_apart

    def may_be_asked_in(self, now: float) -> float:
        """Return in how many seconds it may be asked for unstarted work; inf = after its answer."""
        if self.return_asked:
            return inf
        interval_s: float = RETURN_INTERVAL_S * 2 ** min(self.n_fruitless, 6)
        return self.last_asked + interval_s - now

    def __repr__(self) -> str:
        return f"<WorkerHandle {self.name} {self.address}>"


class Inventory:
    """The inventory of a worker, while its rows come."""

    __slots__ = (
        "has_what",
        "listed",
        "n_adopted",
        "n_dropped",
        "n_kept",
        "n_rows",
        "processing",
        "zombies",
    )

    def __init__(self, ws: WorkerHandle) -> None:
        #: entries of its `processing`, `zombies` and `has_what` that no row has named
        self.processing = dict(ws.processing)
        self.zombies = dict.fromkeys(ws.zombies)
        self.has_what = dict(ws.has_what)
        #: {message class: {attempt: what its row says}}; no attempt is in two of the inner maps
        self.listed: dict[type[Message], dict[int, Any]] = {}
        #: rows that came so far, and what became of them
        self.n_rows = 0
        self.n_kept = 0
        self.n_adopted = 0
        self.n_dropped = 0

    def lists(self, attempt: int) -> bool:
        """Return whether a row that came is of this attempt."""
        return any(attempt in rows for rows in self.listed.values())


class ClientHandle:
    """One client; it survives its connections until its lease ends."""

    __slots__ = (
        "alone",
        "client_id",
        "facts",
        "functions",
        "is_watcher",
        "lease",
        "name",
        "number",
        "peer",
        "receive",
        "refused",
        "user",
        "wants",
        "worker",
    )

    def __init__(
        self,
        client_id: str,
        name: str,
        number: int,
        worker: WorkerHandle | None = None,
        receive: Callable[[SchedulerState, Message], None] | None = None,
        *,
        user: User | None = None,
        is_watcher: bool = False,
    ) -> None:
        self.client_id = client_id
        self.user = user or User()
        #: what a *keeper* does with a message: a feature that wants tasks as clients do, and never
        #: has a connection; None = it is a client of the cluster
        self.receive = receive
        #: a keeper that wants to know how tasks end, and does not keep one that others cancel
        self.is_watcher = is_watcher
        #: the worker in whose tasks the client is, and with which it ends; None = no task has it
        self.worker = worker
        #: the number of no other client of this epoch, nor of an earlier life of this one; its high
        #: bits are that of its user
        self.number = number
        self.name = name
        self.facts: dict[str, Any] = {}
        #: connection, None while lost
        self.peer: int | None = None
        #: {task: None}; symmetric with `SchedulerTask.wanted_by`
        self.wants: dict[SchedulerTask, None] = {}
        #: {key: None} of rows that were refused; until it releases them, it counts them as sent.
        #: Empty if no function is kept
        self.refused: dict[str, None] = {}
        #: {function: None} of rows that were refused, or whose task has another function: the
        #: client does not send these again while it holds the key. Each counts as one task more,
        #: until it wants no task and has no `refused` keys
        self.functions: dict[Function, None] = {}
        #: (self,), shared by all tasks that only this client wants
        self.alone: tuple[ClientHandle, ...] = (self,)
        #: the end of its lease, since its connection closed without a Bye; None while connected
        self.lease: Deadline | None = None

    def __repr__(self) -> str:
        return f"<ClientHandle {self.name}>"


class SupervisorHandle:
    """The connection of one supervisor."""

    __slots__ = ("facts", "is_new", "last_epoch", "peer", "supervisor_id")

    def __init__(self, peer: int, hello: RegisterSupervisor) -> None:
        self.peer = peer
        self.supervisor_id = hello.supervisor_id
        self.facts: dict[str, Any] = hello.facts
        #: it has served no scheduler before this one
        self.is_new = not hello.last_epoch
        #: the epoch of its last session; 0 = it is new
        self.last_epoch = hello.last_epoch
