"""The lines that tasks print and log, until they are sent: within a limit of lines per second.

And the records of loggers that clients follow. A part of the core. `worker/output.py` catches both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import (
    DROPPED_LINES,
    STDOUT,
    LogRecords,
    TaskOutput,
    WantOutput,
)
from .events import CatchOutput, OutputCame

if TYPE_CHECKING:
    from .state import WorkerState

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


class OutputBuffer:
    """The lines that were not sent yet. The caller makes the calls one after the other."""

    def __init__(self) -> None:
        self._message: TaskOutput | None = None
        #: {client: number of lines that were left out since the last message}.
        self._n_dropped: dict[int, int] = {}
        self._second_ends = float("-inf")
        #: {it is standard output: how many lines may be sent in this second}.
        self._n_left = {True: 0, False: 0}

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
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._n_left = {True: MAX_LINES, False: MAX_LINES}
        if not self._n_left[level == STDOUT]:
            self._n_dropped[client] = self._n_dropped.get(client, 0) + 1
            return
        self._n_left[level == STDOUT] -= 1
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [...]"
        self._append(client, key, level, name[:200], text)

    def take(self) -> TaskOutput | None:
        """Return what is to be sent, if there is anything."""
        for client, n in self._n_dropped.items():
            self._append(client, "", DROPPED_LINES, "", str(n))
        self._n_dropped.clear()
        message, self._message = self._message, None
        return message

    def _append(self, client: int, key: str, level: int, name: str, text: str) -> None:
        message = self._message
        if message is None:
            message = TaskOutput(clients=[], keys=[], levels=[], names=[], texts=[])
            self._message = message
        message.clients.append(client)
        message.keys.append(key)
        message.levels.append(level)
        message.names.append(name)
        message.texts.append(text)


class RecordBuffer:
    """The records that were not sent yet. The caller makes the calls one after the other."""

    def __init__(self) -> None:
        self._message: LogRecords | None = None
        #: {(logger, it is grave): how many records were left out, the highest of their levels}.
        self._dropped: dict[tuple[str, bool], tuple[int, int]] = {}
        self._second_ends = float("-inf")
        #: {it is grave: how many records may be sent in this second}.
        self._n_left = {True: 0, False: 0}

    def has_room(self, now: float, name: str, level: int) -> bool:
        """Return whether a record may be added; if not, count it.

        Args:
            now: seconds, from any fixed point.
            name: of its logger.
            level: of logging.
        """
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._n_left = {True: MAX_RECORDS, False: MAX_RECORDS}
        is_grave = level >= GRAVE_LEVEL
        if self._n_left[is_grave]:
            self._n_left[is_grave] -= 1
            return True
        place = name, is_grave
        if place not in self._dropped and len(self._dropped) >= MAX_COUNTED:
            place = "", is_grave
        n, highest = self._dropped.get(place, (0, 0))
        self._dropped[place] = n + 1, max(highest, level)
        return False

    def add(self, name: str, level: int, record: bytes) -> None:
        """Keep a record for which there is room."""
        self._append(name, level, 0, record)

    def take(self) -> LogRecords | None:
        """Return what is to be sent, if there is anything."""
        for (name, _), (n, level) in self._dropped.items():
            self._append(name, level, n, None)
        self._dropped.clear()
        message, self._message = self._message, None
        return message

    def _append(self, name: str, level: int, dropped: int, record: bytes | None) -> None:
        message = self._message
        if message is None:
            message = self._message = LogRecords(names=[], levels=[], dropped=[], records=[])
        message.names.append(name)
        message.levels.append(level)
        message.dropped.append(dropped)
        message.records.append(record)


def on_want_output(state: WorkerState, message: WantOutput) -> None:
    """The scheduler reports which clients want the output of their tasks, and follow loggers."""
    state.before.append(CatchOutput(message.level, message.clients, message.loggers))


def on_output_came(state: WorkerState, event: OutputCame) -> None:
    """Send lines, before the reports of what follows."""
    state.to_scheduler.append(event.message)
