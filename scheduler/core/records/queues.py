"""The ready queue: best user priority first, then clients in turns, then the best priority.

Each client has a lane at each user priority (`protocol/rotation.py`). A lane is served for a
*stretch*, about as long as one worker's chunk; then it is the next client's turn. So neighbours in
a graph stay together, and the few tasks of one client do not wait for the million of another.

Submissions arrive in ascending priority, and few tasks become ready later: so a lane has two
parts. An item that is not better than the last one of the *run* (a deque) goes to its end; any
other goes to a heap. The best item is the better of both heads. A heap alone costs 1.6 us
per pop at a million items, the run 0.1 us.

Removal is lazy: an item carries a ticket, and an entry whose ticket is not the item's current one
is skipped. No two queues give the same ticket: an item may go to another queue while its dead entry
is still in the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Final, Generic, Protocol, TypeVar

from ....protocol.rotation import Rotation, level_of

#: A client's turn ends when the tasks that it got are expected to take this long.
STRETCH_NS: Final = 1_000_000
#: The numbers of queues; each has its own 2 ** 40 tickets.
_numbers: Final = count()


class Queueable(Protocol):
    """The attributes of an item that the queue uses."""

    priority: int
    ticket: int


_Item = TypeVar("_Item", bound=Queueable)


class Lane(Generic[_Item]):
    """The queued tasks of one client at one user priority; the queue pushes and pops."""

    __slots__ = ("_place", "_queue", "heap", "n", "run")

    def __init__(self, queue: ReadyQueue[_Item], level: int, client: int) -> None:
        self._queue = queue
        self._place = level, client
        #: entries (priority, ticket, item), ascending in (priority, ticket)
        self.run: deque[tuple[int, int, _Item]] = deque()
        self.heap: list[tuple[int, int, _Item]] = []
        #: live entries
        self.n = 0

    def push(self, items: Iterable[_Item]) -> None:
        """Add items that are in no queue; it is fastest if their priorities ascend."""
        queue = self._queue
        if not self.n:
            current = queue.rotation.lanes.get(self._place)
            if current is None:
                queue.rotation.enrol(*self._place, self)
            elif current is not self:
                current.push(items)
                return
        run = self.run
        last = run[-1][0] if run else -1
        first = ticket = queue.next_ticket
        for item in items:
            item.ticket = ticket
            priority = item.priority
            if priority >= last:
                run.append((priority, ticket, item))
                last = priority
            else:
                heappush(self.heap, (priority, ticket, item))
            ticket += 1
        queue.next_ticket = ticket
        queue.n += ticket - first
        self.n += ticket - first

    def sweep(self) -> None:
        """Take the dead entries out."""
        self.run = deque(e for e in self.run if e[2].ticket == e[1])
        self.heap = [e for e in self.heap if e[2].ticket == e[1]]
        heapify(self.heap)


class ReadyQueue(Generic[_Item]):
    """Queue of items with `priority` (smaller is better) and `ticket` (0 = not queued)."""

    __slots__ = ("_lane", "left_ns", "n", "next_ticket", "rotation")

    def __init__(self) -> None:
        self.rotation: Rotation[Lane[_Item]] = Rotation()
        #: the lane that is served
        self._lane: Lane[_Item] | None = None
        #: until the end of its stretch; the caller of `pop` subtracts the item's expected time
        self.left_ns = 0
        self.next_ticket = (next(_numbers) << 40) + 1
        #: sum of the lanes' `n`
        self.n = 0

    def __len__(self) -> int:
        return self.n

    @property
    def is_plain(self) -> bool:
        """True if its items are those of one client in the order in which they came."""
        lanes = self.rotation.lanes
        return len(lanes) == 1 and not next(iter(lanes.values())).heap

    def lane(self, priority: int, client: int) -> Lane[_Item]:
        """Return the lane to which a client's items of this (user) priority are pushed."""
        level = level_of(priority)
        return self.rotation.lanes.get((level, client)) or Lane(self, level, client)

    def push(self, item: _Item, client: int = 0) -> None:
        """Add an item that is in no queue."""
        self.lane(item.priority, client).push((item,))

    def pop(self) -> _Item | None:
        """Take the next item, or None."""
        lane = self._lane
        while True:
            if lane is None or self.left_ns <= 0 or self.rotation.has_new_lane:
                lane = self._lane = self.rotation.turn()
                self.left_ns = STRETCH_NS
                if lane is None:
                    return None
            run, heap = lane.run, lane.heap
            while run or heap:
                if heap and (not run or heap[0] < run[0]):
                    _, ticket, item = heappop(heap)
                else:
                    _, ticket, item = run.popleft()
                if item.ticket == ticket:
                    item.ticket = 0
                    self.n -= 1
                    lane.n -= 1
                    if not self.n:
                        self._end()
                    return item
            self.left_ns = 0

    def put_back(self, item: _Item, client: int = 0) -> None:
        """Put the item that `pop` returned last before all others of its lane; its turn ends."""
        self.left_ns = 0
        lane = self.lane(item.priority, client)
        if not lane.n:
            lane.push((item,))
            return
        # Tickets order equal priorities: this one is less than those of all other items.
        item.ticket = ticket = -self.next_ticket
        self.next_ticket += 1
        lane.run.appendleft((item.priority, ticket, item))
        lane.n += 1
        self.n += 1

    @property
    def stretch(self) -> Lane[_Item] | None:
        """The lane whose run begins with the items that `pop` would take next; None if others may.

        Live entries that are taken out of the run are reported to `took`.
        """
        lane = self._lane
        if lane is None or lane.heap or self.left_ns <= 0 or self.rotation.has_new_lane:
            return None
        return lane

    def took(self, lane: Lane[_Item], n: int) -> None:
        """Note that `n` items were taken out of the run of `stretch`."""
        self.n -= n
        lane.n -= n
        if not self.n:
            self._end()

    def best_level(self) -> int:
        """Return the best user priority of a queued item, as a level; there must be one."""
        level = self.rotation.best_level()
        assert level is not None, "something is queued"
        return level

    def discard(self, item: _Item, client: int = 0) -> None:
        """Take out a queued item.

        Its entry is skipped later, or swept when dead entries outnumber live ones.
        """
        lane = self.rotation.lanes[level_of(item.priority), client]
        item.ticket = 0
        self.n -= 1
        lane.n -= 1
        if len(lane.run) + len(lane.heap) > 2 * lane.n + 1024:
            lane.sweep()
        if not self.n:
            self._end()

    def _end(self) -> None:
        """Take the dead entries out: no item is queued."""
        lane = self.rotation.drop_lanes()
        if lane is None:
            self._lane = None
        else:
            lane.run.clear()
            lane.heap.clear()

    def items(self) -> list[_Item]:
        """List the live items, best priority first (for cluster changes and checks; O(n log n))."""
        lanes = self.rotation.lanes.values()
        entries = [entry for lane in lanes for entry in (*lane.run, *lane.heap)]
        return [
            item
            for _, ticket, item in sorted(entries, key=lambda e: e[:2])
            if item.ticket == ticket
        ]

    def some(self) -> Iterator[_Item]:
        """Yield the live items in about their order, without sorting them."""
        for lane in self.rotation.lanes.values():
            for _, ticket, item in chain(lane.heap, lane.run):
                if item.ticket == ticket:
                    yield item
