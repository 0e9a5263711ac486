"""Lanes that take turns: those of the best level first, within one level users round robin.

A lane is one client's part of a queue at one user priority. The caller pops a stretch of items from
the lane whose turn it is, then asks for the next lane. Each user has one turn in a round, and the
clients of a user have its turns one after the other. A client's number has that of its user, so
nothing is looked up. A client without a user is a user of its own.

A user that is new in the rotation is next, so that a few tasks of one do not wait for a round of
all others. A new client is next among those of its user, and cuts a stretch short only if no other
user is there: so a user gains nothing by many clients. A lane that runs empty stays in the
rotation, at the end, until its turn comes once more, so that a client gains nothing by submitting
few tasks often.

A core. Constant time per stretch, none per item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final, Generic, Protocol, TypeVar

#: The bits of a task's priority above this are its level, the user priority. Workers need no more
#: of the layout, which `scheduler/core/records/priority.py` describes.
LEVEL_SHIFT: Final = 48


#: The bits of a client's number above this are the number of its user; 0 = it has none.
USER_SHIFT: Final = 40
#: The other bits: they grow with each client that comes.
OF_CLIENT: Final = (1 << USER_SHIFT) - 1


def user_of(client: int) -> int:
    """Return the user whose turns a client has; the number of no other, if it has none."""
    return client >> USER_SHIFT or -client


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

    __slots__ = ("_clients", "_users", "has_new_lane", "lanes")

    def __init__(self) -> None:
        #: {(level, client): lane}: all that hold items, and those that had no turn since
        self.lanes: dict[tuple[int, int], _Lane] = {}
        #: {level: users whose lanes are at this level, the next one first}; no deque is empty
        self._users: dict[int, deque[int]] = {}
        #: {(level, user): clients whose lanes those are, the next one first}; no deque is empty
        self._clients: dict[tuple[int, int], deque[int]] = {}
        #: a lane came since the last `turn`: the stretch under way should end
        self.has_new_lane = False

    def enrol(self, level: int, client: int, lane: _Lane) -> None:
        """Add a client's lane as the next one of its user; it must have none at this level yet."""
        assert (level, client) not in self.lanes
        self.lanes[level, client] = lane
        user = user_of(client)
        users = self._users.get(level)
        if users is None:
            users = self._users[level] = deque()
        clients = self._clients.get((level, user))
        if clients is None:
            self._clients[level, user] = deque((client,))
            users.appendleft(user)
        else:
            clients.appendleft(client)
            if len(users) > 1:
                return
        self.has_new_lane = True

    def turn(self) -> _Lane | None:
        """Return the lane whose turn it is; its user is now the last, and it the last of its user.

        None if all are empty.
        """
        self.has_new_lane = False
        if len(self.lanes) == 1:
            (lane,) = self.lanes.values()
            if lane.n:
                return lane
        levels = self._users
        while levels:
            level = min(levels)
            users = levels[level]
            user = users.popleft()
            clients = self._clients[level, user]
            while clients:
                client = clients.popleft()
                lane = self.lanes[level, client]
                if lane.n:
                    clients.append(client)
                    users.append(user)
                    return lane
                del self.lanes[level, client]
            del self._clients[level, user]
            if not users:
                del levels[level]
        return None

    def best_level(self) -> int | None:
        """Return the best level that holds items, None if all are empty."""
        while self._users:
            level = min(self._users)
            places = [
                (level, client)
                for user in self._users[level]
                for client in self._clients[level, user]
            ]
            if any(self.lanes[place].n for place in places):
                return level
            for place in places:
                del self.lanes[place]
            for user in self._users.pop(level):
                del self._clients[level, user]
        return None

    def drop_lanes(self) -> _Lane | None:
        """Forget the lanes, all of which are empty, as their clients may never come back.

        A single lane stays, and is returned: nearly always its client is the next to use it, and
        making a lane for each task of a chain would cost more than the rest of the queue.
        """
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values()))
        self.lanes.clear()
        self._users.clear()
        self._clients.clear()
        return None

    def validate(self) -> None:
        """Assert the invariants of the comments."""
        places = [(level, user) for level, users in self._users.items() for user in users]
        assert sorted(places) == sorted(self._clients)
        assert all(self._users.values())
        assert all(self._clients.values())
        lanes = [(level, client) for (level, _), cs in self._clients.items() for client in cs]
        assert sorted(lanes) == sorted(self.lanes)
        assert all(user_of(c) == user for (_, user), cs in self._clients.items() for c in cs)


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
