"""Passes what a call prints and logs to the worker, for the clients that want it."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any

from ...protocol.values.log_records import packed, text_of
from ...protocol.wire.message import MAX_NUMBER
from ...protocol.wire.messages import LEAST_LEVEL, MAX_LOGGER_CHARS, STDERR, STDOUT
from ..context import task_here
from ..output.log_catching import RecordCatcher
from ..output.output import OutputCatcher, OutputStream

if TYPE_CHECKING:
    from .seat import ChildSeat


class ChildOutput(OutputCatcher):
    """Catches the output of calls in a child, as `OutputCatcher` does in a worker."""

    def __init__(self, seat: ChildSeat, keeps: bool) -> None:
        self._seat = seat
        self.keeps = keeps
        self._is_wanted = False
        self._records = RecordCatcher(
            self._log, self._follow, lambda: self.client_here() is not None, keeps
        )
        sys.stdout = OutputStream(self, sys.stdout, STDOUT)
        sys.stderr = OutputStream(self, sys.stderr, STDERR)

    def want_now(self, is_wanted: bool, level: int, loggers: dict[str, int]) -> None:
        """Catch what the next call prints, or not, and records of these levels."""
        self._is_wanted = is_wanted
        self._records.want(level, loggers)

    def client_here(self) -> tuple[int, str] | None:
        """Return whether the output of this thread is caught; the worker knows for whom."""
        # Code of a finalizer may print in the middle of a message to the worker.
        is_caught = self._is_wanted and task_here() and not self._seat.is_busy
        return (0, "") if is_caught else None

    def write(self, client: int, key: str, level: int, text: str) -> None:
        """Pass on what was printed."""
        self._seat.send("printed", level, text)

    def show(self, key: str, level: int, name: str, text: str) -> None:
        """Pass on lines for all clients."""
        self._seat.send("shown", level, name, text)

    def _log(self, record: logging.LogRecord) -> None:
        if self.client_here() is None:
            return
        text = text_of(record)
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._seat.send("logged", max(record.levelno, LEAST_LEVEL), record.name, text)

    def _follow(self, record: logging.LogRecord) -> None:
        if task_here() and not self._seat.is_busy:
            name = record.name[:MAX_LOGGER_CHARS]
            level = min(max(record.levelno, 0), MAX_NUMBER)
            self._seat.send("followed", name, level, packed(record, task_here()))


def flush() -> None:
    """Write out what the call has printed."""
    for stream in (sys.stdout, sys.stderr):
        own: Any = getattr(stream, "_own", stream)
        if own is not None:
            own.flush()
