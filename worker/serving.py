"""The data port: gives values to whoever asks, peers and clients alike.

Small values are pickled on the loop; for larger ones, or more of them, that is left to a thread, so
that a value which takes seconds to pickle holds up nobody but its reader. Large buffers are not
copied.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from ..protocol.connection import Connection
from ..protocol.errors import CommError, LocalProtocolError, ProtocolError, UnpicklableResult
from ..protocol.message import Message
from ..protocol.messages import GetData, KeysData
from ..protocol.payload import Blob
from .executor import Executor
from .values import error_blob, pack_for_peer

logger = logging.getLogger("weft.worker")

#: Requests for up to this many bytes, as far as known, are answered by the loop itself.
_ON_LOOP_BYTES = 64 << 10

_NOT_THERE = object()


class DataServer:
    """Answers `GetData`. The handler of all connections to the data port."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.n_requests = 0

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in messages:
            if isinstance(message, GetData):
                self.serve(connection, message.request, message.keys)
            else:
                logger.warning(
                    "%s sent %s to the data port", connection.peer_address, type(message).__name__
                )
                connection.abort()
                return

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`. A peer asks for no more than it can take; nothing is held back here."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""

    def serve(self, connection: Connection, request: int, keys: list[str]) -> None:
        """Send a `KeysData` with what is here of `keys`."""
        self.n_requests += 1
        found = self._executor.lookup(keys)
        if sum(nbytes for _, _, nbytes in found) <= _ON_LOOP_BYTES:
            self._answer(connection, request, keys, self._pack(found))
            return
        task = asyncio.get_running_loop().create_task(
            self._serve_large(connection, request, keys, found)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is being answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve_large(
        self,
        connection: Connection,
        request: int,
        keys: list[str],
        found: list[tuple[str, int, int]],
    ) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "weft-data")
        packed = await asyncio.get_running_loop().run_in_executor(self._threads, self._pack, found)
        self._answer(connection, request, keys, packed)

    def _pack(self, found: list[tuple[str, int, int]]) -> dict[str, Blob]:
        packed = {}
        for key, attempt, _ in found:
            value = self._executor.store.get(attempt, _NOT_THERE)
            if value is not _NOT_THERE:  # it may have been dropped since it was found
                packed[key] = pack_for_peer(value, key)
        return packed

    def _answer(
        self, connection: Connection, request: int, keys: list[str], packed: dict[str, Blob]
    ) -> None:
        missing = [key for key in keys if key not in packed]

        def data(results: list[Blob | None]) -> list[Message]:
            return [KeysData(request=request, keys=list(packed), results=results, missing=missing)]

        try:
            connection.send(data(list(packed.values())))
        except LocalProtocolError as error:
            # Beyond what a frame may hold. Not "missing": the same would come of the next attempt.
            logger.warning("cannot send %d keys: %s", len(packed), error)
            connection.send(
                data([error_blob(UnpicklableResult(key, "value", str(error))) for key in packed])
            )
