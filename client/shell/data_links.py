"""Fetches large results from the workers that hold them.

Turns the core's `FetchFrom` into `GetData`, and each answer or failure of a line into one
`ResultsFetched` or `ResultsNotFetched`. The first failure with each worker is logged, because the
way through the scheduler, which is taken then, is slower and limited in size. At most one such line
per minute is a warning: where workers die one after the other, each failure is one with a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ...protocol.net.data_line import DataLines
from ...protocol.trust.security import Security
from ...protocol.wire.messages import KeysData
from ..core.events import Event, FetchFrom, ResultsFetched, ResultsNotFetched

__all__ = ["DataLinks"]

_log: Final = logging.getLogger("weft.client")

#: A worker that cannot be reached directly is asked through the scheduler after this.
_CONNECT_TIMEOUT_S: Final = 3.0
#: Largest number of workers whose warning is remembered; beyond it the record starts anew.
_MAX_WARNED: Final = 1000
#: The least time between two warnings.
_WARNING_PAUSE_S: Final = 60.0


class DataLinks:
    """Carries out the core's `FetchFrom`. For the loop's thread only."""

    def __init__(self, security: Callable[[], Security], on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._lines = DataLines(
            security, self._on_answer, self._on_failed, connect_timeout_s=_CONNECT_TIMEOUT_S
        )
        #: {holder: None} whose first failure was logged; at most `_MAX_WARNED`.
        self._warned: dict[str, None] = {}
        #: When the next warning may be logged, and the workers that were logged below it until then
        self._next_warning = 0.0
        self._n_quiet = 0

    def fetch(self, action: FetchFrom) -> None:
        """Carry out an action of the core."""
        self._lines.ask(action.holder, action.request, action.keys)

    async def close(self) -> None:
        """Close all lines; the core gets no more events."""
        await self._lines.close()

    def _on_answer(self, _holder: str, message: KeysData) -> None:
        self._on_event(ResultsFetched(message.request, message.keys, message.results))

    def _on_failed(self, holder: str, request: int, reason: str) -> None:
        if holder not in self._warned:
            if len(self._warned) >= _MAX_WARNED:
                self._warned.clear()
            self._warned[holder] = None
            now = asyncio.get_running_loop().time()
            is_warning = now >= self._next_warning
            _log.log(
                logging.WARNING if is_warning else logging.INFO,
                "results on worker %s cannot be fetched from it (%s); the scheduler is asked to "
                "pass them on%s",
                holder,
                reason,
                f"; {self._n_quiet} others since the last warning"
                if is_warning and self._n_quiet
                else "",
            )
            self._n_quiet = 0 if is_warning else self._n_quiet + 1
            if is_warning:
                self._next_warning = now + _WARNING_PAUSE_S
        self._on_event(ResultsNotFetched(request, reason))
