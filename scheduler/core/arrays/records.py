"""What is known of arrays and of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from ....protocol.array_rows import ArrayRows, key_of_row
from ....protocol.wire.options import CANCELLED, DONE, FAILED, LOST
from ..journal.entries import PENDING, JobEnded, RowEnded
from ..journal.jobs import ends_in
from ..records.peers import ClientHandle
from ..records.tasks import SchedulerTask

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..state import SchedulerState

#: The states of a row; its place here is the byte that stands for it. Of a row that is done the
#: second byte says that its result is None, so that nothing else has to be kept of it.
STATES: Final = (PENDING, DONE, DONE, FAILED, CANCELLED, LOST)
DONE_WITH_NONE: Final = 2
#: The pickle of None.
NONE_BLOB: Final = b"\x80\x05N."
#: Rows whose states are one value, in memory and in the journal. One without an end is not stored.
CHUNK: Final = 4096
_NONE: Final = b"\0"
#: By the bytes of `STATES`, as `bytes.translate` takes them: an array may have millions of rows.
_FAILED: Final = bytes(code > DONE_WITH_NONE for code in range(256))
_AGAIN: Final = bytes(0 if code > DONE_WITH_NONE else code for code in range(256))


class Array:
    """One array.

    A row is *under way* from when it is a task until its end is recorded. All others are known by
    one byte, or by none.
    """

    __slots__ = (
        "asked",
        "chunks",
        "is_cancelled",
        "is_known",
        "is_over",
        "key",
        "live",
        "n_ended",
        "n_entries",
        "next",
        "rows",
        "writing",
    )

    def __init__(self, key: str, rows: ArrayRows, chunks: Mapping[int, bytes]) -> None:
        self.key = key
        self.rows = rows
        #: {number: the states of `CHUNK` rows}; a row without an end has 0
        self.chunks = {
            number: bytearray(states.ljust(self._size_of(number), _NONE))
            for number, states in chunks.items()
        }
        #: rows with each byte of `STATES`; sum = `rows.n`
        self.n_ended = [0] * len(STATES)
        self._count()
        #: {position: None} of rows that are tasks: none of them has ended
        self.live: dict[int, None] = {}
        #: {number of an entry: {position: what is kept}} of rows whose ends are being recorded,
        #: and of none that is to run again since then
        self.writing: dict[int, dict[int, RowEnded | None]] = {}
        self.n_entries = 0
        #: rows below this one have ended, or are live
        self.next = 0
        #: {position: (peer, request)} of those that wait for the end of a row
        self.asked: dict[int, list[tuple[int, int]]] = {}
        #: whether the journal has it: what it has of an earlier array of this key is to be dropped
        self.is_known = False
        #: no row is begun any more; its task ends, or runs
        self.is_over = False
        #: it was cancelled for all
        self.is_cancelled = False

    def _size_of(self, number: int) -> int:
        """Return the rows of a chunk."""
        return min(CHUNK, self.rows.n - number * CHUNK)

    def _count(self) -> None:
        for code in range(1, len(STATES)):
            self.n_ended[code] = sum(states.count(code) for states in self.chunks.values())
        self.n_ended[0] = self.rows.n - sum(self.n_ended[1:])

    @property
    def n_under_way(self) -> int:
        """How many rows are under way."""
        return len(self.live) + sum(map(len, self.writing.values()))

    @property
    def n_failed(self) -> int:
        """How many rows have ended without success."""
        return sum(self.n_ended[DONE_WITH_NONE + 1 :])

    def key_of(self, position: int) -> str:
        """Return the key of a row."""
        return key_of_row(self.key, self.rows.name(position))

    def positions(self, names: Iterable[str]) -> list[int]:
        """Return the positions of rows by their numbers; those that there are not are left out."""
        found = map(self.rows.position, names)
        return [position for position in found if position is not None]

    def state_of(self, position: int) -> int:
        """Return the byte of a row."""
        states = self.chunks.get(position // CHUNK)
        return 0 if states is None else states[position % CHUNK]

    def is_under_way(self, position: int) -> bool:
        """Return whether the end of a row has not come, or is not recorded."""
        is_written = all(position not in ends for ends in self.writing.values())
        return not (self.state_of(position) and is_written)

    def note(self, position: int, code: int) -> None:
        """Change the byte of a row."""
        number, place = divmod(position, CHUNK)
        states = self.chunks.get(number)
        if states is None:
            states = self.chunks[number] = bytearray(self._size_of(number))
        self.n_ended[states[place]] -= 1
        self.n_ended[code] += 1
        states[place] = code

    def take(self, n: int) -> list[int]:
        """Return the positions of the next rows, at most `n`, that have not ended or begun."""
        taken: list[int] = []
        while len(taken) < n and self.next < self.rows.n:
            number, place = divmod(self.next, CHUNK)
            states = self.chunks.get(number)
            if states is not None:
                place = states.find(_NONE, place)
                if place < 0:
                    self.next = (number + 1) * CHUNK
                    continue
                self.next = number * CHUNK + place
            if self.next not in self.live:
                taken.append(self.next)
            self.next += 1
        return taken

    @property
    def is_left(self) -> bool:
        """True unless each row has ended, or is live."""
        return self.n_ended[0] > len(self.live)

    def run_again(self, positions: Iterable[int] | None) -> list[int]:
        """Let rows be begun again that have not succeeded, all or some; return their positions."""
        if positions is None:
            found = list(self.unsuccessful())
            for states in self.chunks.values():
                states[:] = states.translate(_AGAIN)
            self._count()
        else:
            unsuccessful = (one for one in positions if self.state_of(one) > DONE_WITH_NONE)
            found = list(dict.fromkeys(unsuccessful))
            for position in found:
                self.note(position, 0)
        self.next = min(self.next, min(found, default=self.next))
        return found

    def unsuccessful(self) -> Iterator[int]:
        """Yield the positions of the rows that have ended without success, in order."""
        for number, states in sorted(self.chunks.items()):
            first = number * CHUNK
            yield from compress(range(first, first + len(states)), states.translate(_FAILED))


class Arrays(dict[SchedulerTask, Array]):
    """{task: what is known of it} of all arrays, until they are forgotten.

    The class is in `SchedulerState.busy` while there is an array.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Wants rows. It is no client of the cluster, and has no connection.
        self.keeper = ClientHandle("", "arrays", 0, receive=_note_end, is_watcher=True)
        #: {key: the task of its array, and its position} of all rows that are live
        self.rows: dict[str, tuple[SchedulerTask, int]] = {}
        #: {key of a row: its end} of those that have ended since the last pass
        self.ended: dict[str, JobEnded] = {}
        #: {task: None} of the arrays that are looked at in the next pass
        self.touched: dict[SchedulerTask, None] = {}
        #: {task: None} of the arrays for whose rows questions wait, and of some that had such
        self.awaited: dict[SchedulerTask, None] = {}
        #: (key, what was known) of arrays that were forgotten since then
        self.dropped: list[tuple[str, Array]] = []
        #: workers when they were last counted, and their threads: a hint for the window
        self.n_workers = self.n_threads = 0
        #: {name of a queue: {task: None}} of arrays that have met their conditions, and may begin
        #: rows when their queue is not paused. Some have ended since they were looked at.
        self.open: dict[str, dict[SchedulerTask, None]] = {}
        #: {key: its chunks} of arrays that the journal has read, and submits with this event
        self.read: dict[str, dict[int, bytes]] = {}
        #: {key: the numbers of the rows, None = all} of those of them that are to run again
        self.retried: dict[str, list[str] | None] = {}

    def close(self, task: SchedulerTask) -> None:
        """Note that an array begins no more rows."""
        name = task.group.options.job_queue
        of_queue = self.open.get(name, {})
        of_queue.pop(task, None)
        if not of_queue:
            self.open.pop(name, None)

    def pop(self, task: SchedulerTask, *default: Any) -> Any:
        """Note that an array is forgotten."""
        array = super().pop(task, None)
        self.awaited.pop(task, None)
        self.close(task)
        if array is not None:
            self.dropped.append((task.key, array))
        return array


def _note_end(state: SchedulerState, message: Message) -> None:
    """Note what the keeper would be sent: its sender may be in the middle of a batch."""
    for end in ends_in(state, message):
        arrays_of(state).ended[end.key] = end
        state.busy[Arrays] = None


def arrays_of(state: SchedulerState) -> Arrays:
    """Return the arrays of a scheduler."""
    return state.record(Arrays)
