"""`SchedulerState`: the scheduler as a pure state machine.

    state.handle(event, now)      # mutates the state, fills the out-boxes

Owns the containers, the entry point and the out-boxes. The logic is split by subject into modules
of functions over this state: `submission` (requests of clients), `assignment` (which worker runs
which task), `completion` (reports of workers), `lost_workers`, `missing` (data that a holder does
not have), `relays` (data sent through the scheduler), `questions` (about the cluster), `membership`
(peers that come and go), `permissions` (the messages that a token permits), `liveness` (peers that
are silent), `deadlines` (what is due when time has passed), `transitions` (a task's life, as a
table), `validate` (the invariants).

Must never: wait, open, read a clock, draw a random number, read the content of a `Blob`, or iterate
over a set (the order of a set of objects differs between runs; simulated runs must replay).

The shell (`server.py`) turns connections into `PeerConnected`, `PeerSent` and `PeerClosed`, with a
`SchedulerTick` whenever `next_deadline` has come, and out-boxes into frames.

A peer is a number that the shell never uses twice. After one or more events the shell drains
`before`, `outboxes` (messages in order, one list per peer) and `after`, as the drain contract of
docs/design/cores.md says. A whole batch of messages is handled first, then one assignment pass is
made.

A peer can be wrong: a message that it may not send ends its connection, and is counted. A broken
invariant is a bug of weft: `InvalidTransition` or `InvalidState`, with the task's story.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, MutableMapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

from ...protocol.wire.levels import Level
from ...protocol.wire.message import Message, Unknown
from ...protocol.wire.roles import Role
from .actions import Action, CloseConnection, LogLine, StopServer
from .assignment import assignment
from .events import Event, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from .feature import Feature, Features
from .handlers import handlers_by_role
from .members import liveness, membership
from .members.epochs import NS_PER_ATTEMPT, KeptMembers, Members
from .members.lost_workers import LostWorkers
from .records.counters import Counters
from .records.deadlines import Deadline, Deadlines
from .records.failures import Failures
from .records.peers import ClientHandle, SupervisorHandle, WorkerHandle
from .records.permissions import answer_unhandled, deny
from .records.prefixes import Prefixes
from .records.priority import Ranks
from .records.settings import DEFAULTS, KernelSettings
from .records.story import Story
from .records.tasks import Function, IdleFunctions, SchedulerTask, TaskClass

# Reading a member of an enumeration from its class takes longer than comparing it.
_CLIENT: Final = Role.CLIENT
_WORKER: Final = Role.WORKER
_SUPERVISOR: Final = Role.SUPERVISOR
_TASK_CLIENT: Final = Role.TASK_CLIENT

_Record = TypeVar("_Record")

#: A report of a bug has the stories of at most this many tasks.
MAX_STORIES: Final = 10


class SchedulerState:
    """All tasks, workers and clients of one epoch. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        epoch: int,
        settings: KernelSettings = DEFAULTS,
        *,
        expected: Members | None = None,
        epoch_key: bytes = b"",
        features: Sequence[Feature],
    ) -> None:
        self.epoch = epoch
        #: of the proofs of epochs, see `epochs.proof_of`; b"" = each claim is believed
        self.epoch_key = epoch_key
        #: the members of the last epoch, as far as they are on record
        self.expected = expected or Members()
        self.kept_members = KeptMembers()
        self.facts: dict[str, Any] = {}  #: sent to every peer that registers: versions, pages
        self.settings = settings

        #: {key: task}, all tasks that are not forgotten
        self.tasks: dict[str, SchedulerTask] = {}
        #: those of `functions` that no task uses
        self.idle_functions = IdleFunctions(settings.max_idle_functions)
        #: {function id: function} of all tasks, and of idle ones
        self.functions: dict[bytes, Function] = {}
        self.prefixes: Prefixes = Prefixes()  #: what was learned, by function name
        self.default_class = TaskClass((), (), False, ())
        #: {(workers, allow_other_workers, resources, avoided workers if any): class}, and some of
        #: another kind
        self.classes: dict[tuple[object, ...], TaskClass] = {(): self.default_class}
        #: {class: None} of all classes with a queued task
        self.ready: dict[TaskClass, None] = {}
        #: {class: None} of all whose tasks take no thread
        self.threadless: dict[TaskClass, None] = {}

        #: {peer: role} of all open connections
        self.roles: dict[int, Role] = {}
        #: {peer: the level of its token} of the same
        self.levels: dict[int, Level] = {}
        #: {peer: None} of those that must register and have not yet
        self.strangers: dict[int, None] = {}
        self.seen = liveness.SignsOfLife()
        #: {peer: worker} of all registered workers
        self.workers: dict[int, WorkerHandle] = {}
        self.workers_by_id: dict[str, WorkerHandle] = {}
        self.workers_by_address: dict[str, WorkerHandle] = {}
        #: {name: worker} of those that do not leave
        self.staying: dict[str, WorkerHandle] = {}
        #: {client_id: client}, also those lost less than a lease ago
        self.clients: dict[str, ClientHandle] = {}
        self.clients_by_peer: dict[int, ClientHandle] = {}
        self.supervisors: dict[int, SupervisorHandle] = {}
        #: {supervisor_id: {peer: supervisor}}: several while one has connected anew; none is empty
        self.supervisors_by_id: dict[str, dict[int, SupervisorHandle]] = {}

        #: {task: None}: waiting tasks that may be assigned ahead, looked at by the next settle
        self.ahead: dict[SchedulerTask, None] = {}
        #: {worker: None} of all workers that process nothing
        self.idle: dict[WorkerHandle, None] = {}
        #: {worker: None} of all workers that hold more tasks than threads
        self.loaded: dict[WorkerHandle, None] = {}
        #: {worker: None}, idle ones first: all workers that have room and resources left for a
        #: class in `ready`, and some that have not
        self.takers: OrderedDict[WorkerHandle, None] = OrderedDict()
        #: {worker: None}: workers that a feature has closed for tasks of all classes (`is_full`)
        self.full: dict[WorkerHandle, None] = {}
        #: {name: None} of the features that have something to do with each assignment pass, or when
        #: something ends that is rare
        self.busy: dict[str, None] = {}
        #: {worker: None}: workers whose load changed since the last settle
        self.touched: dict[WorkerHandle, None] = {}

        #: {task: (times, since, last)} taken back because its inputs' holder was out of reach of
        #: its worker. Of these, some are in state no_worker until the pause of `missing` is over.
        self.out_of_reach: dict[SchedulerTask, tuple[int, float, float]] = {}
        #: {worker: {attempt: key}} that the cancellation under way drops, and that are interrupted;
        #: None = it interrupts none, and between events
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
        #: {attempt: (worker, task)}: attempts beside the current ones, among the worker's zombies;
        #: the first result counts
        self.twins: dict[int, tuple[WorkerHandle, SchedulerTask]] = {}
        #: peers of an earlier scheduler may run what looks unfinished: nothing is assigned
        self.awaits_peers = False
        #: ... or is so until a short time ago: clients may come back for what nobody needs
        self.awaits_owners = False
        self.started: float | None = None  #: the time of the first event

        #: Above all that an earlier scheduler gave out in its time: a worker may still run those.
        self.first_attempt = self.next_attempt = epoch // NS_PER_ATTEMPT + 1
        self._next_request = 1
        self.ranks = Ranks()

        #: {peer: messages}, in order; the shell drains it after each `handle`
        self.outboxes: dict[int, list[Message]] = {}
        #: to be done before the messages of the same events leave; so far no event asks for that
        self.before: list[Action] = []
        #: to be done when those messages are sent, or are kept for a peer that does not read
        self.after: list[Action] = []
        self.counters = Counters()
        self.failures = Failures()  #: those of all erred tasks
        self.story = Story()
        #: when an assignment pass is made at the latest, because work may be asked back then
        self.next_return: Deadline | None = None
        self.now = 0.0
        self.deadlines = Deadlines(settings.heartbeat_s)

        self.features = Features(features)
        #: maps of tasks, whose rows end when their task is forgotten
        self.notes: list[MutableMapping[SchedulerTask, Any]] = [
            self.n_exceptions,
            self.deaths,
            self.out_of_reach,
            *self.features.notes,
        ]
        self._handlers = handlers_by_role(self.features)

    def record(self, kind: type[_Record]) -> _Record:
        """Return this state's record of a feature, by its class."""
        found: _Record = self.features.records[kind]
        return found

    # -- the entry point --------------------------------------------------------------------------
    def handle(self, event: Event, now: float) -> None:
        """Apply one event at time `now` (seconds, never decreasing)."""
        self.now = now
        if self.started is None:
            self.started = now
            for started in self.features.started:
                started(self)
        if type(event) is PeerSent:
            self._on_received(event.peer, event.messages)
        elif type(event) is SchedulerTick:
            liveness.note_unread(self, event.unread)
            self.deadlines.run(now, self)
            liveness.reassure(self, event.receiving)
            for ticked in self.features.ticked:
                ticked(self, event)
        elif type(event) is PeerConnected:
            self.roles[event.peer] = event.role
            self.levels[event.peer] = event.level
            if event.role is not Role.VIEWER:
                self.strangers[event.peer] = None
                liveness.note_alive(self, event.peer)
        elif type(event) is PeerClosed:
            membership.on_closed(self, event.peer)
        assignment.settle(self)

    def _on_received(self, peer: int, batch: Sequence[Message]) -> None:
        role = self.roles.get(peer)
        who: Any
        if role is _CLIENT or role is _TASK_CLIENT:
            who = self.clients_by_peer.get(peer)
        elif role is _WORKER:
            who = self.workers.get(peer)
        elif role is _SUPERVISOR:
            who = self.supervisors.get(peer)
        elif role is None:
            return  # the scheduler has closed it; messages that were on the way are void
        else:
            who = peer
        if who is None:
            self._on_first(peer, role, batch)
            return
        handlers = self._handlers[role]
        level = self.levels[peer]
        for message in batch:
            kind = message.__class__
            handler = handlers.get(kind)
            if handler is None:
                if answer_unhandled(self, peer, role, message):
                    continue
                return
            if kind.least_level > level and role is not _TASK_CLIENT:
                deny(self, peer, message, kind.least_level)
                continue
            handler(self, who, message)
            if peer not in self.roles:
                return  # that message ended the session

    def _on_first(self, peer: int, role: Role, batch: Sequence[Message]) -> None:
        """Register a peer by its first message; what follows it comes from a registered peer."""
        if not batch[0].opens or role not in batch[0].senders:
            self.refuse(peer, f"{_name_of(batch[0])} before registration")
        elif membership.on_register(self, peer, cast("Any", batch[0])) and len(batch) > 1:
            self._on_received(peer, batch[1:])

    def story_of(self, event: Event) -> list[str]:
        """Return the latest story of the first tasks that an event names, for error reports."""
        if type(event) is not PeerSent:
            return []
        ws = self.workers.get(event.peer)
        processing = ws.processing if ws is not None else {}
        keys: dict[str, None] = {}
        for message in event.messages:
            keys.update(dict.fromkeys(getattr(message, "keys", ())))
            for attempt in getattr(message, "attempts", ()):
                if attempt in processing:
                    keys[processing[attempt].key] = None
        first = islice(keys, MAX_STORIES)
        return [f"{key}: {line}" for key in first for line in self.story.of(key)]

    # -- time -------------------------------------------------------------------------------------
    @property
    def next_deadline(self) -> float:
        """When the next `SchedulerTick` must come at the latest (by the clock of the events)."""
        return min(self.deadlines.next_tick(), self.seen.next_reassurance)

    @property
    def awake_s(self) -> float:
        """The waking time (see `deadlines.py`) at the present event, seconds."""
        return self.deadlines.awake(self.now)

    def call_after(self, delay_s: float, action: Callable[..., None], *args: Any) -> Deadline:
        """Let `action(state, *args)` be due after `delay_s` seconds of waking time.

        `deadlines.cancel` takes the result. As after an event, an assignment pass follows.
        """
        return self.deadlines.add(self.now, delay_s, action, *args)

    def new_request(self) -> int:
        """Return the number of a request to a peer."""
        number = self._next_request
        self._next_request = number + 1
        return number

    # -- out-boxes --------------------------------------------------------------------------------
    def send(self, peer: int, message: Message) -> None:
        """Append to a peer's out-box."""
        outbox = self.outboxes.get(peer)
        if outbox is None:
            self.outboxes[peer] = [message]
        else:
            outbox.append(message)

    def send_client(self, client: ClientHandle, message: Message) -> None:
        """Send to a client, unless it is away: it sends its wanted keys when it comes back."""
        if client.peer is not None:
            self.send(client.peer, message)
        elif client.receive is not None:
            client.receive(self, message)

    def refuse(self, peer: int, reason: str) -> None:
        """Count a breach of the rules and end that peer's connection; no other is touched.

        An empty reason is not logged.
        """
        self.counters.protocol_errors += 1
        self.after.append(CloseConnection(peer, reason, is_error=True))
        membership.on_closed(self, peer, for_good=True)

    def part(self, peer: int) -> None:
        """Close the connection of a peer that has sent its goodbye and waits for this.

        If it closed first, a message on its way to it would fail, and end the connection before the
        goodbye is read.
        """
        self.after.append(CloseConnection(peer, "", is_error=False))

    def supersede(self, peer: int) -> None:
        """End the old connection of a peer that is back before its end was seen."""
        self.after.append(CloseConnection(peer, "its peer has connected anew", is_error=False))
        membership.on_closed(self, peer)

    def log(self, level: str, text: str) -> None:
        """Add a line for the log; cluster changes only, never tasks."""
        self.after.append(LogLine(level, text))

    def report(self, event: str, **facts: Any) -> None:
        """Say what has happened, for users that follow it."""
        for note in self.features.reported:
            note(self, event, facts)

    def finish(self, now: float) -> None:
        """Let the features add what they have kept back: the scheduler is about to end."""
        self.now = now
        for finishing in self.features.finishing:
            finishing(self)

    def stop(self, reason: str) -> None:
        """Ask the shell to end the process after the out-boxes are sent."""
        self.after.append(StopServer(reason))


def _name_of(message: Message) -> str:
    if isinstance(message, Unknown):
        return f"a message of unknown code {message.unknown_code}"
    return type(message).__name__
