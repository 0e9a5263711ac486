"""Queues of messages that the scheduler has received and not handled yet, served in turns.

Each peer has a queue of its own, so its order is kept. A *slice* is handled at once: some messages
of one peer, of about `SLICE_COST` rows and keys at most; longer messages are cut (`Message.parts`).
A *turn* is some slices, of about `TURN_COST` together; between two turns the shell reads its
sockets, so neither a long message nor a peer that sends without end delays the others for more than
a few milliseconds.

All these figures are `LONE_SCALE` times as large while at most one client is active, that is, sends
rows or is sent something: larger batches cost less per row, and no other client waits for them. A
client that becomes active waits for the turn under way; turns are short from then on, until only
one client was active for `SHARED_S`.

Peers are served round robin, each with its quantum of rows per round; rows of a slice beyond that
are subtracted in the next rounds. Workers have a larger quantum: clients wait for their reports,
and they cannot report more than was assigned to them, while clients may submit any number of tasks.

A peer that had nothing waiting comes first, once: a small call beside a million others waits for
the turn under way, not for a round of all peers. After its slice it is the last in line, and leaves
the line only when its turn finds no messages, so that sending little and often gains nothing over
sending much. (Deficit round robin with a line for new flows, as in fq_codel.)

While nothing waits, a peer has none to take turns with: its messages pass through and are handled
at once, up to the length of a slice between two looks at the sockets.

A core: it counts rows; times come in with the messages. A row takes about 1 to 4 us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ....protocol.wire.message import Message
from ....protocol.wire.messages import Ask, Heartbeat
from ....protocol.wire.roles import Role

#: Rows and listed keys of one slice.
SLICE_COST: Final = 512
#: Rows and listed keys that a peer may have handled in one round: a worker ...
WORKER_QUANTUM: Final = 1024
#: ... and any other peer.
QUANTUM: Final = 256
#: Rows and listed keys of all slices between two looks at the sockets.
TURN_COST: Final = 512
#: The four figures above are this many times as large while no two clients are active.
LONE_SCALE: Final = 4
#: A slice of that client's own messages is this many times as long again: an assignment pass
#: follows each slice, and places tasks better that it sees together.
OWN_SCALE: Final = 4
#: A client counts as active for this long after it sent rows or was sent something, seconds.
SHARED_S: Final = 1.0
#: A question counts as so many rows, because one page of an answer may take 1 ms.
ASK_COST: Final = 256
#: A peer with more cost waiting than this is not read from ...
FULL_COST: Final = 8192
#: ... until it has less than this.
ROOM_COST: Final = 4096
# Reading a member of an enumeration from its class takes longer than comparing it.
_CLIENTS: Final = (Role.CLIENT, Role.TASK_CLIENT)
_WORKER: Final = Role.WORKER


class _Queue:
    """The messages that one peer has sent."""

    __slots__ = ("cost", "credit", "is_closed", "items", "quantum")

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        #: cost that may still be handled in this round; below 0, what it had too much
        self.credit = 0
        #: (cost, message), in the order of arrival
        self.items: deque[tuple[int, Message]] = deque()
        #: sum of the costs
        self.cost = 0
        #: its connection is gone: nothing follows but `PeerClosed`
        self.is_closed = False


class Turns:
    """The queues of all peers, and the order in which they are served."""

    def __init__(self, slice_cost: int = SLICE_COST) -> None:
        self._slice_cost = slice_cost
        #: the client that was active last, and when that was
        self._client = 0
        self._client_at = float("-inf")
        #: two clients were active within `SHARED_S`: until when that counts
        self._shared_until = float("-inf")
        #: {peer: queue} of all and only peers that stand in one of the two lines
        self._queues: dict[int, _Queue] = {}
        #: messages, and ends of connections, that wait
        self.n_waiting = 0
        #: cost of what passed through since the last turn
        self._passed = 0
        #: peers that had nothing waiting when they sent something; they come first
        self._new: deque[int] = deque()
        #: peers that were served, some of which have nothing more
        self._old: deque[int] = deque()

    def __bool__(self) -> bool:
        """True while messages, or ends of connections, wait to be handled.

        A peer that was served may stay in line without messages. It leaves the line in a turn that
        has messages to handle: a turn for that alone would double the turns of a round trip.
        """
        return self.n_waiting > 0

    def passes(
        self,
        peer: int,
        role: Role,
        messages: Sequence[Message],
        now: float,
        *,
        is_alone: bool = False,
    ) -> bool:
        """Return whether messages may be handled at once, instead of being added.

        They are alone if the sockets were looked at since the last ones came.
        """
        if self.n_waiting:
            return False
        passed = 0 if is_alone else self._passed
        cost = passed
        for message in messages:
            cost += cost_of(message)
        if cost > self._limit(self.scale(now), is_worker=role is _WORKER):
            return False
        if role in _CLIENTS and cost - passed > len(messages):
            self.note_active(peer, now)
        self._passed = cost
        return True

    def begin(self, now: float) -> int:
        """Begin a turn; return by how much it is longer than where clients share, as `scale`."""
        self._passed = 0
        return self.scale(now)

    def add(self, peer: int, role: Role, messages: Sequence[Message], now: float) -> None:
        """Add messages that a peer has sent; `now` in seconds, never decreasing."""
        queue = self._line_up(peer, WORKER_QUANTUM if role is _WORKER else QUANTUM)
        cost = 0
        for message in messages:
            one_cost = cost_of(message)
            queue.items.append((one_cost, message))
            cost += one_cost
        queue.cost += cost
        self.n_waiting += len(messages)
        if role in _CLIENTS and cost > len(messages):
            self.note_active(peer, now)

    def note_active(self, client: int, now: float) -> None:
        """Note that a client sends rows or is sent something."""
        if client != self._client:
            if now - self._client_at < SHARED_S:
                self._shared_until = now + SHARED_S
            self._client = client
        self._client_at = now

    def note_sent(self, client: int, messages: Sequence[Message], now: float) -> None:
        """Note messages that a client is sent. Heartbeats alone do not make it active."""
        for message in messages:
            if type(message) is not Heartbeat:
                self.note_active(client, now)
                return

    def scale(self, now: float) -> int:
        """Return by how much slices and turns are longer than where clients share them."""
        return 1 if now < self._shared_until else LONE_SCALE

    def _limit(self, scale: int, *, is_worker: bool) -> int:
        """Return the cost of the longest slice of a worker, or of another peer."""
        return self._slice_cost * (scale if is_worker or scale == 1 else scale * OWN_SCALE)

    def close(self, peer: int) -> None:
        """Note that a peer's connection has ended. Its messages are handled before that."""
        queue = self._line_up(peer, QUANTUM)
        self.n_waiting += not queue.is_closed
        queue.is_closed = True

    def drop(self, peer: int) -> None:
        """Drop the waiting messages of a peer whose session the scheduler has ended."""
        queue = self._queues.get(peer)
        if queue is not None:
            self.n_waiting -= len(queue.items)
            queue.items.clear()
            queue.cost = 0

    def _line_up(self, peer: int, quantum: int) -> _Queue:
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = _Queue(quantum)
            self._new.append(peer)
        return queue

    def is_full(self, peer: int) -> bool:
        """Return whether so many rows of a peer wait that no more should be read from it."""
        queue = self._queues.get(peer)
        return queue is not None and queue.cost > FULL_COST

    def has_room(self, peer: int) -> bool:
        """Return whether so few rows of a peer wait that it should be read from again."""
        queue = self._queues.get(peer)
        return queue is None or queue.cost < ROOM_COST

    def waiting(self) -> list[int]:
        """Return the peers whose messages, or whose end, wait to be handled."""
        return [p for p, queue in self._queues.items() if queue.items or queue.is_closed]

    def take(self, scale: int = 1) -> tuple[int, list[Message], int] | None:
        """Return the next slice: its peer, its messages, its cost; None if nothing waits.

        No messages stand for the end of the peer's connection.
        """
        while self._queues:
            line = self._new or self._old
            peer = line.popleft()
            queue = self._queues[peer]
            items = queue.items
            if not items:
                del self._queues[peer]
                if queue.is_closed:
                    self.n_waiting -= 1
                    return peer, [], 0
                continue
            if queue.credit <= 0:
                queue.credit += queue.quantum * scale
            if queue.credit <= 0:
                self._old.append(peer)
                continue
            limit = self._limit(scale, is_worker=queue.quantum == WORKER_QUANTUM)
            cost = 0
            messages: list[Message] = []
            while items and cost < queue.credit:
                if items[0][0] > limit + 1:
                    self._cut(queue, limit)
                one_cost, message = items[0]
                if messages and cost + one_cost > limit:
                    break
                del items[0]
                messages.append(message)
                cost += one_cost
            self.n_waiting -= len(messages)
            queue.cost -= cost
            queue.credit -= cost
            if queue.credit > 0 and items:
                self._old.appendleft(peer)  # its round goes on with the next slice
            else:
                self._old.append(peer)
            return peer, messages, cost
        return None

    def _cut(self, queue: _Queue, limit: int) -> None:
        """Replace the next message by its parts, if it can be cut."""
        cost, message = queue.items.popleft()
        parts = [(cost_of(part), part) for part in message.parts(limit)]
        queue.items.extendleft(reversed(parts))
        queue.cost += sum(part_cost for part_cost, _ in parts) - cost
        self.n_waiting += len(parts) - 1

    def validate(self) -> None:
        """Assert the invariants that the comments state."""
        assert sorted([*self._new, *self._old]) == sorted(self._queues)
        queues = self._queues.values()
        assert self.n_waiting == sum(len(queue.items) + queue.is_closed for queue in queues)
        for queue in self._queues.values():
            assert queue.cost == sum(cost for cost, _ in queue.items)


def cost_of(message: Message) -> int:
    """Return the rows of a message and the keys that they list, and one for the message."""
    cls = message.__class__
    cost = 1 if cls is not Ask else ASK_COST
    first = cls._first
    if first:
        cost += len(getattr(message, first))
    if cls._key_lists:
        cost += message.n_listed_keys()
    return cost
