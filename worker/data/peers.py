"""Fetches values from other workers.

Turns the core's `Fetch` into `GetData`, and each answer or failure of a connection into one
`CopiesFetched` or `CopiesNotFetched`. Values that arrive go into the store as they are, still
packed.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from ...protocol.errors import UnsupportedRequest
from ...protocol.net.data_connection import NOT_KNOWN_THERE, DataConnections
from ...protocol.trust.security import Security
from ...protocol.wire.address import parse_address
from ...protocol.wire.messages import DataTaken, GetData, GetParts, GetPromised, KeysData
from ...protocol.wire.payload import Blob, blob_nbytes
from ..core.events import (
    CopiesElsewhere,
    CopiesFetched,
    CopiesNotFetched,
    EndFetch,
    Fetch,
    WorkerAction,
    WorkerEvent,
)
from ..core.features.promises import AnswerPromises, AskPromised, PromiseEnded
from ..reaching import unreached
from .core.failed_fetches import FetchFailureLog
from .core.sending import LARGE_BYTES, MEASURED_BYTES
from .parts_lost import PartsLost
from .store import Store

if TYPE_CHECKING:
    from ..slots.activity import Transfers

__all__ = ["Peers"]

_log: Final = logging.getLogger("weft.worker")

_CONNECT_TIMEOUT_S: Final = 10.0
#: Above all requests of the core.
_FIRST_PARTS: Final = 1 << 40
_LEVELS: Final = {"INFO": logging.INFO, "WARNING": logging.WARNING}


class Peers:
    """Carries out the core's `Fetch` and `EndFetch`. For the loop's thread only."""

    def __init__(
        self,
        security: Security,
        address: str,
        store: Store,
        transfers: Transfers,
        handle: Callable[[WorkerEvent], object],
        answer_promises: Callable[[list[int]], None],
    ) -> None:
        """Fetch for the worker whose data port is at `address`."""
        self._security = security
        self._address = address
        self._store = store
        self._transfers = transfers
        self._handle = handle
        self._answer_promises = answer_promises
        self._failed = FetchFailureLog()
        #: {request: (fetch, when)} of the requests that were not answered.
        self._asked: dict[int, tuple[Fetch, float]] = {}
        #: {request: (when, its answer)} of the open requests for parts.
        self._parts: dict[int, tuple[float, Future[Blob]]] = {}
        self._last_parts = _FIRST_PARTS
        #: {request: what was asked for} of the promises that were not answered.
        self._promised: dict[int, AskPromised] = {}
        self._is_closed = False
        self._connections = DataConnections(
            lambda: self._security,
            self._on_answer,
            self._on_failed,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            keeps_files=True,
        )

    def belong_to(self, token: bytes, cluster_id: bytes) -> None:
        """Connect to peers of this cluster from now on; connections that are open stay."""
        self._security = dataclasses.replace(self._security, token=token, cluster_id=cluster_id)

    async def reach(self, addresses: list[str]) -> dict[str, list[str]]:
        """Try the way to other workers; see `reaching.unreached`."""
        return await unreached(addresses, self._security)

    def do(self, action: WorkerAction) -> None:
        """Carry out an action of the core: it is about requests to peers."""
        if isinstance(action, EndFetch):
            self._connections.give_up(action.holder, "the scheduler has lost this worker")
        elif isinstance(action, AnswerPromises):
            self._answer_promises(action.asked)
        elif isinstance(action, AskPromised):
            self._promised[action.request] = action
            self._transfers.n[0] += 1
            asking_early = GetPromised(
                request=action.request, key=action.key, attempt=action.attempt
            )
            self._connections.ask(action.holder, asking_early)
        else:
            assert isinstance(action, Fetch)
            self._asked[action.request] = action, time.monotonic()
            self._transfers.n[0] += 1
            is_limited = action.nbytes >= LARGE_BYTES and self._is_elsewhere(action.holder)
            address = self._address if is_limited else ""
            asking = GetData(request=action.request, keys=action.keys, address=address)
            self._connections.ask(action.holder, asking)

    def _is_elsewhere(self, holder: str) -> bool:
        """Return whether a link to another host brings what that worker sends."""
        there, here = parse_address(holder), parse_address(self._address)
        return there.is_tcp and there.host != here.host

    def ask_parts(
        self,
        holder: str,
        attempts: list[int],
        numbers: list[int],
        n_numbers: int,
        answer: Future[Blob],
    ) -> None:
        """Request parts of what a holder has.

        `answer` gets their pickle; `PartsLost`, or `UnsupportedRequest`.
        """
        if self._is_closed:
            answer.set_exception(PartsLost("this worker stops"))
            return
        self._last_parts += 1
        self._parts[self._last_parts] = time.monotonic(), answer
        self._transfers.n[0] += 1
        message = GetParts(
            request=self._last_parts, attempts=attempts, numbers=numbers, n_numbers=n_numbers
        )
        self._connections.ask(holder, message)

    async def close(self) -> None:
        """Close all connections; the core gets no more events."""
        self._is_closed = True
        await self._connections.close()
        for _, answer in self._parts.values():
            answer.set_exception(PartsLost("this worker stops"))
        self._parts.clear()

    def _on_parts(self, message: KeysData) -> None:
        since, answer = self._parts.pop(message.request)
        transfers = self._transfers
        transfers.seconds.add(int((time.monotonic() - since) * 1e6))
        transfers.n_failed[0] += bool(message.missing)
        blob = message.results[0] if len(message.results) == 1 else None
        if blob is None:
            attempts = [int(text) for text in message.missing if text.isdigit()]
            answer.set_exception(PartsLost("it does not have them", attempts))
        else:
            transfers.nbytes[0] += blob_nbytes(blob)
            answer.set_result(blob)

    def _on_promised(self, message: KeysData) -> None:
        asked = self._promised.pop(message.request)
        blob = message.results[0] if message.keys == [asked.key] else None
        nbytes = None if blob is None else self._store.put_packed(asked.attempt, blob)
        self._transfers.nbytes[0] += nbytes or 0
        self._handle(PromiseEnded(asked.request, nbytes))

    def _on_answer(self, holder: str, message: KeysData) -> None:
        self._note(*self._failed.on_answer(holder))
        if message.request in self._parts:
            self._on_parts(message)
            return
        if message.request in self._promised:
            self._on_promised(message)
            return
        fetch, since = self._asked.pop(message.request)
        if message.elsewhere:
            self._handle(CopiesElsewhere(fetch.holder, fetch.request, message.elsewhere))
            return
        attempts = dict(zip(fetch.keys, fetch.attempts, strict=True))
        keys, nbytes = [], []
        for key, blob in zip(message.keys, message.results, strict=True):
            attempt = attempts.get(key)
            if attempt is None or blob is None:  # not asked for, sent twice, or not there
                continue
            del attempts[key]
            keys.append(key)
            nbytes.append(self._store.put_packed(attempt, blob))
        if self._store.nbytes > self._store.watched:
            self._store.note_full()
        transfers = self._transfers
        duration_us = int((time.monotonic() - since) * 1e6)
        transfers.seconds.add(duration_us)
        transfers.nbytes[0] += sum(nbytes)
        if sum(nbytes) >= MEASURED_BYTES:
            transfers.large_nbytes += sum(nbytes)
            transfers.large_us += max(duration_us - message.waited_us, 0)
        transfers.n_failed[0] += bool(attempts)
        self._handle(CopiesFetched(fetch.holder, fetch.request, keys, nbytes))
        if message.acknowledge:
            self._connections.tell(holder, DataTaken(request=message.request))

    def _on_failed(self, holder: str, request: int, reason: str) -> None:
        self._transfers.n_failed[0] += 1
        self._note(*self._failed.on_failed(holder, reason, time.monotonic()))
        if request in self._parts:
            _, answer = self._parts.pop(request)
            error: Exception = PartsLost(reason)
            if reason == NOT_KNOWN_THERE:
                error = UnsupportedRequest(
                    "requests for parts of results", f"the worker at {holder}"
                )
            answer.set_exception(error)
            return
        if self._promised.pop(request, None) is not None:
            is_unreachable = reason != NOT_KNOWN_THERE
            self._handle(PromiseEnded(request, None, is_unreachable=is_unreachable))
            return
        del self._asked[request]
        self._handle(CopiesNotFetched(holder, request))

    @staticmethod
    def _note(level: str, text: str) -> None:
        if text:
            _log.log(_LEVELS[level], "%s", text, extra={"code": "fetch-failed"})
