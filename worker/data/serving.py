"""The data port: sends values to other workers and to clients that ask for them.

Copies that came packed and small values of plain builtin types are packed on the loop. All other
values are pickled on a few threads, one request at a time on each, because their reductions are
user code: they may take seconds, and may raise anything, which their reader gets. A reader waits
for others only if all threads are busy. Large buffers are not copied.

A result whose pickle would not fit into the worker's memory is not pickled (`packing`): the reader
gets an error in its place. A result whose pickling or sending may kill the worker is noted
(`started`): one that is requested alone, or that is large compared with the memory limit. So a
result of common size is not blamed for another that is served together with it. Those that are
large in this sense are pickled one request at a time, because two might not fit together.

While the connection of a reader is not writable, nothing more is packed for it and its requests
wait. If too many wait, its connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...protocol.errors import (
    CommClosed,
    CommError,
    LocalProtocolError,
    ProtocolError,
    StuckPeer,
    UnpicklableResult,
)
from ...protocol.net.connection import Connection, settle_unknown
from ...protocol.trust.security import Security, generate_certificate
from ...protocol.wire.address import parse_address
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    ActorCalls,
    ActorResultsTaken,
    FetchKeys,
    GetData,
    KeysData,
    Put,
    Unsupported,
)
from ...protocol.wire.payload import Blob, blob_nbytes
from ..slots.started import N_SERVING, StartedRecord
from . import putting
from .packing import error_blob, is_large

if TYPE_CHECKING:
    from ..slots.activity import Transfers
    from ..slots.executor import TaskExecutor

logger = logging.getLogger("weft.worker")

#: Requests for up to this many bytes of plain values are answered by the loop itself.
_ON_LOOP_BYTES = 64 << 10

#: Most bytes of the requests that wait for one reader (workers and clients have far fewer).
_MAX_WAITING_BYTES = 64 << 20
#: Rough cost of a key or a request in addition to its text.
_ITEM_BYTES = 64


class _DataReader:
    """The requests of one connection that were not answered yet, in order."""

    __slots__ = ("is_busy", "nbytes", "requests")

    def __init__(self) -> None:
        self.requests: deque[tuple[int, list[str]]] = deque()
        #: Rough size of `requests`.
        self.nbytes = 0
        #: A thread packs for it.
        self.is_busy = False


@dataclasses.dataclass(slots=True)
class _Packing:
    """The results that a thread is to pickle for one request."""

    #: key, attempt and nbytes of each
    found: list[tuple[str, int, int]]
    #: in the record of what was started
    place: int
    #: no answer is made of it
    is_given_up: bool = False


def _request_nbytes(keys: list[str]) -> int:
    return _ITEM_BYTES * (len(keys) + 1) + sum(map(len, keys))


class DataServer:
    """Answers what comes over the connections to the data port."""

    def __init__(
        self, executor: TaskExecutor, transfers: Transfers, started: StartedRecord | None = None
    ) -> None:
        """Serve the values of `executor`; note in `started` the attempt whose result is served."""
        self._actors = executor.context.actors
        self._executor = executor
        self._transfers = transfers
        self._started = started
        self._threads: ThreadPoolExecutor | None = None
        #: One turn for each thread, and one for all requests for large results.
        self._turns = asyncio.Semaphore(N_SERVING)
        self._turn_of_large = asyncio.Lock()
        #: The places in `started` at which no result is noted.
        self._places = list(range(N_SERVING))
        #: {place: the connection on which the result goes out that is noted there}, in order.
        self._sending: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: {connection: its waiting requests}; only connections that have some.
        self._readers: dict[Connection, _DataReader] = {}

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in settle_unknown(connection, messages):
            if isinstance(message, GetData):
                self.serve(connection, message.request, message.keys)
            elif isinstance(message, Put):
                putting.answer(self._executor, connection, message)
            elif isinstance(message, ActorCalls) and self._actors is not None:
                self._actors.on_calls(connection, message)
            elif isinstance(message, ActorResultsTaken) and self._actors is not None:
                self._actors.on_taken(connection, message)
            elif not isinstance(message, Unsupported):
                logger.warning(
                    "%s sent %s to the data port, which handles only GetData, Put, ActorCalls and "
                    "ActorResultsTaken",
                    connection.peer_address,
                    type(message).__name__,
                )
                connection.abort()
                return

    def on_relayed(self, connection: Connection, message: FetchKeys | Put) -> None:
        """Do for the scheduler what a client could not ask for here."""
        if isinstance(message, Put):
            putting.take_values(self._executor, message)
        else:
            self.serve(connection, message.request, message.keys)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`: answer requests that had to wait."""
        self._sent(connection)
        if self._actors is not None:
            self._actors.on_writable(connection)
        reader = self._readers.get(connection)
        if reader is not None:
            self._go_on(connection, reader)

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._sent(connection)
        if self._actors is not None:
            self._actors.on_closed(connection)
        self._readers.pop(connection, None)

    def serve(self, connection: Connection, request: int, keys: list[str]) -> None:
        """Send a `KeysData` with those of `keys` that are here, once the connection is writable."""
        reader = self._readers.get(connection)
        if reader is None:
            reader = self._readers[connection] = _DataReader()
        reader.requests.append((request, keys))
        reader.nbytes += _request_nbytes(keys)
        self._go_on(connection, reader)
        if reader.nbytes > _MAX_WAITING_BYTES:
            text = f"it sends requests and does not read: {len(reader.requests)} answers wait"
            connection.fail(StuckPeer(text, connection.peer_address))

    def _go_on(self, connection: Connection, reader: _DataReader) -> None:
        while reader.requests and connection.writable and not reader.is_busy:
            request, keys = reader.requests.popleft()
            reader.nbytes -= _request_nbytes(keys)
            found = self._executor.lookup(keys)
            packed = self._pack_plain(found)
            if packed is not None:
                self._answer(connection, request, keys, packed)
                continue
            reader.is_busy = True
            task = asyncio.get_running_loop().create_task(
                self._serve_large(connection, reader, request, keys, found)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not reader.requests and not reader.is_busy:
            self._readers.pop(connection, None)

    async def close(self) -> None:
        """Stop answering."""
        self._started = None  # it is closed soon, and the thread may go on for a while
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve_large(
        self,
        connection: Connection,
        reader: _DataReader,
        request: int,
        keys: list[str],
        found: list[tuple[str, int, int]],
    ) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(N_SERVING, "weft-data")
        limit = self._executor.store.memory_limit
        has_large = any(is_large(nbytes, limit) for _, _, nbytes in found)
        async with self._turn_of_large if has_large else contextlib.nullcontext(), self._turns:
            # At most N_SERVING - 1 others are being pickled. If all places are noted, the oldest
            # reader that has not read its result yet loses its note.
            place = self._places.pop() if self._places else next(iter(self._sending))
            self._sending.pop(place, None)
            packing = _Packing(found, place)
            try:
                future = self._threads.submit(self._pack, packing)
            except RuntimeError as error:  # the system starts no thread: too many, or no memory
                packing.is_given_up = True  # a thread that is free later may still find it
                self._places.append(place)
                logger.warning("cannot send %d keys: %s", len(keys), error)
                connection.fail(CommClosed(f"the worker cannot start a thread: {error}"))
                return
            packed = await asyncio.wrap_future(future)
            self._sending[place] = connection
        self._answer(connection, request, keys, packed)
        if connection.writable or connection.closed:
            self._sent(connection)
        reader.is_busy = False
        self._go_on(connection, reader)

    def _pack_plain(self, found: list[tuple[str, int, int]]) -> dict[str, Blob] | None:
        """Return the pickles of small values; None if a thread has to make them."""
        if sum(nbytes for _, _, nbytes in found) > _ON_LOOP_BYTES:
            return None
        packed = {}
        for key, attempt, _ in found:
            blob = self._executor.store.pack_plain(attempt, key)
            if blob is None:
                return None
            packed[key] = blob
        return packed

    def _pack(self, packing: _Packing) -> dict[str, Blob]:
        packed: dict[str, Blob] = {}
        store = self._executor.store
        found = packing.found
        for key, attempt, nbytes in found:
            if packing.is_given_up:
                break
            is_noted = len(found) == 1 or is_large(nbytes, store.memory_limit)
            self._note(packing.place, attempt if is_noted else 0)
            blob = store.pack(attempt, key)
            if blob is not None:  # it may have been dropped since it was found
                packed[key] = blob
        return packed

    def _note(self, place: int, attempt: int) -> None:
        started = self._started
        if started is not None:
            started.note_serving(place, attempt)

    def _sent(self, connection: Connection) -> None:
        for place in [place for place, of in self._sending.items() if of is connection]:
            del self._sending[place]
            self._note(place, 0)
            self._places.append(place)

    def _answer(
        self, connection: Connection, request: int, keys: list[str], packed: dict[str, Blob]
    ) -> None:
        missing = [key for key in keys if key not in packed]
        transfers = self._transfers
        transfers.n[1] += 1
        transfers.n_failed[1] += bool(missing)
        transfers.nbytes[1] += sum(map(blob_nbytes, packed.values()))

        def data(results: list[Blob | None]) -> list[Message]:
            return [KeysData(request=request, keys=list(packed), results=results, missing=missing)]

        try:
            connection.send(data(list(packed.values())))
        except LocalProtocolError as error:
            # More than a frame can hold. Not "missing": the next attempt would end the same way.
            logger.warning("cannot send %d keys: %s", len(packed), error)
            connection.send(
                data([error_blob(UnpicklableResult(key, "value", str(error))) for key in packed])
            )


def for_listening(security: Security, address: str) -> Security:
    """Return the security of a data port: for TLS a certificate and key are made if need be."""
    if parse_address(address).scheme != "tls" or (
        security.certificate_pem is not None and security.private_key_pem is not None
    ):
        return security
    assert security.cluster_id is not None
    certificate, key = generate_certificate(security.cluster_id)
    return dataclasses.replace(security, certificate_pem=certificate, private_key_pem=key)
