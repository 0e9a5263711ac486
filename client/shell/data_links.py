"""Fetches large results from the workers that hold them, and puts large arguments at workers.

Turns the core's `FetchFrom` into `GetData` and `PutAt` into `Put`, and each answer or failure of a
connection into one `ResultsFetched`, `ResultsNotFetched` or `PutEnded`. The first failure with each
worker is logged, because the way through the scheduler, which is taken then, is slower and limited
in size. At most one such line per minute is a warning: where workers die one after the other, each
failure is one with a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ...protocol.net.data_connection import DataConnections
from ...protocol.trust.security import Security
from ...protocol.wire.messages import GetData, KeysData, Put, PutDone
from ..core.events import (
    ClientEvent,
    FetchFrom,
    ResultsFetched,
    ResultsNotFetched,
)
from ..core.features.puts import PutAt, PutEnded

_log: Final = logging.getLogger("weft.client")

#: A worker that cannot be reached directly is asked through the scheduler after this.
_CONNECT_TIMEOUT_S: Final = 3.0
#: Largest number of workers whose warning is remembered; beyond it the record starts anew.
_MAX_WARNED: Final = 1000
#: The least time between two warnings.
_WARNING_PAUSE_S: Final = 60.0


class DataLinks:
    """Carries out the core's `FetchFrom`. For the loop's thread only."""

    def __init__(
        self, security: Callable[[], Security], on_event: Callable[[ClientEvent], None]
    ) -> None:
        self._on_event = on_event
        self._connections = DataConnections(
            security, self._on_answer, self._on_failed, connect_timeout_s=_CONNECT_TIMEOUT_S
        )
        #: {request: holder} of the puts that were not answered.
        self._puts: dict[int, str] = {}
        #: {holder: None} whose first failure was logged; at most `_MAX_WARNED`.
        self._warned: dict[str, None] = {}
        #: When the next warning may be logged, and the workers that were logged below it until then
        self._next_warning = 0.0
        self._n_quiet = 0

    def do(self, action: FetchFrom | PutAt) -> None:
        """Carry out an action of the core."""
        message: GetData | Put
        if isinstance(action, PutAt):
            self._puts[action.request] = action.holder
            message = Put(
                request=action.request,
                keys=[action.key],
                attempts=[action.attempt],
                values=[action.value],
            )
        else:
            message = GetData(request=action.request, keys=action.keys)
        self._connections.ask(action.holder, message)

    async def close(self) -> None:
        """Close all connections; the core gets no more events."""
        await self._connections.close()

    def _on_answer(self, _holder: str, message: KeysData | PutDone) -> None:
        if isinstance(message, PutDone):
            if self._puts.pop(message.request, None) is not None:
                self._on_event(PutEnded(message.request))
        elif message.request not in self._puts:
            self._on_event(ResultsFetched(message.request, message.keys, message.results))

    def _on_failed(self, holder: str, request: int, reason: str) -> None:
        is_put = self._puts.pop(request, None) is not None
        if holder not in self._warned:
            if len(self._warned) >= _MAX_WARNED:
                self._warned.clear()
            self._warned[holder] = None
            now = asyncio.get_running_loop().time()
            is_warning = now >= self._next_warning
            _log.log(
                logging.WARNING if is_warning else logging.INFO,
                "%s cannot be %s it (%s); the scheduler is asked to pass them on%s",
                f"large arguments for worker {holder}" if is_put else f"results on worker {holder}",
                "sent to" if is_put else "fetched from",
                reason,
                f"; {self._n_quiet} others since the last warning"
                if is_warning and self._n_quiet
                else "",
            )
            self._n_quiet = 0 if is_warning else self._n_quiet + 1
            if is_warning:
                self._next_warning = now + _WARNING_PAUSE_S
        self._on_event(PutEnded(request, reason) if is_put else ResultsNotFetched(request, reason))
