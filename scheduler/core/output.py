"""Passes what tasks print and log on to the clients that have submitted them.

Workers report only what some client wants, and no more lines per second than their limit. Of all
workers together no more is passed on in one second than `MAX_LINES` and `MAX_CHARS`, whatever their
number: these for standard output, and the same again for all else, so that warnings are not lost
between prints. A client gets an equal part of that, by the number of clients that had output in the
second before. Of what is left out it is sent the number, once per second.

What comes for a client that is not connected is dropped. Lines for everyone (`weft.print`) are
passed on to each connected client, whatever it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...protocol.wire import messages as m
from .checking import differences, unless

if TYPE_CHECKING:
    from .deadlines import Deadline
    from .peers import ClientHandle, WorkerHandle
    from .state import SchedulerState

#: Lines, and characters of them with their keys, that all clients together are sent in one period.
MAX_LINES: Final = 1000
MAX_CHARS: Final = 1 << 20
PERIOD_S: Final = 1.0
#: Digits of a number of lines that a worker left out; a longer one is wrong.
_MAX_DIGITS: Final = 15


class Allowance:
    """How much may still be passed on in this period."""

    __slots__ = ("chars", "lines")

    def __init__(self, part: int = 1) -> None:
        """Allow one of so many equal parts."""
        self.lines = max(MAX_LINES // part, 1)
        self.chars = MAX_CHARS // part


class OutputFlow:
    """The wishes of clients, and how much each was sent in this period."""

    __slots__ = ("announced", "left", "n_dropped", "n_sharing", "notice", "period_ends", "wanting")

    def __init__(self) -> None:
        #: as workers were sent it last
        self.announced = m.WantOutput(clients=[], level=0)
        #: {number: client} of all connected clients that want output
        self.wanting: dict[int, ClientHandle] = {}
        self.period_ends = float("-inf")
        #: clients that had output in the period just before this one, at least 1
        self.n_sharing = 1
        #: {number, or 0 for all together: what it may still get, apart from standard output, and of
        #: that}
        self.left: dict[int, tuple[Allowance, Allowance]] = {}
        #: {number: lines that were left out} since the last notice; none is 0
        self.n_dropped: dict[int, int] = {}
        #: when the clients are sent these numbers; pending iff there are some
        self.notice: Deadline | None = None

    def begin_period(self, now: float) -> None:
        """Let everything that may be passed on in one period be left again."""
        is_next = now < self.period_ends + PERIOD_S
        self.n_sharing = max(len(self.left) - 1, 1) if is_next else 1
        self.period_ends = now + PERIOD_S
        self.left = {0: (Allowance(), Allowance())}


def on_want_output(state: SchedulerState, client: ClientHandle, message: m.WantOutput) -> None:
    """A client wants the output of its tasks, from another level on, or not any more."""
    client.output_level = message.level
    announce_output(state)


def announce_output(state: SchedulerState) -> None:
    """Send workers what is wanted now, if that has changed."""
    flow = state.output
    wanting = [c for c in state.clients_by_peer.values() if c.output_level]
    flow.wanting = {client.number: client for client in wanting}
    level = min((client.output_level for client in wanting), default=0)
    wanted = m.WantOutput(clients=sorted(flow.wanting), level=level)
    if wanted != flow.announced:
        flow.announced = wanted
        for ws in state.workers.values():
            if ws.peer in state.roles:  # else it is greeted when it is back
                state.send(ws.peer, wanted)


def on_output_of_client_ended(state: SchedulerState, client: ClientHandle) -> None:
    """The connection of a client has ended: its next one begins with what it wants."""
    flow = state.output
    if flow.n_dropped.pop(client.number, 0) and not flow.n_dropped:
        state.deadlines.cancel(flow.notice)
        flow.notice = None
    if client.output_level:
        client.output_level = 0
        announce_output(state)


def greet_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker whose session begins what is wanted."""
    if state.output.announced.level:
        state.send(ws.peer, state.output.announced)


def on_task_output(state: SchedulerState, ws: WorkerHandle, message: m.TaskOutput) -> None:
    """A worker reports lines: pass each on to the client for which its task ran."""
    flow, numbers = state.output, message.clients
    if not numbers or not (flow.wanting or m.EVERYONE in numbers):
        return
    if state.now >= flow.period_ends:
        flow.begin_period(state.now)
    if numbers.count(numbers[0]) == len(numbers):
        places_of: dict[int, Sequence[int]] = {numbers[0]: range(len(numbers))}
    else:
        found: dict[int, list[int]] = {
            number: [] for number in numbers if number in flow.wanting or number == m.EVERYONE
        }
        for i, number in enumerate(numbers):
            if number in found:
                found[number].append(i)
        places_of = {**found}
    for number, places in places_of.items():
        if number == m.EVERYONE:
            for each in _connected(state).values():
                _pass_on(state, each, ws, message, places)
            continue
        client = flow.wanting.get(number)
        if client is not None:
            _pass_on(state, client, ws, message, places)


def _connected(state: SchedulerState) -> dict[int, ClientHandle]:
    """Return the clients that users look at, by number."""
    return {c.number: c for c in state.clients_by_peer.values() if c.worker is None}


def _pass_on(
    state: SchedulerState,
    client: ClientHandle,
    ws: WorkerHandle,
    message: m.TaskOutput,
    places: Sequence[int],
) -> None:
    """Send a client its lines as far as it may get more in this period, and count the others."""
    flow = state.output
    levels, texts = message.levels, message.texts
    left = flow.left.get(client.number)
    if left is None:
        part = flow.n_sharing
        left = flow.left[client.number] = (Allowance(part), Allowance(part))
    total = flow.left[0]
    kept: list[int] = []
    n_dropped = 0
    if not any(left[i].lines and total[i].lines for i in (0, 1)) and m.DROPPED_LINES not in levels:
        n_dropped, places = len(places), ()
    for i in places:
        is_printed = levels[i] == m.STDOUT or levels[i] == m.DROPPED_LINES
        mine, all_together = left[is_printed], total[is_printed]
        n_chars = len(texts[i]) + len(message.names[i]) + len(message.keys[i])
        if (
            mine.lines
            and all_together.lines
            and mine.chars >= n_chars
            and all_together.chars >= n_chars
        ):
            mine.lines -= 1
            mine.chars -= n_chars
            all_together.lines -= 1
            all_together.chars -= n_chars
            kept.append(i)
        elif levels[i] == m.DROPPED_LINES:
            n_dropped += _number(texts[i])
        else:
            n_dropped += 1
    if kept:
        part_of_it = m.TaskOutput(
            clients=[client.number] * len(kept),
            keys=[message.keys[i] for i in kept],
            levels=[levels[i] for i in kept],
            names=[message.names[i] for i in kept],
            texts=[texts[i] for i in kept],
            worker=ws.name,
        )
        state.send_client(client, part_of_it)
    if n_dropped:
        flow.n_dropped[client.number] = flow.n_dropped.get(client.number, 0) + n_dropped
        if flow.notice is None:
            flow.notice = state.call_after(flow.period_ends - state.now, _send_notices)


def _number(text: str) -> int:
    """Return the number of lines that a worker says it left out."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 1


def _send_notices(state: SchedulerState) -> None:
    """Send clients the number of lines that they did not get."""
    flow = state.output
    flow.notice = None
    n_dropped, flow.n_dropped = flow.n_dropped, {}
    connected = _connected(state)
    for number, n in n_dropped.items():
        client = connected.get(number)
        if client is not None:
            notice = m.TaskOutput(
                clients=[number], keys=[""], levels=[m.DROPPED_LINES], names=[""], texts=[str(n)]
            )
            state.send_client(client, notice)


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
OUTPUT_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "wanting files the connected clients that want output by number": lambda s: differences(
        s.output.wanting.items(),
        [(c.number, c) for c in s.clients_by_peer.values() if c.output_level],
    ),
    "a notice is due iff lines were left out": lambda s: unless(
        (s.output.notice is not None and s.output.notice.is_pending) == bool(s.output.n_dropped),
        s.output.n_dropped,
    ),
}
