"""The connections over which a process calls actors: `ConnectionCalls` of the product, one per
worker.

They do what `client/shell/actor_connections.py` does, over simulated links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.client.core.events import Confirm
from weft.client.core.features.actor_calls import ActorCall, Callbacks, ConnectionCalls
from weft.client.core.tasks import Watcher
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    ActorCalls,
    ActorFailures,
    ActorResults,
    ActorResultsTaken,
)

from .links import Link

if TYPE_CHECKING:
    from .client_process import ClientProcess
    from .worker_node import WorkerNode

#: As in `client/shell/actor_connections.py`.
LOOK_S = 1.0
#: A connection without calls is closed after so many looks: fewer than in the product.
IDLE_LOOKS = 2


class _Taken(Watcher):
    """Waits until the scheduler has read that this process wants the keys in some results."""

    def __init__(self, connection: ActorConnectionNode, message: ActorResults) -> None:
        super().__init__(wants_data=False)
        self._connection = connection
        self._message = message

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._connection.confirm(self._message)


class ActorConnectionNode:
    """The connection of one process to one worker, until it ends."""

    def __init__(self, owner: ActorConnectionsNode, address: str, number: int) -> None:
        self._owner = owner
        self._process = owner.process
        self._world = owner.process.world
        self.address = address
        self.calls = ConnectionCalls(owner.holder, number)
        self.link: Link | None = None
        self._is_connecting = False
        self._is_woken = False
        self._n_idle = 0

    def __repr__(self) -> str:
        return f"<connection of {self._owner.holder} to {self.address}>"

    def add(self, call: ActorCall) -> None:
        """Send a call now, or behind others."""
        can_send = self.link is not None and self._can_write()
        message = self.calls.add(call, can_send=can_send)
        if message is not None:
            if self._world.chance(0.8):
                self._send(message)
                call.arguments = None
                return
            self._world.probes["actor call: not past the loop"] += 1
            self.calls.put_back(call)
        self._wake()

    def _can_write(self) -> bool:
        return not self._world.chance(0.1)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._world.at(self._world.rng.random() * 0.0005, self._flush)

    def _flush(self) -> None:
        if not self._process.when_awake(self._flush):
            return
        self._is_woken = False
        if self.calls.is_over:
            return
        if self.link is None:
            if not self._is_connecting:
                self._is_connecting = True
                delay = self._process.sim.plan.actor_timing.draw(self._world)
                self._world.at(delay, self._arrive, None)
            return
        notify: Callbacks = []
        while self._can_write():
            calls = self.calls.take_next()
            if not calls:
                break
            message = self.calls.message(calls)
            if self._world.chance(0.05):  # beyond a limit
                self._world.probes["actor call: sent alone"] += 1
                for call in calls:
                    message = self.calls.message([call])
                    if self._world.chance(0.1):
                        notify += self.calls.fail_unsent(call, "too long")
                    else:
                        self._send(message)
            else:
                self._send(message)
            for call in calls:
                call.arguments = None
        if self.calls.waiting:
            self._wake()
        for done in notify:
            done()

    def _send(self, message: ActorCalls) -> None:
        assert self.link is not None, "it is connected"
        self._world.note(f"{self!r} ->", message)
        self.link.send(0, [message])

    def _arrive(self, found: WorkerNode | None) -> None:
        """Connect to the worker that listens at the address now."""
        sim = self._process.sim
        worker = found or sim.by_address.get(self.address)
        if worker is not None and worker.is_alive and not worker.when_awake(self._arrive, worker):
            return  # it answers when it goes on
        link = None
        if worker is not None and worker.is_alive:
            link = Link(
                self._world, sim.plan.actor_timing, (self, worker.actors), wire=sim.plan.wire
            )
            worker.actors.links[link] = None
        self._world.at(sim.plan.actor_timing.draw(self._world), self._connected, link)

    def _connected(self, link: Link | None) -> None:
        if not self._process.when_awake(self._connected, link):
            if link is not None and not self._process.is_alive:
                link.break_()
            return
        if self.calls.is_over:
            if link is not None:
                link.close(0)
        elif link is None:
            self.end("cannot be reached", "")
        elif not link.sides[0].is_closed:  # else `on_closed` has come
            self.link = link
            self._look()
            self._flush()

    def _look(self) -> None:
        """Fail the calls of actors that the scheduler has lost; without calls close it."""
        if not self._process.when_awake(self._look) or self.calls.is_over:
            return
        for done in self.calls.fail_lost():
            self._world.probes["actor call: lost while it is under way"] += 1
            done()
        self._n_idle = 0 if self.calls.sent or self.calls.waiting else self._n_idle + 1
        if self._n_idle >= IDLE_LOOKS:
            self._world.probes["actor connection: idle"] += 1
            self.close("it was not used")
        else:
            self._world.at(LOOK_S, self._look, is_work=False)

    def on_messages(self, link: Link, messages: list[Message]) -> None:
        """See `End`."""
        if not self._process.when_awake(self.on_messages, link, messages):
            return
        notify: Callbacks = []
        for message in messages:
            self._world.note(f"{self!r} <-", message)
            if isinstance(message, ActorResults):
                notify += self.calls.on_results(message, self._process.hold)
                if message.keys:
                    self._process.post(Confirm(_Taken(self, message)))
            else:
                assert isinstance(message, ActorFailures)
                notify += self.calls.on_failures(message)
        if self.calls.waiting:
            self._wake()
        for done in notify:
            done()

    def confirm(self, message: ActorResults) -> None:
        """Report that the scheduler has read that this process wants the keys in some results."""
        if self.link is not None and not self.calls.is_over:
            self.link.send(0, [ActorResultsTaken(requests=message.requests)])

    def on_closed(self, link: Link) -> None:
        """See `End`."""
        if self._process.when_awake(self.on_closed, link):
            self.end("was not called: the connection has ended", "the connection has ended")

    def close(self, reason: str) -> None:
        """Close the connection; calls fail."""
        if self.link is not None:
            self.link.break_()
        self.end(f"was not called: {reason}", reason)

    def end(self, unsent: str, sent: str) -> None:
        """Fail all calls, by whether they were sent."""
        if self.calls.is_over:
            return
        self._owner.forget(self)
        for done in self.calls.end(unsent, sent):
            done()


class ActorConnectionsNode:
    """The connections of one process to the workers of actors."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.holder = process.client_id
        self._by_address: dict[str, ActorConnectionNode] = {}
        self._n_connections = 0

    def send(self, call: ActorCall) -> None:
        """Send a call."""
        assert call.actor is not None, "it is new"
        address = call.actor._info.address
        connection = self._by_address.get(address)
        if connection is None:
            self._n_connections += 1
            connection = self._by_address[address] = ActorConnectionNode(
                self, address, self._n_connections
            )
        connection.add(call)

    def forget(self, connection: ActorConnectionNode) -> None:
        """Let the next call open another connection."""
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]

    def links(self) -> list[Link]:
        """Return the connections that are open."""
        connections = self._by_address.values()
        return [
            connection.link
            for connection in connections
            if connection.link is not None and not connection.link.is_broken
        ]

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._by_address.values()):
            connection.close("this client was closed")
