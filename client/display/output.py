"""Shows what tasks print and log: in the cell, or in the terminal of the program.

Printed lines go to `sys.stdout` and `sys.stderr`, behind the name of the worker. Records go through
the program's own `logging`, so its levels, handlers and formats apply. Workers send records from
the level of the program's root logger on, and changes of that level are noticed.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
import threading
import time
import warnings
from collections import deque
from typing import Any, Final

from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    DROPPED_LINES,
    LEAST_LEVEL,
    STDERR,
    STDOUT,
    WARNED,
    TaskOutput,
    WantOutput,
)
from ..core.tasks import Watcher
from . import ticking
from .notebook import is_interactive
from .painting import undisturbed

__all__ = ["TaskOutputs", "wants_output"]

#: Lines that are shown in each second, of all workers. Of more the number is shown.
MAX_LINES: Final = 200


def wants_output(forward_output: bool | None) -> bool:
    """Decide what `forward_output=` of a client means; None = if a user looks at the program."""
    return is_interactive() if forward_output is None else forward_output


class TaskOutputs(Watcher):
    """The lines that workers have sent and that are not shown yet.

    Those that tasks send to all clients come without being wanted.
    """

    __slots__ = (
        "_is_drawn",
        "_level",
        "_lock",
        "_missed",
        "_n_left",
        "_pid",
        "_second_ends",
        "_waiting",
    )

    def __init__(self) -> None:
        super().__init__(wants_data=False)
        self._level = _level()
        self._waiting: deque[TaskOutput] = deque()
        #: Held while lines are written.
        self._lock = threading.RLock()
        #: `draw` will be called.
        self._is_drawn = False
        #: {worker: number of lines that are not shown}; "" = the scheduler left them out.
        self._missed: dict[str, int] = {}
        self._second_ends = 0.0
        self._n_left = 0
        self._pid = os.getpid()

    def wanted(self) -> list[Message]:
        """Return the message to the scheduler about what is wanted now."""
        self._level = _level()
        return [WantOutput(clients=[], level=self._level)]

    def has_changed(self) -> bool:
        """Return whether something else is wanted than was sent."""
        return self._level != _level()

    @property
    def is_waiting(self) -> bool:
        """True if there is something to show."""
        return bool(self._waiting)

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`: the loop's thread calls it, and shows nothing itself."""
        self._waiting.extend(items)
        if not self._is_drawn:
            self._is_drawn = True
            ticking.begin(self)

    def draw(self) -> bool:
        """Show what has come; return whether more may come soon."""
        had_some = self.is_waiting or bool(self._missed)
        self.show()
        if had_some:
            return True
        self._is_drawn = False
        if not self._waiting:
            return False
        self._is_drawn = True
        return True

    def show(self) -> None:
        """Show what has come, on the thread of the caller."""
        if self._pid != os.getpid() or not self._lock.acquire(timeout=1.0):
            return
        try:
            with undisturbed():
                while self._waiting:
                    self._show(self._waiting.popleft())
                self._show_missed()
        except (OSError, ValueError, IndexError) as error:  # a stream that was closed
            ticking.logger.debug("cannot show the output of tasks: %r", error)
        finally:
            self._lock.release()

    def _show(self, message: TaskOutput) -> None:
        now = time.monotonic()
        if now >= self._second_ends:
            self._second_ends, self._n_left = now + 1.0, MAX_LINES
        worker = message.worker
        written: list[str] = []
        stream = STDOUT
        for level, name, text in zip(message.levels, message.names, message.texts, strict=True):
            if level == DROPPED_LINES:
                self._miss(worker, int(text) if text.isdecimal() else 1)
                continue
            if not self._n_left:
                self._miss(worker, 1)
                continue
            self._n_left -= 1
            if level >= LEAST_LEVEL:
                _write(stream, written)
                _log(worker, level, name, text)
                continue
            if level == WARNED:
                _write(stream, written)
                _warn(worker, name, text)
                continue
            if level != stream:
                _write(stream, written)
                stream = level
            written.append(f"({worker}) {text}\n")
        _write(stream, written)

    def _miss(self, worker: str, n: int) -> None:
        self._missed[worker] = self._missed.get(worker, 0) + n

    def _show_missed(self) -> None:
        missed, self._missed = self._missed, {}
        lines = [
            f"({worker}) ... {n} more\n" if worker else f"... {n} more lines of all workers\n"
            for worker, n in list(missed.items())[:20]
        ]
        if len(missed) > 20:
            lines.append(f"... and more of {len(missed) - 20} other workers\n")
        _write(STDOUT, lines)


def _level() -> int:
    """Return the level of the program's root logger, at least 1."""
    return max(logging.getLogger().level, 1)


def _write(stream: int, lines: list[str]) -> None:
    if not lines:
        return
    file = sys.stderr if stream == STDERR else sys.stdout
    if file is not None:
        file.write("".join(lines))
        file.flush()
    lines.clear()


def _warn(worker: str, category: str, text: str) -> None:
    """Show a warning of a task as one of the program: by its filters and its handler."""
    found = getattr(builtins, category, None)
    if not (isinstance(found, type) and issubclass(found, Warning)):
        text, found = f"{category}: {text}", UserWarning
    try:
        warnings.warn_explicit(text, found, f"({worker})", 0)
    except Warning as warning:  # the program makes errors of warnings; there is no caller here
        ticking.logger.warning("(%s) %s: %s", worker, category, warning)


def _log(worker: str, level: int, name: str, text: str) -> None:
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        # Not as a format: the text may have percent signs.
        record = logger.makeRecord(name, level, f"({worker})", 0, "(%s) %s", (worker, text), None)
        logger.handle(record)
