"""The door: what peers have sent and the scheduler has not handled yet, served in turns.

Each peer has a queue of its own, so its order is kept. A *slice* is what is handled at once: some
messages of one peer, of about `SLICE_COST` rows and keys at most; longer messages are cut
(`Message.parts`). A *turn* is some slices, of about `TURN_COST` together; between two turns the
shell looks at its sockets, so neither a long message nor a peer that sends without end holds up
the others for more than a few milliseconds.

Peers are served round robin, each with its quantum of rows a round; what a slice took beyond that
is subtracted in the next rounds. Workers have a larger quantum: they report what clients wait for,
and cannot report more than they were given, while clients ask for as much as they like.

A peer that had nothing waiting comes first, once: a small call beside a million others waits for
the turn under way, not for a round of all peers. After its slice it is the last in line, and leaves
the line only when it is found without messages there, so that sending little and often gains
nothing over sending much. (Deficit round robin with a line for new flows, as in fq_codel.)

A core: counts, no clock. The time that a row takes is known well enough, about 1 to 3 us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ...protocol.wire.handshake import Role
from ...protocol.wire.message import Message

#: Rows and listed keys of one slice.
SLICE_COST: Final = 512
#: Rows and listed keys that a peer may have handled in one round: a worker ...
WORKER_QUANTUM: Final = 1024
#: ... and anybody else.
QUANTUM: Final = 256
#: Rows and listed keys of all slices between two looks at the sockets.
TURN_COST: Final = 512
#: A peer with more than so much waiting is not read from ...
FULL_COST: Final = 8192
#: ... until it has less than this.
ROOM_COST: Final = 4096


class _Queue:
    """What one peer has sent."""

    __slots__ = ("cost", "credit", "is_closed", "items", "quantum")

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        #: what it may still have handled in this round; below 0, what it had too much
        self.credit = 0
        #: (cost, message), in the order of arrival
        self.items: deque[tuple[int, Message]] = deque()
        #: sum of the costs
        self.cost = 0
        #: its connection is gone: nothing follows but `Closed`
        self.is_closed = False


class Turns:
    """The queues of all peers, and who is next."""

    def __init__(self, slice_cost: int = SLICE_COST) -> None:
        self._slice_cost = slice_cost
        #: {peer: queue} of all and only peers that stand in one of the two lines
        self._queues: dict[int, _Queue] = {}
        #: peers that had nothing waiting when they sent something; they come first
        self._new: deque[int] = deque()
        #: peers that were served, some of which have nothing more
        self._old: deque[int] = deque()

    def __bool__(self) -> bool:
        """Whether somebody stands in line (perhaps with nothing more to be handled)."""
        return bool(self._queues)

    def add(self, peer: int, role: Role, messages: Sequence[Message]) -> None:
        """Take in what a peer has sent."""
        queue = self._line_up(peer, WORKER_QUANTUM if role is Role.WORKER else QUANTUM)
        for message in messages:
            cost = cost_of(message)
            if cost <= self._slice_cost:
                queue.items.append((cost, message))
            else:
                cost = 0
                for part in message.parts(self._slice_cost):
                    part_cost = cost_of(part)
                    queue.items.append((part_cost, part))
                    cost += part_cost
            queue.cost += cost

    def close(self, peer: int) -> None:
        """Note that a peer's connection is gone. What it sent before is handled before that."""
        self._line_up(peer, QUANTUM).is_closed = True

    def drop(self, peer: int) -> None:
        """Forget what waits of a peer: its session was ended by us."""
        queue = self._queues.get(peer)
        if queue is not None:
            queue.items.clear()
            queue.cost = 0

    def _line_up(self, peer: int, quantum: int) -> _Queue:
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = _Queue(quantum)
            self._new.append(peer)
        return queue

    def is_full(self, peer: int) -> bool:
        """Whether so much of a peer waits that no more should be read from it."""
        queue = self._queues.get(peer)
        return queue is not None and queue.cost > FULL_COST

    def has_room(self, peer: int) -> bool:
        """Whether so little of a peer waits that it should be read from again."""
        queue = self._queues.get(peer)
        return queue is None or queue.cost < ROOM_COST

    def waiting(self) -> list[int]:
        """Return the peers of which something waits to be handled, be it their end."""
        return [p for p, queue in self._queues.items() if queue.items or queue.is_closed]

    def take(self) -> tuple[int, list[Message], int] | None:
        """Return the next slice: whose it is, its messages, its cost; None if nothing waits.

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
                    return peer, [], 0
                continue
            if queue.credit <= 0:
                queue.credit += queue.quantum
            if queue.credit <= 0:
                self._old.append(peer)
                continue
            cost = 0
            messages: list[Message] = []
            while items and cost < queue.credit:
                if messages and cost + items[0][0] > self._slice_cost:
                    break
                one_cost, message = items.popleft()
                messages.append(message)
                cost += one_cost
            queue.cost -= cost
            queue.credit -= cost
            if queue.credit > 0 and items:
                self._old.appendleft(peer)  # its round goes on with the next slice
            else:
                self._old.append(peer)
            return peer, messages, cost
        return None

    def validate(self) -> None:
        """Assert what the comments claim."""
        assert sorted([*self._new, *self._old]) == sorted(self._queues)
        for queue in self._queues.values():
            assert queue.cost == sum(cost for cost, _ in queue.items)


def cost_of(message: Message) -> int:
    """Return the rows of a message and the keys that they list, and one for the message."""
    return 1 + message.n_rows + message.n_listed_keys()
