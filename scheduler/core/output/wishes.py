"""Wishes of clients about the output of workers: lines of their own tasks, and records of loggers.

Workers are sent what all clients together want, whenever that changes. A client that changes its
wish again and again is heeded at most MAX_CHANGES times in a period; then its last wish counts when
the period is over. So no client makes the scheduler send to all workers all the time.

A client that is not connected wants nothing; its next session begins with its wish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_NUMBER
from ..invariants.checking import differences

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState

#: Changes of one client that are announced in one period, and its length in seconds.
MAX_CHANGES: Final = 20
PERIOD_S: Final = 10.0
#: Loggers that workers are asked for. Further ones are followed by way of the root.
MAX_FOLLOWED: Final = 1000


class OutputWish(NamedTuple):
    """The wish of a client about the output of workers."""

    #: it wants the output of its tasks from this level on; 0 = not
    level: int = 0
    #: {name of a logger that it follows: the least level, > 0}
    loggers: Mapping[str, int] = MappingProxyType({})


NO_WISH: Final = OutputWish()


class OutputWishes:
    """The wishes of all clients."""

    __slots__ = ("announced", "changes", "followers", "heeded", "postponed", "wanting")

    def __init__(self) -> None:
        #: as workers were sent it last
        self.announced = m.WantOutput(clients=[], level=0)
        #: {client: its wish} of the connected clients that want something
        self.heeded: dict[ClientHandle, OutputWish] = {}
        #: {number: client} of all connected clients that want the output of their tasks
        self.wanting: dict[int, ClientHandle] = {}
        #: {name of a logger: {client: the least level}} of the connected clients that follow it;
        #: none is empty
        self.followers: dict[str, dict[ClientHandle, int]] = {}
        #: {client: (when its period ends, in waking time; changes in it)} of connected clients
        self.changes: dict[ClientHandle, tuple[float, int]] = {}
        #: {client: (its last wish, when it counts)}, of connected clients
        self.postponed: dict[ClientHandle, tuple[OutputWish, Deadline]] = {}


def wishes_of(state: SchedulerState) -> OutputWishes:
    """Return what clients want of the output of workers."""
    return state.record(OutputWishes)


def on_want_output(state: SchedulerState, client: ClientHandle, message: m.WantOutput) -> None:
    """A client wants other output than before, or none any more."""
    wishes = wishes_of(state)
    if not set(map(type, message.loggers.values())) <= {int}:
        assert client.peer is not None, "its message came"
        state.refuse(client.peer, "WantOutput.loggers: levels are whole numbers")
        return
    wish = _wish_in(message)
    if client in wishes.postponed:
        wishes.postponed[client] = wish, wishes.postponed[client][1]
        return
    if wish == wishes.heeded.get(client, NO_WISH):
        return
    ends, n = wishes.changes.get(client, (0.0, 0))
    if state.awake_s >= ends:
        ends, n = state.awake_s + PERIOD_S, 0
    if n >= MAX_CHANGES:
        due = state.call_after(ends - state.awake_s, _on_due, client)
        wishes.postponed[client] = wish, due
        return
    wishes.changes[client] = ends, n + 1
    _heed(state, client, wish)


def _wish_in(message: m.WantOutput) -> OutputWish:
    loggers = {
        name[: m.MAX_LOGGER_CHARS]: min(max(level, 1), MAX_NUMBER)
        for name, level in message.loggers.items()
    }
    if len(loggers) > m.MAX_LOGGERS:  # which an honest client refuses
        loggers = dict(list(loggers.items())[: m.MAX_LOGGERS])
    return OutputWish(message.level, loggers)


def _on_due(state: SchedulerState, client: ClientHandle) -> None:
    wish, _ = wishes_of(state).postponed.pop(client)
    _heed(state, client, wish)


def _heed(state: SchedulerState, client: ClientHandle, wish: OutputWish) -> None:
    """Let a wish take the place of the client's last one; tell workers if that changes anything."""
    wishes = wishes_of(state)
    heeded = wishes.heeded
    heeded.pop(client, None)
    if wish != NO_WISH:
        heeded[client] = wish
    wishes.wanting = {c.number: c for c, each in heeded.items() if each.level}
    wishes.followers = {}
    for follower, each in heeded.items():
        for name, level in each.loggers.items():
            wishes.followers.setdefault(name, {})[follower] = level
    least = _least(wishes.followers)
    level = min((heeded[c].level for c in wishes.wanting.values()), default=0)
    wanted = m.WantOutput(clients=sorted(wishes.wanting), level=level, loggers=least)
    if wanted != wishes.announced:
        wishes.announced = wanted
        for ws in state.workers.values():
            if ws.peer in state.roles:  # else it is greeted when it is back
                state.send(ws.peer, wanted)


def _least(followers: dict[str, dict[ClientHandle, int]]) -> dict[str, int]:
    """Return the least level of each logger that workers are to send; the root is the first."""
    least = {name: min(followers[name].values()) for name in sorted(followers)}
    if len(least) > MAX_FOLLOWED:
        names = list(least)
        lowest = min(least[name] for name in ("", *names[MAX_FOLLOWED:]) if name in least)
        least = {"": lowest, **{name: least[name] for name in names[1:MAX_FOLLOWED]}}
    return least


def followers_of(state: SchedulerState, name: str) -> dict[ClientHandle, int]:
    """Return the clients that follow a logger, or one above it: {client: the least level}."""
    followers = wishes_of(state).followers
    found: dict[ClientHandle, int] = {}
    left = "" if name == "root" else name[: m.MAX_LOGGER_CHARS]
    while True:
        for client, least in followers.get(left, {}).items():
            found[client] = min(least, found.get(client, least))
        if not left:
            return found
        left = left.rpartition(".")[0]


def on_client_away(state: SchedulerState, client: ClientHandle) -> None:
    """The connection of a client has ended."""
    wishes = wishes_of(state)
    wishes.changes.pop(client, None)
    _, due = wishes.postponed.pop(client, (None, None))
    state.deadlines.cancel(due)
    if client in wishes.heeded:
        _heed(state, client, NO_WISH)


def greet_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker whose session begins what is wanted."""
    announced = wishes_of(state).announced
    if announced.level or announced.loggers:
        state.send(ws.peer, announced)


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
OUTPUT_WISH_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "wanting files the connected clients that want output by number": lambda s: differences(
        wishes_of(s).wanting.items(),
        [(c.number, c) for c, wish in wishes_of(s).heeded.items() if wish.level],
    ),
    "followers are the connected clients that follow a logger": lambda s: differences(
        [(n, c, level) for n, f in wishes_of(s).followers.items() for c, level in f.items()],
        [
            (name, c, level)
            for c, wish in wishes_of(s).heeded.items()
            for name, level in wish.loggers.items()
        ],
    ),
    "a client that is away wants no output": lambda s: [
        c
        for c, wish in wishes_of(s).heeded.items()
        if c.peer is None or s.clients_by_peer.get(c.peer) is not c or wish == NO_WISH
    ],
    "changes of wishes are those of connected clients": lambda s: [
        c for c in wishes_of(s).changes if c.peer is None
    ],
    "a wish that is postponed is due": lambda s: [
        c for c, (_, due) in wishes_of(s).postponed.items() if c.peer is None or not due.is_pending
    ],
}
