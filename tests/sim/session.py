"""A node's session with the scheduler: the machine of the product, over a simulated link.

It does what `protocol/net/session.py` does on an event loop: there is one timer and at most one
link, and messages that an old link still delivers do not reach the next session.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from weft.protocol.errors import CommClosed, CommError
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import Heartbeat, Refused, Welcome
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import (
    Abandon,
    Action,
    Beat,
    Connect,
    Lose,
    Policy,
    Register,
    Retry,
    Session,
)

from .links import Link

if TYPE_CHECKING:
    from .simulation import Simulation


class SessionOwner(Protocol):
    """A node, as its session sees it."""

    #: whose name its token carries; "" = none
    user: str

    def when_awake(self, what: Any, *args: Any) -> bool:
        """Put an event off while the process is stopped. False = it is dead or asleep."""

    def registration(self, number: int, last_epoch: int) -> Message:
        """Return the first message of the node's `number`-th session."""

    def heartbeat(self) -> list[Message]:
        """Return what is sent at each beat."""

    def on_welcome(self) -> None:
        """Begin: the session is open."""

    def on_messages(self, messages: list[Message]) -> None:
        """Handle messages of an open session, without heartbeats."""

    def on_lost(self) -> None:
        """Drop the state of the session that was open. Another one may follow."""


class SimulatedSession:
    """Runs one `Session`; the first attempt to connect is made at once."""

    def __init__(self, sim: Simulation, owner: SessionOwner, role: Role, policy: Policy) -> None:
        self.sim = sim
        self.world = sim.world
        self.owner = owner
        self.role = role
        #: The current connection; None between two of them.
        self.link: Link | None = None
        self.machine = Session(policy, self.world.rng.random)
        self._n_received = 0
        #: The time for which the timer is set. An event of another time is ignored.
        self._timer_due = math.inf
        self.machine.start(self.world.now)
        self._drain()

    def __repr__(self) -> str:
        return repr(self.owner)

    @property
    def is_open(self) -> bool:
        """Return whether the scheduler's acceptance of the registration has arrived."""
        return self.machine.phase == "open"

    def send(self, messages: list[Message]) -> None:
        """Send in the open session; without one they are dropped."""
        if messages and self.is_open and self.link is not None:
            self.world.note(f"{self!r} ->", messages)
            self.link.send(0, messages)

    def leave(self, farewell: list[Message]) -> None:
        """End: send a last frame if there is a session, and close; no attempt follows."""
        self.send(farewell)
        was_open = self.is_open
        self.machine.end()
        link, self.link = self.link, None
        if link is not None:
            if was_open:
                link.close(0)
            else:
                link.break_()

    def abort(self) -> None:
        """End as the process does: frames on their way may be lost, and no attempt follows."""
        self.machine.end()
        self._abandon()

    # -- events of the simulation and the link ----------------------------------------------------
    def on_connected(self, link: Link) -> None:
        """Handle the scheduler's acceptance of the connection."""
        if self.machine.phase == "over":
            link.break_()
        elif self.owner.when_awake(self.on_connected, link):
            self.link = link
            self.machine.on_connected(self.world.now)
            self._drain()

    def on_refused(self) -> None:
        """Handle the refusal: no scheduler listens there."""
        if self.owner.when_awake(self.on_refused) and self.machine.phase == "connecting":
            self.machine.on_failed(CommError("refused"), self.world.now)
            self._drain()

    def on_messages(self, link: Link, messages: list[Message]) -> None:
        """See `End`."""
        if not self.owner.when_awake(self.on_messages, link, messages) or link is not self.link:
            return
        self._n_received += 1
        if not self.is_open:
            welcome, *messages = messages
            if isinstance(welcome, Refused) and self.role is Role.TASK_CLIENT:
                self.world.probes["a client in tasks is refused"] += 1
                return  # its worker is not there yet; the end of the connection follows
            assert isinstance(welcome, Welcome), f"{self!r} got {welcome!r} before a welcome"
            assert welcome.epoch >= self.machine.epoch, "the highest epoch seen never decreases"
            link.set_numbers(0, welcome.epoch, welcome.session)
            self.machine.on_welcomed(welcome.epoch, welcome.heartbeat_ms, self.world.now)
            self.owner.on_welcome()
            self._drain()
        for message in messages:
            if isinstance(message, Heartbeat):
                self.machine.on_answered(message.next_ms, self.world.now)
                self._set_timer()
        messages = [message for message in messages if not isinstance(message, Heartbeat)]
        if messages and link is self.link:
            self.owner.on_messages(messages)

    def on_closed(self, link: Link) -> None:
        """See `End`."""
        if self.owner.when_awake(self.on_closed, link) and link is self.link:
            self.link = None
            self.machine.on_closed(CommClosed("the connection ended"), self.world.now)
            self._drain()

    # -- actions of the machine -------------------------------------------------------------------
    def _on_timer(self, due: float) -> None:
        if due != self._timer_due or not self.owner.when_awake(self._on_timer, due):
            return
        self._timer_due = math.inf
        was_open = self.is_open
        self.machine.on_tick(self._n_received, max(self.world.now, self.machine.due))
        if was_open and not self.is_open:
            self.world.probes["scheduler silent"] += 1
        self._drain()

    def _drain(self) -> None:
        while self.machine.actions:
            actions, self.machine.actions = self.machine.actions, []
            for action in actions:
                self._act(action)
        self._set_timer()

    def _act(self, action: Action) -> None:
        if isinstance(action, Beat):
            self.send(self.owner.heartbeat())
        elif isinstance(action, Connect):
            self.sim.connect(self, self.role)
        elif isinstance(action, Register):
            assert self.link is not None
            self.link.send(0, [self.owner.registration(action.number, action.last_epoch)])
        elif isinstance(action, Abandon):
            self.world.note(f"{self!r} gives its connection up", str(action.reason))
            self._abandon()
        elif isinstance(action, Lose):
            self.world.note(f"{self!r} lost the scheduler")
            self.owner.on_lost()
        else:
            assert isinstance(action, Retry), f"{self!r}: {action!r}"

    def _abandon(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.break_()

    def _set_timer(self) -> None:
        due = self.machine.due
        if due != self._timer_due:
            self._timer_due = due
            if due < math.inf:
                # Heartbeats go on for ever and keep no run going; a delay between two attempts
                # ends, and leads to an event.
                delay = max(due - self.world.now, 0.0)
                is_work = self.machine.phase == "waiting"
                self.world.at(delay, self._on_timer, due, is_work=is_work)


__all__ = ["SessionOwner", "SimulatedSession"]
