"""The tables of the scheduler's state: what is known, without what is done with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any

from ....protocol.story import Story
from ....protocol.wire.levels import Level
from ....protocol.wire.roles import Role
from .counters import Counters
from .deadlines import Deadline, Deadlines
from .failures import Failures
from .peers import ClientHandle, SupervisorHandle, WorkerHandle
from .prefixes import Prefixes
from .presence import NS_PER_ATTEMPT, KeptMembers, LostWorkers, Members, SignsOfLife
from .priority import Ranks
from .settings import KernelSettings
from .tasks import Function, IdleFunctions, ReadyClasses, SchedulerTask, TaskClass
from .users import User


class StateTables:
    """All tasks, workers and clients of one epoch, and the numbers and times of it."""

    def __init__(
        self, epoch: int, settings: KernelSettings, expected: Members, epoch_key: bytes
    ) -> None:
        self.epoch = epoch
        #: the key of the proofs of epochs, see `epochs.proof_of`; b"" = each claim is believed
        self.epoch_key = epoch_key
        #: the members of the last epoch, as far as they are on record
        self.kept_members = KeptMembers(expected)
        self.facts: dict[str, Any] = {}  #: sent to every peer that registers: versions, pages
        self.settings = settings

        #: {key: task}, all tasks that are not forgotten
        self.tasks: dict[str, SchedulerTask] = {}
        #: functions that no task uses; `self.functions` has them too
        self.idle_functions = IdleFunctions(settings.max_idle_functions)
        #: {function id: function} of all tasks, and of idle ones
        self.functions: dict[bytes, Function] = {}
        self.prefixes: Prefixes = Prefixes()  #: what was learned, by function name
        self.default_class = TaskClass((), (), False, ())
        #: {(workers, allow_other_workers, resources, what is avoided if any): class}, and some of
        #: another kind
        self.classes: dict[tuple[object, ...], TaskClass] = {(): self.default_class}
        self.ready = ReadyClasses()  #: all classes with a queued task
        #: {class: None} of all whose tasks take no thread
        self.threadless: dict[TaskClass, None] = {}

        #: {peer: role} of all open connections
        self.roles: dict[int, Role] = {}
        #: {peer: the level of its token} of the same
        self.levels: dict[int, Level] = {}
        #: {peer: its user, "" = none} of those that must register and have not yet
        self.strangers: dict[int, str] = {}
        self.seen = SignsOfLife()
        #: {peer: worker} of all registered workers
        self.workers: dict[int, WorkerHandle] = {}
        self.workers_by_id: dict[str, WorkerHandle] = {}
        self.workers_by_address: dict[str, WorkerHandle] = {}
        #: {name: worker} of those that do not leave
        self.staying: dict[str, WorkerHandle] = {}
        #: {client_id: client}, also those lost less than a lease ago
        self.clients: dict[str, ClientHandle] = {}
        self.clients_by_peer: dict[int, ClientHandle] = {}
        #: {name: user} of all that had a client, and "" for tasks that no client has submitted
        self.users: dict[str, User] = {"": User()}
        self.supervisors: dict[int, SupervisorHandle] = {}
        #: {supervisor_id: {peer: supervisor}}: several while one has connected anew; none is empty
        self.supervisors_by_id: dict[str, dict[int, SupervisorHandle]] = {}

        #: {task: None}: waiting tasks that may be assigned ahead, looked at by the next settle
        self.ahead: dict[SchedulerTask, None] = {}
        #: {worker: None} of all workers that process nothing
        self.idle: dict[WorkerHandle, None] = {}
        #: {worker: None} of all workers that hold more tasks than threads
        self.loaded: dict[WorkerHandle, None] = {}
        #: {worker: turn}, idle ones first: it may have room for a class with resources in
        #: `ready` that had no turn after that one
        self.takers: OrderedDict[WorkerHandle, int] = OrderedDict()
        #: {worker: None}: workers that a feature has closed for tasks of all classes (`is_full`)
        self.full: dict[WorkerHandle, None] = {}
        #: {record: None} of the features that have something to do with each assignment pass, or
        #: when something ends that is rare
        self.busy: dict[type, None] = {}
        #: {worker: None}: workers whose load changed since the last settle
        self.touched: dict[WorkerHandle, None] = {}

        #: {task: (times, since, last)} taken back because its inputs' holder was out of reach of
        #: its worker. Of these, some are in state no_worker until the pause of `missing` is over.
        self.out_of_reach: dict[SchedulerTask, tuple[int, float, float]] = {}
        #: {worker: {attempt: key}} that the cancellation under way drops, and that are to end soon;
        #: None = they may go on to their end, and between events
        self.abandoned: dict[WorkerHandle, dict[int, str]] | None = None
        #: {task: the end of its pause} of those in state no_worker that wait before a retry
        self.paused: dict[SchedulerTask, Deadline] = {}
        #: {task: own exceptions so far} of tasks with retries
        self.n_exceptions: dict[SchedulerTask, int] = {}
        #: {task: reasons} of tasks under which workers died
        self.deaths: dict[SchedulerTask, list[str]] = {}
        self.lost = LostWorkers()
        #: {task: (worker, attempt)} of erred tasks whose failure that worker keeps
        self.failed_at: dict[SchedulerTask, tuple[WorkerHandle, int]] = {}
        #: peers of an earlier scheduler may run what looks unfinished: nothing is assigned
        self.awaits_peers = False
        #: ... or is so until a short time ago: clients may come back for what nobody needs
        self.awaits_owners = False
        self.started: float | None = None  #: the time of the first event

        #: Above all that an earlier scheduler gave out in its time: a worker may still run those.
        self.first_attempt = self.next_attempt = epoch // NS_PER_ATTEMPT + 1
        self._next_request = 1
        self.ranks = Ranks()

        self.counters = Counters()
        self.failures = Failures()  #: those of all erred tasks
        self.story = Story()
        #: when an assignment pass is made at the latest, because work may be asked back then
        self.next_return: Deadline | None = None
        self.now = 0.0
        self.deadlines = Deadlines(settings.heartbeat_s)
        #: maps of tasks, whose rows end when their task is forgotten; features add theirs
        self.notes: list[MutableMapping[SchedulerTask, Any]] = [
            self.n_exceptions,
            self.deaths,
            self.out_of_reach,
        ]
