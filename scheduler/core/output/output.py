"""Passes what tasks print and log on to the clients that have submitted them.

And records of loggers to the clients that follow these (`wishes`).

Workers report only what some client wants, and no more lines per second than their limit. Whatever
the number of workers, `MAX_LINES` and `MAX_CHARS` limit what is passed on in one second. There are
four such limits, so that warnings are not lost between prints: one for standard output, one for all
other printed lines, one for records of followed loggers below warnings, and one for records from
warnings on. A client gets an equal part of each, by the number of clients that had output in the
second before. The number of lines that are left out is sent to it once per second.

What comes for a client that is not connected is dropped. Lines for everyone (`weft.print`) are
passed on to each connected client, whatever it wants.

A worker can have lines only for a client of which it has a task or an actor, or had one lately: a
task that was cancelled prints until it has ended. All others, which a wrong worker may send, are
dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.payload import blob_nbytes
from ..invariants.checking import is_due, unless
from .wishes import followers_of, wishes_of

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle, WorkerHandle
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: Lines, and characters of them with their keys, that all clients together are sent in one period.
MAX_LINES: Final = 1000
MAX_CHARS: Final = 1 << 20
PERIOD_S: Final = 1.0
#: Clients that may be shown lines of a worker without a task of theirs any more, and for how long.
MAX_SHOWN: Final = 100
SHOWN_S: Final = 60.0
#: Parts of a period's output that do not take each other's place.
_PRINTED: Final = 0
_OTHER_LINES: Final = 1
_RECORDS: Final = 2
_GRAVE_RECORDS: Final = 3
#: From this level on a record is one of the last part.
GRAVE_LEVEL: Final = 30
#: Digits of a number of lines that a worker left out; a longer one is wrong.
_MAX_DIGITS: Final = 15
_MAX_NUMBER: Final = 10**_MAX_DIGITS


class Allowance:
    """How much may still be passed on in this period."""

    __slots__ = ("chars", "lines")

    def __init__(self, part: int = 1) -> None:
        """Allow one of so many equal parts."""
        self.lines = max(MAX_LINES // part, 1)
        self.chars = MAX_CHARS // part


def _allowances(n_sharing: int) -> tuple[Allowance, ...]:
    """Return what is left for one of so many clients at the beginning of a period, by part."""
    return tuple(Allowance(n_sharing) for _ in range(4))


class OutputFlow:
    """How much clients were sent in this period."""

    __slots__ = ("left", "n_dropped", "n_refused", "n_sharing", "notice", "period_ends", "shown_to")

    def __init__(self) -> None:
        self.period_ends = float("-inf")
        #: clients that had output in the period just before this one, at least 1
        self.n_sharing = 1
        #: {number, or 0 for all together: what it may still get, by part}
        self.left: dict[int, tuple[Allowance, ...]] = {}
        #: {(number, they are records): lines that were left out} since the last notice; none is 0
        self.n_dropped: dict[tuple[int, bool], int] = {}
        #: lines of workers for clients of which they had no task
        self.n_refused = 0
        #: when the clients are sent these numbers; pending iff there are some
        self.notice: Deadline | None = None
        #: {worker: {number of a client: until when its lines are passed on, even if none of its
        #: tasks is there any more}}; none is empty
        self.shown_to: dict[WorkerHandle, dict[int, float]] = {}

    def begin_period(self, now: float) -> None:
        """Let everything that may be passed on in one period be left again."""
        is_next = now < self.period_ends + PERIOD_S
        self.n_sharing = max(len(self.left) - 1, 1) if is_next else 1
        self.period_ends = now + PERIOD_S
        self.left = {0: _allowances(1)}

    def left_of(self, number: int) -> tuple[Allowance, ...]:
        """Return what a client may still get in this period."""
        left = self.left.get(number)
        if left is None:
            left = self.left[number] = _allowances(self.n_sharing)
        return left

    def note_shown(self, ws: WorkerHandle, number: int, now: float) -> None:
        """Note that a client may be shown lines of a worker for a while; the latest are kept."""
        known = self.shown_to.setdefault(ws, {})
        if number not in known and len(known) >= MAX_SHOWN:
            del known[next(iter(known))]
        known[number] = now + SHOWN_S

    def take(self, number: int, part: int, n_chars: int) -> bool:
        """Return whether a client may get one line more, and count it then."""
        mine, all_together = self.left_of(number)[part], self.left[0][part]
        if not (
            mine.lines
            and all_together.lines
            and mine.chars >= n_chars
            and all_together.chars >= n_chars
        ):
            return False
        mine.lines -= 1
        mine.chars -= n_chars
        all_together.lines -= 1
        all_together.chars -= n_chars
        return True


def flow_of(state: SchedulerState) -> OutputFlow:
    """Return the lines that are on their way to clients."""
    return state.record(OutputFlow)


def note_abandoned(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """A task that may run is dropped: what it prints until it has ended is passed on."""
    flow_of(state).note_shown(ws, task.group.client, state.now)


def on_client_away(state: SchedulerState, client: ClientHandle) -> None:
    """The connection of a client has ended: it is sent no numbers of what was left out."""
    flow = flow_of(state)
    for is_record in (False, True):
        flow.n_dropped.pop((client.number, is_record), None)
    if not flow.n_dropped:
        state.deadlines.cancel(flow.notice)
        flow.notice = None


def on_task_output(state: SchedulerState, ws: WorkerHandle, message: m.TaskOutput) -> None:
    """A worker reports lines: pass each on to the client for which its task ran."""
    flow, numbers, wanting = flow_of(state), message.clients, wishes_of(state).wanting
    if not numbers or not (wanting or m.EVERYONE in numbers):
        return
    if state.now >= flow.period_ends:
        flow.begin_period(state.now)
    if numbers.count(numbers[0]) == len(numbers):
        places_of: dict[int, Sequence[int]] = {numbers[0]: range(len(numbers))}
    else:
        found: dict[int, list[int]] = {
            number: [] for number in numbers if number in wanting or number == m.EVERYONE
        }
        for i, number in enumerate(numbers):
            if number in found:
                found[number].append(i)
        places_of = {**found}
    for number, places in places_of.items():
        if not _may_show(state, ws, number, message, places):
            flow.n_refused += len(places)
        elif number == m.EVERYONE:
            for each in _connected(state).values():
                _pass_on(state, each, ws, message, places)
        elif (client := wanting.get(number)) is not None:
            _pass_on(state, client, ws, message, places)


def _may_show(
    state: SchedulerState,
    ws: WorkerHandle,
    number: int,
    message: m.TaskOutput,
    places: Sequence[int],
) -> bool:
    """Return whether a worker has, or had lately, a task of this client; for EVERYONE any task."""
    flow = flow_of(state)
    known = flow.shown_to.get(ws, {})
    until = max(known.values(), default=0.0) if number == m.EVERYONE else known.get(number, 0.0)
    if until > state.now or (until and ws.zombies):
        return True
    client = wishes_of(state).wanting.get(number)
    for i in places:
        task = state.tasks.get(message.keys[i])
        if task is None or not (task.worker is ws or ws in task.replicas):
            continue
        if number in (m.EVERYONE, task.group.client) or client in task.wanted_by:
            flow.note_shown(ws, number, state.now)
            return True
    return False


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
    flow = flow_of(state)
    levels, texts = message.levels, message.texts
    left, total = flow.left_of(client.number), flow.left[0]
    kept: list[int] = []
    n_dropped = 0
    parts = _PRINTED, _OTHER_LINES
    if not any(left[i].lines and total[i].lines for i in parts) and m.DROPPED_LINES not in levels:
        n_dropped, places = len(places), ()
    for i in places:
        is_printed = levels[i] == m.STDOUT or levels[i] == m.DROPPED_LINES
        n_chars = len(texts[i]) + len(message.names[i]) + len(message.keys[i])
        if flow.take(client.number, _PRINTED if is_printed else _OTHER_LINES, n_chars):
            kept.append(i)
        elif levels[i] == m.DROPPED_LINES:
            n_dropped += _number(texts[i])
        else:
            n_dropped += 1
    if kept:
        part_of_it = m.TaskOutput(
            # Those for EVERYONE stay so: a program with several clients shows them once.
            clients=[message.clients[i] for i in kept],
            keys=[message.keys[i] for i in kept],
            levels=[levels[i] for i in kept],
            names=[message.names[i] for i in kept],
            texts=[texts[i] for i in kept],
            worker=ws.name,
        )
        state.send_client(client, part_of_it)
    _count_dropped(state, client, n_dropped, is_record=False)


def _count_dropped(
    state: SchedulerState, client: ClientHandle, n_dropped: int, *, is_record: bool
) -> None:
    """Count what a client does not get, for the next notice."""
    flow = flow_of(state)
    if not n_dropped:
        return
    place = client.number, is_record
    flow.n_dropped[place] = flow.n_dropped.get(place, 0) + n_dropped
    if flow.notice is None:
        flow.notice = state.call_after(flow.period_ends - state.now, _send_notices)


def on_log_records(state: SchedulerState, ws: WorkerHandle, message: m.LogRecords) -> None:
    """A worker reports records of followed loggers: pass each on to the clients that follow it."""
    flow = flow_of(state)
    if not wishes_of(state).followers:
        return  # any more
    if state.now >= flow.period_ends:
        flow.begin_period(state.now)
    places_of: dict[ClientHandle, list[int]] = {}
    followers = {name: followers_of(state, name) for name in dict.fromkeys(message.names)}
    for i, (name, level) in enumerate(zip(message.names, message.levels, strict=True)):
        for client, least in followers[name].items():
            if level >= least:
                places_of.setdefault(client, []).append(i)
    for client, places in places_of.items():
        _pass_records_on(state, client, ws, message, places)


def _pass_records_on(
    state: SchedulerState,
    client: ClientHandle,
    ws: WorkerHandle,
    message: m.LogRecords,
    places: Sequence[int],
) -> None:
    flow, dropped, records = flow_of(state), message.dropped, message.records
    kept: list[int] = []
    n_dropped = 0
    for i in places:
        record = records[i]
        n_chars = len(message.names[i]) + (0 if record is None else blob_nbytes(record))
        part = _GRAVE_RECORDS if message.levels[i] >= GRAVE_LEVEL else _RECORDS
        if flow.take(client.number, part, n_chars):
            kept.append(i)
        else:
            n_dropped += min(max(dropped[i], 1), _MAX_NUMBER)
    if kept:
        part_of_it = m.LogRecords(
            names=[message.names[i] for i in kept],
            levels=[message.levels[i] for i in kept],
            dropped=[dropped[i] for i in kept],
            records=[records[i] for i in kept],
            worker=ws.name,
        )
        state.send_client(client, part_of_it)
    _count_dropped(state, client, n_dropped, is_record=True)


def _number(text: str) -> int:
    """Return the number of lines that a worker says it left out."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 1


def _send_notices(state: SchedulerState) -> None:
    """Send clients the number of lines that they did not get."""
    flow = flow_of(state)
    flow.notice = None
    n_dropped, flow.n_dropped = flow.n_dropped, {}
    connected = _connected(state)
    for (number, is_record), n in n_dropped.items():
        client = connected.get(number)
        if client is None:
            continue
        notice: Message = m.TaskOutput(
            clients=[number], keys=[""], levels=[m.DROPPED_LINES], names=[""], texts=[str(n)]
        )
        if is_record:
            n = min(n, _MAX_NUMBER)
            notice = m.LogRecords(names=[""], levels=[0], dropped=[n], records=[None])
        state.send_client(client, notice)


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
OUTPUT_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "a notice is due iff lines were left out": lambda s: unless(
        is_due(flow_of(s).notice) == bool(flow_of(s).n_dropped),
        flow_of(s).n_dropped,
    ),
    "lines are shown of workers that are here": lambda s: [
        ws
        for ws, known in flow_of(s).shown_to.items()
        if s.workers.get(ws.peer) is not ws or not known
    ],
}
