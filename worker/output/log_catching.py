"""Catches records of logging: those of tasks whose clients want them, and of followed loggers.

A part of the shell. While a logger is wanted it has a handler of ours, and a level that lets the
wanted records pass. The handlers that there are then, above and below it, get what they would get
without that. The exception is a worker that shares the terminal of the program: what the program is
sent is not written to this process's stdout and stderr, since the program shows it. A handler that
is added later gets all records that pass, until the next call of `want`.

Weft's own records are not caught: sending them would log further ones.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Final

#: An attribute of records that were taken for a followed logger: other loggers see them, too.
_TAKEN: Final = "_weft_taken"
#: One of records that came from another process.
_FROM_WORKER: Final = "weft_worker"


class RecordCatcher:
    """Catches records on their way through the loggers of this process.

    Args:
        takes_task: takes a record for the client of the task that logs it; False = no client of the
            calling thread's task wants it.
        takes_followed: takes a record of a followed logger.
        is_taken_here: returns whether a client wants the output of the calling thread's task.
        keeps: let handlers that write to the stdout or stderr of this process have what was caught
            as well; all others have it in any case.
    """

    def __init__(
        self,
        takes_task: Callable[[logging.LogRecord], None],
        takes_followed: Callable[[logging.LogRecord], None],
        is_taken_here: Callable[[], bool],
        keeps: bool,
    ) -> None:
        self._takes_task = takes_task
        self._takes_followed = takes_followed
        self._is_taken_here = is_taken_here
        self._keeps = keeps
        #: From which level on clients want the records of their tasks; 0 = not at all.
        self._task_level = 0
        #: {name of a followed logger: the least level}.
        self._followed: dict[str, int] = {}
        #: {name of a logger: our handler there}.
        self._handlers: dict[str, _Records] = {}
        #: {name of a logger: its own level, and the lower one that it has now}.
        self._levels: dict[str, tuple[int, int]] = {}
        #: {handler of this process: our filter there}.
        self._filters: dict[logging.Handler, _NotCaught] = {}

    def want(self, task_level: int, followed: dict[str, int]) -> None:
        """Catch from now on what clients want.

        Args:
            task_level: the least level of records of their tasks; 0 = none.
            followed: {name of a logger: the least level}; "" is the root.
        """
        self._task_level, self._followed = task_level, followed
        wanted = dict(followed)
        if task_level:
            wanted[""] = min(task_level, wanted.get("", task_level))
        for name in [name for name in self._handlers if name not in wanted]:
            logging.getLogger(name).removeHandler(self._handlers.pop(name))
        self._set_levels(wanted)
        self._set_filters(wanted)
        for name in wanted:
            if name not in self._handlers:
                handler = self._handlers[name] = _Records(self, name)
                logging.getLogger(name).addHandler(handler)

    def _set_levels(self, wanted: dict[str, int]) -> None:
        """Let loggers pass what is wanted; give the others their own levels back."""
        lower: dict[str, int] = {}
        for name in sorted(wanted):  # parents before those below them
            if self._effective(logging.getLogger(name), lower) > wanted[name]:
                lower[name] = wanted[name]
        for name in {**self._levels, **lower}:
            logger = logging.getLogger(name)
            own = self._own(logger)
            self._levels.pop(name, None)
            level = lower.get(name, own)
            if logger.level != level:
                logger.setLevel(level)
            if name in lower:
                self._levels[name] = own, level

    def _own(self, logger: logging.Logger) -> int:
        """Return the level that a logger has without us; a program may have changed it since."""
        own, lower = self._levels.get(_name_of(logger), (logger.level, logger.level))
        return own if logger.level == lower else logger.level

    def _effective(self, logger: logging.Logger, lower: dict[str, int]) -> int:
        """Return from which level on a logger passes records, if some have the levels `lower`."""
        for each in _upwards(logger):
            level = lower.get(_name_of(each)) or self._own(each)
            if level:
                return level
        return logging.NOTSET

    def _set_filters(self, wanted: dict[str, int]) -> None:
        """Put our filter into all handlers that see records of wanted loggers and those below."""
        loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
        handlers = {
            handler: None
            for logger in loggers
            if isinstance(logger, logging.Logger)  # and not the place of one that is not made yet
            if any(_name_of(each) in wanted for each in _upwards(logger))
            for above in _upwards(logger)
            for handler in above.handlers
            if not isinstance(handler, _Records)
        }
        for handler in [handler for handler in self._filters if handler not in handlers]:
            handler.removeFilter(self._filters.pop(handler))
        for handler in handlers:
            if handler not in self._filters:
                self._filters[handler] = _NotCaught(self, handler)
                handler.addFilter(self._filters[handler])

    # --- On the threads that log ------------------------------------------------------------------

    def take(self, name: str, record: logging.LogRecord) -> None:
        """Take a record that came by the logger `name`."""
        if _is_ours(record) or hasattr(record, _FROM_WORKER):
            return
        if not name and self._task_level and record.levelno >= self._task_level:
            self._takes_task(record)
        least = self._followed.get(name)
        if least is not None and record.levelno >= least and not hasattr(record, _TAKEN):
            setattr(record, _TAKEN, True)
            self._takes_followed(record)

    def is_for(self, handler: logging.Handler, record: logging.LogRecord) -> bool:
        """Return whether a handler of this process is to have a record."""
        logger = logging.getLogger(record.name)
        if record.levelno < self._effective(logger, {}):
            return False
        if self._keeps or _is_ours(record) or not self._is_sent(logger, record):
            return True
        return not _writes_to_terminal(handler)

    def _is_sent(self, logger: logging.Logger, record: logging.LogRecord) -> bool:
        if self._task_level and record.levelno >= self._task_level and self._is_taken_here():
            return True
        followed = self._followed
        return any(
            record.levelno >= followed.get(_name_of(each), record.levelno + 1)
            for each in _upwards(logger)
        )


def _upwards(logger: logging.Logger) -> Iterator[logging.Logger]:
    """Return a logger and those above it."""
    each: logging.Logger | None = logger
    while each is not None:
        yield each
        each = each.parent


def _name_of(logger: logging.Logger) -> str:
    return "" if logger.parent is None else logger.name


class _Records(logging.Handler):
    """Takes the records that come by one logger."""

    def __init__(self, catcher: RecordCatcher, name: str) -> None:
        super().__init__()
        self._catcher = catcher
        self._logger = name

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            self._catcher.take(self._logger, record)
        except Exception:  # of an argument or exception that cannot be shown, for instance
            self.handleError(record)


class _NotCaught(logging.Filter):
    """Passes what one of this process's own handlers is to have."""

    def __init__(self, catcher: RecordCatcher, handler: logging.Handler) -> None:
        super().__init__()
        self._catcher = catcher
        self._handler = handler

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        return self._catcher.is_for(self._handler, record)


def _writes_to_terminal(handler: logging.Handler) -> bool:
    """Return whether a handler writes to the stdout or stderr of this process."""
    stream = getattr(handler, "stream", None)  # None: of a file that is not open yet, too
    if stream is None:  # the handler of rich has a console instead
        stream = getattr(getattr(handler, "console", None), "file", None)
    if stream is None:
        return False
    if any(stream is each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        return True
    try:
        return stream.fileno() in (1, 2)  # such as a stream that was `sys.stderr` before
    except (AttributeError, OSError, ValueError):  # it has no descriptor, or is closed
        return False


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == "weft" or record.name.startswith("weft.")
