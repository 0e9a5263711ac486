"""Shows what tasks print and log: in the cell, or in the terminal of the program.

Printed lines go to `sys.stdout` and `sys.stderr`, behind the name of the worker. Records go through
the program's own `logging`, so its levels, handlers and formats apply. Workers send records from
the level of the program's root logger on, and changes of that level are noticed.

What comes for all clients, and records of followed loggers, are shown once in a program that has
several clients of a scheduler: by the first of those that would show it.
"""

from __future__ import annotations

import builtins
import itertools
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    DROPPED_LINES,
    EVERYONE,
    LEAST_LEVEL,
    STDERR,
    STDOUT,
    WARNED,
    LogRecords,
    TaskOutput,
    WantOutput,
)
from ..core.tasks import Watcher
from . import ticking
from .following import FollowedLoggers
from .notebook import is_interactive
from .painting import undisturbed

#: Lines that are shown in each second, of all workers. Of more the number is shown.
MAX_LINES: Final = 200

_numbers: Final = itertools.count()
#: Those of all clients of this process, in the order in which they were made.
_all: Final[weakref.WeakValueDictionary[int, TaskOutputs]] = weakref.WeakValueDictionary()


class TaskOutputs(Watcher):
    """The lines that workers have sent to one client and that are not shown yet.

    Those that tasks send to all clients come without being wanted.

    Args:
        forward_output: show what tasks of this client print and log; None = if a user looks at the
            program. With False, what tasks send to all clients is not shown either.
    """

    __slots__ = (
        "__weakref__",
        "_is_drawn",
        "_is_showing",
        "_lock",
        "_missed",
        "_n_left",
        "_pid",
        "_second_ends",
        "_sent",
        "_waiting",
        "following",
        "place",
        "shows_lines",
        "wants_lines",
    )

    def __init__(self, forward_output: bool | None = None) -> None:
        super().__init__(wants_data=False)
        self.wants_lines = is_interactive() if forward_output is None else forward_output
        self.shows_lines = forward_output is not False
        self.following = FollowedLoggers()
        #: Returns which scheduler the client is connected to; 0 = none.
        self.place: Callable[[], int] = int
        #: What the scheduler was sent last: a level, and those of followed loggers.
        self._sent: tuple[int, dict[str, int]] = (0, {})
        #: Messages, and the rows of them that are to be shown.
        self._waiting: deque[tuple[Message, list[int]]] = deque()
        #: Lines were taken out of `_waiting`, and may not be written yet.
        self._is_showing = False
        #: Held while lines are written.
        self._lock = threading.RLock()
        #: `draw` will be called.
        self._is_drawn = False
        #: {worker: number of lines that are not shown}; "" = the scheduler left them out.
        self._missed: dict[str, int] = {}
        self._second_ends = 0.0
        self._n_left = 0
        self._pid = os.getpid()
        _all[next(_numbers)] = self

    def wanted(self) -> Message:
        """Return the message to the scheduler about what is wanted now."""
        self._sent = level, followed = self._wish()
        return WantOutput(clients=[], level=level, loggers=followed)

    def first_messages(self) -> list[Message]:
        """Return the first messages of a session: what is wanted, if something is."""
        return [self.wanted()] if self._wish() != (0, {}) else []

    def has_changed(self) -> bool:
        """Return whether something else is wanted than was sent."""
        level, followed = self._sent
        if self.wants_lines and level != _level():
            return True
        return self.following.has_changed(followed, time.monotonic())

    def _wish(self) -> tuple[int, dict[str, int]]:
        return _level() if self.wants_lines else 0, self.following.wanted()

    @property
    def is_waiting(self) -> bool:
        """True if there is something to show, or another thread is about to show it."""
        return bool(self._waiting) or self._is_showing

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`: the loop's thread calls it, and shows nothing itself."""
        # Now, since another client, which shows the rest, may be closed before it is shown.
        self._waiting.extend((message, self._rows_of(message)) for message in items)
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
        self._is_showing = True
        try:
            with undisturbed():
                while self._waiting:
                    message, rows = self._waiting.popleft()
                    if isinstance(message, LogRecords):
                        self.following.show(message, rows)
                    elif isinstance(message, TaskOutput):
                        self._show(message, rows)
                self._show_missed()
        except (OSError, ValueError, IndexError) as error:  # a stream that was closed
            ticking.logger.debug("cannot show the output of tasks: %r", error)
        finally:
            self._is_showing = False
            self._lock.release()

    def _rows_of(self, message: TaskOutput | LogRecords) -> list[int]:
        """Return the rows that this client shows, and no other one of this process."""
        place = self.place()
        others = []
        for each in list(_all.values()) if place else ():
            if each is self:
                break
            if each.place() == place:
                others.append(each)
        if isinstance(message, LogRecords):
            names = zip(message.names, message.levels, strict=True)
            return [
                i
                for i, (name, level) in enumerate(names)
                if not any(each.following.covers(name, level) for each in others)
            ]
        if not self.shows_lines:
            return []
        is_shown = any(each.shows_lines for each in others)
        return [i for i, n in enumerate(message.clients) if n != EVERYONE or not is_shown]

    def _show(self, message: TaskOutput, rows: list[int]) -> None:
        now = time.monotonic()
        if now >= self._second_ends:
            self._second_ends, self._n_left = now + 1.0, MAX_LINES
        worker = message.worker
        written: list[str] = []
        stream = STDOUT
        for i in rows:
            level, name, text = message.levels[i], message.names[i], message.texts[i]
            if level == DROPPED_LINES:
                self._miss(worker, int(text) if text.isdecimal() else 1)
                continue
            if not self._n_left:
                self._miss(worker, 1)
                continue
            self._n_left -= 1
            if level >= LEAST_LEVEL:
                _write(stream, written)
                if not self.following.covers(name, level):  # else the record itself comes
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
        self.following.show_missed()


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
