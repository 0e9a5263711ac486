"""`SchedulerState`: the scheduler as a pure state machine.

    state.handle(event, now)      # mutates the state, fills the out-boxes

Owns the entry point and the out-boxes; what is known is in its tables (`records/tables.py`). The
logic is functions over this state, in the rooms of the kernel and of the features.

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

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

from ...protocol.wire.message import Message, Unknown
from ...protocol.wire.roles import Role
from .actions import Action, CloseConnection, LogLine, StopServer
from .assignment import assignment
from .events import Event, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from .feature import Feature
from .handlers import handlers_by_role, with_kernel
from .members import liveness, membership
from .records.deadlines import Deadline
from .records.peers import ClientHandle
from .records.permissions import answer_unhandled, deny
from .records.presence import Members
from .records.settings import DEFAULTS, KernelSettings
from .records.tables import StateTables

# Reading a member of an enumeration from its class takes longer than comparing it.
_CLIENT: Final = Role.CLIENT
_WORKER: Final = Role.WORKER
_SUPERVISOR: Final = Role.SUPERVISOR
_TASK_CLIENT: Final = Role.TASK_CLIENT

_Record = TypeVar("_Record")

#: A report of a bug has the stories of at most this many tasks.
MAX_STORIES: Final = 10


class SchedulerState(StateTables):
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
        super().__init__(epoch, settings, expected or Members(), epoch_key)
        #: {peer: messages}, in order; the shell drains it after each `handle`
        self.outboxes: dict[int, list[Message]] = {}
        #: to be done before the messages of the same events leave; so far no event asks for that
        self.before: list[Action] = []
        #: to be done when those messages are sent, or are kept for a peer that does not read
        self.after: list[Action] = []
        #: what the kernel and all features declare
        self.features = with_kernel(features)
        self._records: dict[type, Any] = {kind: kind() for kind in self.features.records}
        self.notes += [self._records[kind] for kind in self.features.notes]
        self._handlers = handlers_by_role(self.features)

    def record(self, kind: type[_Record]) -> _Record:
        """Return this state's record of a feature, by its class."""
        found: _Record = self._records[kind]
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
                self.strangers[event.peer] = event.user
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

    def refuse(self, peer: int, reason: str, *, is_error: bool = True) -> None:
        """Count a breach of the rules and end that peer's connection; no other is touched.

        An empty reason is not logged.
        """
        self.counters.protocol_errors += is_error
        self.after.append(CloseConnection(peer, reason, is_error))
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

    def log(self, level: str, text: str, code: str = "") -> None:
        """Add a line for the log; cluster changes only, never tasks."""
        self.after.append(LogLine(level, text, code))

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
