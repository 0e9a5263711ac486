"""Lanes that take turns: those of the best level first, within one level round robin.

A lane is one client's part of a queue at one user priority. The caller pops a stretch of items from
the lane whose turn it is, then asks for the next lane. A lane that is new in the rotation is next,
so that a few tasks of one client do not wait for a round of all others. A lane that runs empty
stays in the rotation, at the end, until its turn comes once more, so that a client gains nothing by
submitting few tasks often.

A core. Constant time per stretch, none per item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final, Generic, Protocol, TypeVar

#: The bits of a task's priority above this are its level, the user priority. Workers need no more
#: of the layout, which `scheduler/core/records/priority.py` describes.
LEVEL_SHIFT: Final = 53


def level_of(priority: int) -> int:
    """Return the user priority as a level; smaller is better."""
    return priority >> LEVEL_SHIFT


class RotatingLane(Protocol):
    """The attributes of a lane that the rotation uses."""

    #: number of live items that it holds
    n: int


_Lane = TypeVar("_Lane", bound=RotatingLane)


class Rotation(Generic[_Lane]):
    """The lanes of one queue. Smaller levels are better."""

    __slots__ = ("_levels", "has_new_lane", "lanes")

    def __init__(self) -> None:
        #: {(level, client): lane}: all that hold items, and those that had no turn since
        self.lanes: dict[tuple[int, int], _Lane] = {}
        #: {level: clients whose lanes are at this level, the next one first}; no deque is empty
        self._levels: dict[int, deque[int]] = {}
        #: a lane came since the last `turn`: the stretch under way should end
        self.has_new_lane = False

    def enrol(self, level: int, client: int, lane: _Lane) -> None:
        """Add a client's lane as the next one; it must have none at this level yet."""
        assert (level, client) not in self.lanes
        self.lanes[level, client] = lane
        clients = self._levels.get(level)
        if clients is None:
            self._levels[level] = deque((client,))
        else:
            clients.appendleft(client)
        self.has_new_lane = True

    def turn(self) -> _Lane | None:
        """Return the lane whose turn it is, now the last of its level; None if all are empty."""
        self.has_new_lane = False
        if len(self.lanes) == 1:
            (lane,) = self.lanes.values()
            if lane.n:
                return lane
        levels = self._levels
        while levels:
            level = min(levels)
            clients = levels[level]
            client = clients.popleft()
            lane = self.lanes[level, client]
            if lane.n:
                clients.append(client)
                return lane
            del self.lanes[level, client]
            if not clients:
                del levels[level]
        return None

    def best_level(self) -> int | None:
        """Return the best level that holds items, None if all are empty."""
        while self._levels:
            level = min(self._levels)
            clients = self._levels[level]
            if any(self.lanes[level, client].n for client in clients):
                return level
            for client in clients:
                del self.lanes[level, client]
            del self._levels[level]
        return None

    def drop_lanes(self) -> _Lane | None:
        """Forget the lanes, all of which are empty, as their clients may never come back.

        A single lane stays, and is returned: nearly always its client is the next to use it, and
        making a lane for each task of a chain would cost more than the rest of the queue.
        """
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values()))
        self.lanes.clear()
        self._levels.clear()
        return None

    def validate(self) -> None:
        """Assert the invariants of the comments."""
        places = [(level, client) for level, clients in self._levels.items() for client in clients]
        assert sorted(places) == sorted(self.lanes)
        assert all(self._levels.values())


class Turning(Protocol):
    """The attributes of an item that `LevelTurns` uses, and sets."""

    level: int
    turn: int  #: 0 = it is not among them

    def __hash__(self) -> int:
        """It is the key of a dictionary."""


_Item = TypeVar("_Item", bound=Turning)


class LevelTurns(Generic[_Item]):
    """Items of levels, each of which is the last of its level after its turn.

    LevelTurns are numbered, so that it is known which items had none since a certain time.
    """

    __slots__ = ("levels", "n_turns")

    def __init__(self) -> None:
        #: {level: {item: None}}, in the order of their turns; none is empty
        self.levels: dict[int, dict[_Item, None]] = {}
        #: the latest turn
        self.n_turns = 0

    def __len__(self) -> int:
        return sum(map(len, self.levels.values()))

    def __iter__(self) -> Iterator[_Item]:
        """Yield the items of the best level first."""
        return chain.from_iterable(self.levels[level] for level in sorted(self.levels))

    def waiting(self, turn: int) -> Iterator[_Item]:
        """Yield those that had no turn after this one."""
        for level in sorted(self.levels):
            yield from takewhile(lambda item: item.turn <= turn, self.levels[level])

    @property
    def first_turn(self) -> int:
        """The least turn of an item; there must be one."""
        return min(next(iter(items)).turn for items in self.levels.values())

    def put(self, item: _Item, level: int) -> None:
        """Let an item be the last of this level."""
        self.remove(item)
        self.n_turns += 1
        item.level, item.turn = level, self.n_turns
        self.levels.setdefault(level, {})[item] = None

    def remove(self, item: _Item) -> None:
        """Take an item out, if it is there."""
        if item.turn:
            item.turn = 0
            items = self.levels[item.level]
            del items[item]
            if not items:
                del self.levels[item.level]

    def validate(self) -> None:
        """Assert the invariants of the comments."""
        for level, items in self.levels.items():
            assert items
            assert all(item.level == level for item in items)
            turns = [item.turn for item in items]
            assert turns[0] > 0
            assert turns == sorted(turns)
            assert turns[-1] <= self.n_turns
