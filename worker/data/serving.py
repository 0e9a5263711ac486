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

How many large answers go out at once, and which of them another worker gives in its place, is
decided in `core/sending.py`.

While the connection of a reader is not writable, nothing more is packed for it and its requests
wait. If too many wait, its connection is closed.

A reader on this host gets large values as files that it maps (`Store.pack_near`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...protocol.errors import (
    CommClosed,
    CommError,
    LocalProtocolError,
    ProtocolError,
    StuckPeer,
    UnpicklableResult,
)
from ...protocol.host.host_files import host_id
from ...protocol.net.connection import Connection, settle_unknown
from ...protocol.trust.security import Security, generate_certificate
from ...protocol.values.host_blobs import FileReference
from ...protocol.wire.address import parse_address
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    ActorCalls,
    ActorResultsTaken,
    DataTaken,
    FetchKeys,
    GetData,
    GetParts,
    GetPromised,
    KeysData,
    Put,
    PutFiles,
    Unsupported,
)
from ...protocol.wire.payload import Blob, blob_nbytes
from ..slots.started import N_SERVING, StartedRecord
from . import putting
from .core.sending import LARGE_BYTES, LargeRequest, Sending
from .packing import error_blob, is_large
from .parts import pack_parts
from .promised import PromisedServing

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
        self.requests: deque[GetData | GetParts | FetchKeys] = deque()
        #: Rough size of `requests`.
        self.nbytes = 0
        #: A thread packs for it, or its first request waits until others are answered.
        self.is_busy = False


@dataclasses.dataclass(slots=True)
class _Packing:
    """The results that a thread is to pickle for one request."""

    #: key, attempt and nbytes of each
    found: list[tuple[str, int, int]]
    #: in the record of what was started
    place: int
    #: for a process of this host
    is_near: bool
    #: no answer is made of it
    is_given_up: bool = False


def _is_near(message: GetData | FetchKeys) -> bool:
    """Return whether the reader is on this host, and maps files of its processes."""
    return isinstance(message, GetData) and message.host != "" and message.host == host_id()


def _request_nbytes(message: GetData | GetParts | FetchKeys) -> int:
    if isinstance(message, GetParts):
        return _ITEM_BYTES + 8 * (len(message.attempts) + len(message.numbers))
    return _ITEM_BYTES * (len(message.keys) + 1) + sum(map(len, message.keys))


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
        self._promised = PromisedServing(executor, self.serve)
        self._large = Sending()
        #: Calls `_look_at_large` when that is due.
        self._timer: asyncio.TimerHandle | None = None

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in settle_unknown(connection, messages):
            if isinstance(message, GetData):
                self.serve(connection, message)
            elif isinstance(message, GetPromised):
                self._promised.ask(connection, message)
            elif isinstance(message, DataTaken):
                self._on_taken(connection, message)
            elif isinstance(message, GetParts):
                self.serve(connection, message)
            elif isinstance(message, Put):
                putting.answer(self._executor, connection, message)
            elif isinstance(message, PutFiles):
                putting.answer_files(self._executor, connection, message)
            elif isinstance(message, ActorCalls) and self._actors is not None:
                self._actors.on_calls(connection, message)
            elif isinstance(message, ActorResultsTaken) and self._actors is not None:
                self._actors.on_taken(connection, message)
            elif not isinstance(message, Unsupported):
                logger.warning(
                    "%s sent %s to the data port, which handles only GetData, GetParts, "
                    "GetPromised, DataTaken, Put, PutFiles, ActorCalls and ActorResultsTaken",
                    connection.peer_address,
                    type(message).__name__,
                    extra={"code": "protocol-error"},
                )
                connection.abort()
                return

    def on_relayed(self, connection: Connection, message: FetchKeys | Put) -> None:
        """Do for the scheduler what a client could not ask for here."""
        if isinstance(message, Put):
            putting.take_values(self._executor, message)
        else:
            self.serve(connection, message)

    def answer_promises(self, asked: list[int]) -> None:
        """Answer requests for results of attempts that have ended."""
        self._promised.answer(asked)

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
        self._promised.closed(connection)
        self._large.closed(connection)
        self._look_at_large()

    def serve(self, connection: Connection, message: GetData | GetParts | FetchKeys) -> None:
        """Send a `KeysData` with what is here of all this, once the connection is writable."""
        reader = self._readers.get(connection)
        if reader is None:
            reader = self._readers[connection] = _DataReader()
        reader.requests.append(message)
        reader.nbytes += _request_nbytes(message)
        self._go_on(connection, reader)
        if reader.nbytes > _MAX_WAITING_BYTES:
            text = f"it sends requests and does not read: {len(reader.requests)} answers wait"
            connection.fail(StuckPeer(text, connection.peer_address))

    def _go_on(self, connection: Connection, reader: _DataReader) -> None:
        while reader.requests and connection.writable and not reader.is_busy:
            message = reader.requests.popleft()
            reader.nbytes -= _request_nbytes(message)
            if isinstance(message, GetParts):
                reader.is_busy = True
                self._start(self._serve_parts(connection, message))
                continue
            keys = message.keys
            found = self._executor.lookup(keys)
            packed = self._pack_plain(found)
            address = message.address if isinstance(message, GetData) else ""
            asked = LargeRequest(connection, message.request, tuple(keys), 0, address, 0.0)
            if packed is not None:
                self._answer(asked, packed)
                continue
            reader.is_busy = True
            is_near = _is_near(message)
            asked.nbytes = sum(nbytes for _, _, nbytes in found)
            if is_near or asked.nbytes < LARGE_BYTES or not address:
                self._begin(connection, asked, found, is_near=is_near)
                continue
            asked.since = now = asyncio.get_running_loop().time()
            if self._large.ask(asked, now):
                self._begin(connection, asked, found)
            else:
                self._look_at_large()
        if not reader.requests and not reader.is_busy:
            self._readers.pop(connection, None)

    def _begin(
        self,
        connection: Connection,
        asked: LargeRequest,
        found: list[tuple[str, int, int]],
        *,
        is_near: bool = False,
    ) -> None:
        """Let a thread pack what is asked for."""
        self._start(self._serve_large(connection, asked, found, is_near))

    def _start(self, serving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, connection: Connection) -> None:
        """Go on with the requests of a reader, the first of which is answered."""
        reader = self._readers.get(connection)
        if reader is not None:
            reader.is_busy = False
            self._go_on(connection, reader)

    def _on_taken(self, connection: Connection, message: DataTaken) -> None:
        for asked, address in self._large.taken(connection, message.request):
            self._send(asked, {}, elsewhere=address)
            assert isinstance(asked.reader, Connection)
            self._end(asked.reader)
        self._look_at_large()

    def _look_at_large(self) -> None:
        """Answer the large requests whose turn it is; look again when one has waited for long."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._large.waiting:
            return
        for asked in self._large.next(loop.time()):
            assert isinstance(asked.reader, Connection)
            self._begin(asked.reader, asked, self._executor.lookup([*asked.keys]))
        if self._large.waiting:
            self._timer = loop.call_at(self._large.next_look(), self._look_at_large)

    async def _serve_parts(self, connection: Connection, message: GetParts) -> None:
        async with self._turns:
            try:
                name = self._executor.context.name
                future = self._pool().submit(pack_parts, self._executor.store, message, name)
            except RuntimeError as error:  # the system starts no thread
                connection.fail(CommClosed(f"the worker cannot start a thread: {error}"))
                return
            answer = await asyncio.wrap_future(future)
        transfers = self._transfers
        transfers.n[1] += 1
        transfers.n_failed[1] += bool(answer.missing)
        transfers.nbytes[1] += sum(blob_nbytes(blob) for blob in answer.results if blob is not None)
        try:
            connection.send([answer])
        except LocalProtocolError as error:
            blob = error_blob(UnpicklableResult("parts", "value", str(error)))
            connection.send([dataclasses.replace(answer, results=[blob])])
        self._end(connection)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(N_SERVING, "weft-data")
        return self._threads

    async def close(self) -> None:
        """Stop answering."""
        self._started = None  # it is closed soon, and the thread may go on for a while
        self._promised.close()
        self._large.waiting.clear()
        self._look_at_large()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve_large(
        self,
        connection: Connection,
        asked: LargeRequest,
        found: list[tuple[str, int, int]],
        is_near: bool,
    ) -> None:
        threads = self._pool()
        limit = self._executor.store.memory_limit
        has_large = any(is_large(nbytes, limit) for _, _, nbytes in found)
        async with self._turn_of_large if has_large else contextlib.nullcontext(), self._turns:
            # At most N_SERVING - 1 others are being pickled. If all places are noted, the oldest
            # reader that has not read its result yet loses its note.
            place = self._places.pop() if self._places else next(iter(self._sending))
            self._sending.pop(place, None)
            packing = _Packing(found, place, is_near)
            try:
                future = threads.submit(self._pack, packing)
            except RuntimeError as error:  # the system starts no thread: too many, or no memory
                packing.is_given_up = True  # a thread that is free later may still find it
                self._places.append(place)
                logger.warning(
                    "cannot send %d keys: %s",
                    len(asked.keys),
                    error,
                    extra={"code": "thread-missing"},
                )
                connection.fail(CommClosed(f"the worker cannot start a thread: {error}"))
                return
            packed = await asyncio.wrap_future(future)
            self._sending[place] = connection
        self._answer(asked, packed)
        if connection.writable or connection.closed:
            self._sent(connection)
        self._end(connection)

    def _pack_plain(
        self, found: list[tuple[str, int, int]]
    ) -> dict[str, Blob | FileReference] | None:
        """Return the pickles of small values; None if a thread has to make them."""
        if sum(nbytes for _, _, nbytes in found) > _ON_LOOP_BYTES:
            return None
        packed: dict[str, Blob | FileReference] = {}
        for key, attempt, _ in found:
            blob = self._executor.store.pack_plain(attempt, key)
            if blob is None:
                return None
            packed[key] = blob
        return packed

    def _pack(self, packing: _Packing) -> dict[str, Blob | FileReference]:
        packed: dict[str, Blob | FileReference] = {}
        store = self._executor.store
        found = packing.found
        for key, attempt, nbytes in found:
            if packing.is_given_up:
                break
            is_noted = len(found) == 1 or is_large(nbytes, store.memory_limit)
            self._note(packing.place, attempt if is_noted else 0)
            blob = (store.pack_near if packing.is_near else store.pack)(attempt, key)
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

    def _answer(self, asked: LargeRequest, packed: dict[str, Blob | FileReference]) -> None:
        missing = [key for key in asked.keys if key not in packed]
        if missing and asked in self._large.sent:
            del self._large.sent[asked]
            self._look_at_large()
        transfers = self._transfers
        transfers.n[1] += 1
        transfers.n_failed[1] += bool(missing)
        transfers.nbytes[1] += sum(
            blob.nbytes if isinstance(blob, FileReference) else blob_nbytes(blob)
            for blob in packed.values()
        )
        try:
            self._send(asked, packed, missing)
        except LocalProtocolError as error:
            # More than a frame can hold. Not "missing": the next attempt would end the same way.
            logger.warning(
                "cannot send %d keys: %s", len(packed), error, extra={"code": "message-unsendable"}
            )
            errors = {key: UnpicklableResult(key, "value", str(error)) for key in packed}
            self._send(asked, {key: error_blob(error) for key, error in errors.items()}, missing)

    def _send(
        self,
        asked: LargeRequest,
        packed: Mapping[str, Blob | FileReference],
        missing: list[str] | None = None,
        elsewhere: str = "",
    ) -> None:
        assert isinstance(asked.reader, Connection)
        waited_s = asyncio.get_running_loop().time() - asked.since if asked.since else 0.0
        blobs = packed.values()
        has_files = any(isinstance(blob, FileReference) for blob in blobs)
        asked.reader.send(
            [
                KeysData(
                    request=asked.request,
                    keys=list(packed),
                    results=[None if isinstance(blob, FileReference) else blob for blob in blobs],
                    missing=missing or [],
                    elsewhere=elsewhere,
                    acknowledge=asked in self._large.sent,
                    waited_us=int(waited_s * 1e6),
                    files=[
                        blob.packed() if isinstance(blob, FileReference) else None for blob in blobs
                    ]
                    if has_files
                    else [],
                )
            ]
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
