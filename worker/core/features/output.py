"""The lines that tasks print and log, until they are sent: within a limit of lines per second.

And the records of loggers that clients follow. `worker/output/output.py` catches both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import (
    DROPPED_LINES,
    STDOUT,
    AttemptsPrinted,
    LogRecords,
    TaskOutput,
    WantOutput,
)
from ..events import WorkerAction, WorkerEvent
from ..feature import WorkerFeature

if TYPE_CHECKING:
    from ..state import WorkerState

#: Lines that a worker sends in each second of what tasks write to standard output, and as many of
#: all else: warnings are not lost between prints. Of more it sends the number.
MAX_LINES: Final = 50
#: A longer line is cut.
MAX_LINE_CHARS: Final = 4000
#: Records of followed loggers that a worker sends in each second, and as many from this level on:
#: warnings are not lost between records for debugging.
MAX_RECORDS: Final = MAX_LINES
GRAVE_LEVEL: Final = 30
#: Loggers whose left out records are counted apart.
MAX_COUNTED: Final = 50


@dataclass(slots=True)
class OutputCame(WorkerEvent):
    """Tasks have printed or logged."""

    message: TaskOutput | LogRecords | AttemptsPrinted


@dataclass(slots=True)
class CatchOutput(WorkerAction):
    """Report what tasks of these clients print, and log from `level` on; 0 = nothing any more.

    And the records of loggers, whoever writes them: {name: the least level}, "" is the root.
    """

    level: int
    clients: list[int]
    loggers: dict[str, int] = field(default_factory=dict)


class _Quotas:
    """Counts what may still be sent in this second, in two kinds: `n` of each."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._second_ends = float("-inf")
        #: {it is of the kind: how many}
        self._n_left = {True: 0, False: 0}

    def takes(self, now: float, is_of_kind: bool) -> bool:
        """Return whether one more may be sent, and count it."""
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._n_left = {True: self._n, False: self._n}
        if not self._n_left[is_of_kind]:
            return False
        self._n_left[is_of_kind] -= 1
        return True


class OutputBuffer:
    """The lines that were not sent yet. The caller makes the calls one after the other.

    A finalizer may print within any of them, so each line is added in one step.
    """

    def __init__(self) -> None:
        #: (client, key, level, name, text)
        self._rows: list[tuple[int, str, int, str, str]] = []
        #: {client: number of lines that were left out since the last message}.
        self._n_dropped: dict[int, int] = {}
        #: quotas of standard output, and of all else
        self._quotas = _Quotas(MAX_LINES)

    def add(self, now: float, client: int, key: str, level: int, name: str, text: str) -> None:
        """Keep a line, or count it.

        Args:
            now: seconds, from any fixed point.
            client: the number of the client for which the task runs.
            key: of the task.
            level: of logging; or STDOUT or STDERR of `TaskOutput`.
            name: of the logger, "" for what was printed.
            text: without the end of the line.
        """
        if not self._quotas.takes(now, level == STDOUT):
            self._n_dropped[client] = self._n_dropped.get(client, 0) + 1
            return
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [...]"
        self._rows.append((client, key, level, name[:200], text))

    def take(self) -> TaskOutput | None:
        """Return what is to be sent, if there is anything."""
        dropped, self._n_dropped = self._n_dropped, {}
        rows, self._rows = self._rows, []
        rows += [(client, "", DROPPED_LINES, "", str(n)) for client, n in dropped.items()]
        if not rows:
            return None
        clients, keys, levels, names, texts = map(list, zip(*rows, strict=True))
        return TaskOutput(clients=clients, keys=keys, levels=levels, names=names, texts=texts)


class RecordBuffer:
    """The records that were not sent yet. As for lines, each is added in one step."""

    def __init__(self) -> None:
        #: (logger, level, number of those left out, record)
        self._rows: list[tuple[str, int, int, bytes | None]] = []
        #: {(logger, it is grave): how many records were left out, the highest of their levels}.
        self._dropped: dict[tuple[str, bool], tuple[int, int]] = {}
        #: quotas of grave records, and of the others
        self._quotas = _Quotas(MAX_RECORDS)

    def has_room(self, now: float, name: str, level: int) -> bool:
        """Return whether a record may be added; if not, count it.

        Args:
            now: seconds, from any fixed point.
            name: of its logger.
            level: of logging.
        """
        is_grave = level >= GRAVE_LEVEL
        if self._quotas.takes(now, is_grave):
            return True
        place = name, is_grave
        if place not in self._dropped and len(self._dropped) >= MAX_COUNTED:
            place = "", is_grave
        n, highest = self._dropped.get(place, (0, 0))
        self._dropped[place] = n + 1, max(highest, level)
        return False

    def add(self, name: str, level: int, record: bytes) -> None:
        """Keep a record for which there is room."""
        self._rows.append((name, level, 0, record))

    def take(self) -> LogRecords | None:
        """Return what is to be sent, if there is anything."""
        left_out, self._dropped = self._dropped, {}
        rows, self._rows = self._rows, []
        rows += [(name, level, n, None) for (name, _), (n, level) in left_out.items()]
        if not rows:
            return None
        names, levels, dropped, records = map(list, zip(*rows, strict=True))
        return LogRecords(names=names, levels=levels, dropped=dropped, records=records)


def _on_want_output(state: WorkerState, message: WantOutput) -> None:
    """The scheduler reports which clients want the output of their tasks, and follow loggers."""
    state.before.append(CatchOutput(message.level, message.clients, message.loggers))


def _on_output_came(state: WorkerState, event: OutputCame) -> None:
    """Send lines, before the reports of what follows."""
    state.to_scheduler.append(event.message)


def _catch_nothing(state: WorkerState) -> None:
    """Wait until this scheduler sends what is wanted."""
    state.before.append(CatchOutput(0, []))


FEATURE: Final = WorkerFeature(
    name="output",
    messages={WantOutput: _on_want_output},
    events={OutputCame: _on_output_came},
    session_back=(_catch_nothing,),
)
