"""The logger `weft` of this process, kept at a level while clusters live in it.

A cluster of processes has a logging of its own. One without processes logs into the user's program,
where a plain `logging.basicConfig(level=logging.INFO)` would show each step of each worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ...protocol.host.forks import after_fork

_logger: Final = logging.getLogger("weft")
_lock = threading.Lock()
#: The levels that living clusters ask for.
_levels: Final[list[int]] = []


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


class QuietLogs:
    """The level that one cluster asks for. `begin` and `end` may be repeated, on any thread.

    The lowest level that a living cluster asks for is set, and taken back with the last one. A
    level that the user has set stays.
    """

    def __init__(self, level: int) -> None:
        """Take the level; NOTSET asks for nothing."""
        self._level = level
        self._began = False

    def begin(self) -> None:
        """Set the level."""
        with _lock:
            if not self._began and self._level:
                self._began = True
                self._change(_levels.append)

    def end(self) -> None:
        """Take it back."""
        with _lock:
            if self._began:
                self._began = False
                self._change(_levels.remove)

    def _change(self, change: Callable[[int], object]) -> None:
        is_ours = _logger.level == min(_levels, default=logging.NOTSET)
        change(self._level)
        if is_ours:
            _logger.setLevel(min(_levels, default=logging.NOTSET))
