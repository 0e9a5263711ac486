"""Records of loggers that this program follows on the workers: which ones, and their way on.

They are handed to the loggers of the same names here, as if they had been logged here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ...protocol.values.log_records import unpacked
from ...protocol.wire.messages import MAX_LOGGERS, LogRecords
from . import ticking

#: Seconds between two looks at the levels of the loggers of this process.
LOOK_S: Final = 0.1
#: Workers of which it is said how many records were left out.
_MAX_NAMED: Final = 5


class FollowedLoggers:
    """The loggers that one client follows."""

    __slots__ = ("_missed", "_seen", "_unchanged_until", "levels")

    def __init__(self) -> None:
        #: {name: the least level}; "" is the root; NOTSET = that of the logger of this process.
        self.levels: dict[str, int] = {}
        #: {worker: number of records that were left out}.
        self._missed: dict[str, int] = {}
        #: `levels` when they were last found to be as they were sent, and when to look again.
        self._seen = self.levels
        self._unchanged_until = 0.0

    def follow(self, name: str, level: int) -> None:
        """Follow a logger, or follow it with another level.

        Raises:
            ValueError: there are too many.
        """
        if name not in self.levels and len(self.levels) >= MAX_LOGGERS:
            raise ValueError(
                f"this client forwards the records of {MAX_LOGGERS} loggers, which is the limit; "
                "forward those of a logger above them instead: a logger stands for all below it"
            )
        self.levels = {**self.levels, name: level}

    def end(self, name: str) -> None:
        """Follow a logger no more.

        Raises:
            ValueError: it is not followed.
        """
        if name not in self.levels:
            what = f"logger {name!r}" if name else "the root logger"
            raise ValueError(f"this client does not forward the records of {what}")
        self.levels = {known: level for known, level in self.levels.items() if known != name}

    def wanted(self) -> dict[str, int]:
        """Return the levels as they are now, all above 0."""
        return {
            name: level or max(logging.getLogger(name).getEffectiveLevel(), 1)
            for name, level in self.levels.items()
        }

    def has_changed(self, sent: dict[str, int], now: float) -> bool:
        """Return whether something else is wanted than was sent.

        Each submit asks, so levels of this process's loggers are looked at every `LOOK_S` only.
        What is followed, and no more, counts at once: each such call makes new `levels`.

        Args:
            sent: what `wanted` returned last, or nothing.
            now: the time in seconds, of a monotonic clock.
        """
        levels = self.levels
        if levels is self._seen and (not levels or now < self._unchanged_until):
            return False
        if sent != self.wanted():
            return True
        self._seen, self._unchanged_until = levels, now + LOOK_S
        return False

    def covers(self, name: str, level: int) -> bool:
        """Return whether records of this logger and level are followed."""
        if not self.levels:
            return False
        wanted = self.wanted()
        left = "" if name == "root" else name
        while True:
            if level >= wanted.get(left, level + 1):
                return True
            if not left:
                return False
            left = left.rpartition(".")[0]

    def show(self, message: LogRecords, rows: Iterable[int]) -> None:
        """Hand some records of a message to the loggers of this process."""
        for i in rows:
            name, level, blob = message.names[i], message.levels[i], message.records[i]
            if blob is None:
                n = self._missed.get(message.worker, 0) + message.dropped[i]
                self._missed[message.worker] = n
                continue
            logger = logging.getLogger(name)
            if not self.covers(name, level) or not logger.isEnabledFor(level):
                continue
            try:
                logger.handle(unpacked(name, level, blob, message.worker))
            except Exception:  # of a filter of the program, or a record that cannot be read
                ticking.logger.exception("a record of logger %r cannot be handled", name)

    def show_missed(self) -> None:
        """Log how many records were left out."""
        if not self._missed:
            return
        missed, self._missed = self._missed, {}
        parts = [f"{n} of {worker or 'all workers'}" for worker, n in missed.items()]
        if len(parts) > _MAX_NAMED:
            parts[_MAX_NAMED:] = [f"and of {len(parts) - _MAX_NAMED} other workers"]
        ticking.logger.warning(
            "records of forwarded loggers were left out, because there were too many per second: "
            "%s. Forward fewer loggers, or from a higher level on",
            ", ".join(parts),
        )
