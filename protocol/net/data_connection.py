"""Connections to workers' data ports: one per worker, opened with the first request and kept.

Workers fetch inputs from each other over these connections; clients fetch large results, and put
large arguments. A request (`GetData`, `GetParts`, `GetPromised` or `Put`) is answered by exactly
one call: `on_answer` with the answer, or `on_failed` when the worker cannot be reached, closes the
connection, breaks the protocol, is silent for too long or is given up by the caller. Requests made
before the connection is open are sent when it opens.

**Large values of this host are not sent.** With a request goes what stands for this host
(`host_files`). A worker of the same host answers with names of files, which are mapped here; values
that lie in such files are put in the same way. If that fails, the data is sent as to any host, and
for this worker nothing else is tried any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..errors import CommError, LocalProtocolError, ProtocolError, WeftError
from ..host.host_files import FileGone, host_id
from ..trust.security import Security
from ..values.host_blobs import HostBlob, read_reference
from ..wire.message import Message
from ..wire.messages import (
    GetData,
    GetParts,
    GetPromised,
    KeysData,
    Put,
    PutDone,
    PutFiles,
    Unsupported,
)
from ..wire.payload import Blob
from ..wire.roles import Role
from ..wire.session import Silence
from .connection import Connection, Handler, settle_unknown

Request: TypeAlias = GetData | GetParts | GetPromised | Put

_log: Final = logging.getLogger("weft.data")

#: A worker that owes an answer and has sent nothing for this long is given up. The time is long,
#: because a worker whose task holds the interpreter lock answers late, and no other way to it is
#: faster.
_SILENCE_S: Final = 60.0
_LOOKS: Final = 12
#: Why a request has failed that the worker does not know.
NOT_KNOWN_THERE: Final = "its version of weft does not know the request; install the same version"

#: A connection without open requests is closed after this time.
_IDLE_S: Final = 60.0
#: Number of connections without open requests that are kept; beyond that the least recently used is
#: closed.
_MAX_CONNECTIONS: Final = 128


async def connect_to_data_port(
    address: str, security: Security, handler: Handler, timeout_s: float
) -> Connection:
    """Connect to the data port of a worker.

    Raises:
        WeftError: see `transport.connect`.
    """
    # Imported here, because it takes milliseconds and most clients fetch nothing directly.
    from .transport import connect

    # A worker's data port shows a certificate that the worker made, so there is none to pin; the
    # proof of the token is bound to the certificate that was shown.
    return await connect(
        address,
        role=Role.PEER,
        server_role=Role.WORKER_DATA,
        security=dataclasses.replace(security, certificate_pem=None, private_key_pem=None),
        handler=handler,
        timeout_s=timeout_s,
    )


class _DataConnection:
    """The connection to one worker, until it is closed."""

    def __init__(self, owner: DataConnections, address: str) -> None:
        self.address = address
        self._owner = owner
        #: {request: message} of the open requests: sent, or to be sent once connected.
        self.asked: dict[int, Request] = {}
        self._connection: Connection | None = None
        #: Files of its host are mapped here, as far as known.
        self.maps = not address.startswith("inproc:") and bool(host_id())
        self._silence = Silence(_LOOKS)
        #: For the next check while requests are open, else for the end of the idle time.
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        owner = self._owner
        try:
            connection = await connect_to_data_port(
                self.address, owner._security(), self, owner._connect_timeout_s
            )
        except WeftError as error:
            self._end(str(error))
            return
        self._connection = connection
        if self.asked:
            for message in list(self.asked.values()):
                self._send(connection, message)
        self._watch()

    def ask(self, message: Request) -> None:
        """Send the request now, or as soon as there is a connection."""
        is_first = not self.asked
        self.asked[message.request] = message
        if self._connection is not None:
            self._send(self._connection, message)
            if is_first:
                self._watch()

    def tell(self, message: Message) -> None:
        """Send what gets no answer."""
        if self._connection is not None:
            self._connection.send([message])

    def _send(self, connection: Connection, message: Request) -> None:
        offered: Message = message
        if self.maps:
            offered = _offered(message)
        try:
            connection.send([offered])
        except LocalProtocolError as error:  # larger than a frame can be
            del self.asked[message.request]
            self._owner._on_failed(self.address, message.request, str(error))
            return
        if offered is message and isinstance(message, Put):
            # The connection has the values now; they are only needed until they are sent.
            self.asked[message.request] = Put(
                request=message.request, keys=message.keys, attempts=message.attempts, values=[]
            )

    def _watch(self) -> None:
        """Restart the timer: for answers if requests are open, else for the idle time."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.asked:
            self._timer = self._loop.call_later(_IDLE_S, self.close, "it was not used")
        else:
            self._silence = Silence(_LOOKS)
            self._look()

    def _look(self) -> None:
        assert self._connection is not None
        n_received = self._connection.bytes_in + self._connection.frames_in
        # A worker that still takes a long message is not silent.
        is_silent = self._silence.look(
            n_received + self._connection.bytes_out - self._connection.unsent
        )
        # A worker in this process cannot be unreachable while this code runs.
        if is_silent and not self.address.startswith("inproc:"):
            self.close(f"no answer within {_SILENCE_S:g} s")
        else:
            self._timer = self._loop.call_later(_SILENCE_S / _LOOKS, self._look)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in settle_unknown(connection, messages):
            if (
                not isinstance(message, (KeysData, PutDone, Unsupported))
                or message.request not in self.asked
            ):
                _log.warning(
                    "%s sent data that was not requested",
                    self.address,
                    extra={"code": "protocol-error"},
                )
                self.close("it sent data that was not requested")
                return
            if not self._is_whole(connection, message):
                continue
            del self.asked[message.request]
            if not self.asked:
                self._watch()
            if isinstance(message, Unsupported):
                self._owner._on_failed(self.address, message.request, NOT_KNOWN_THERE)
            else:
                self._owner._on_answer(self.address, message)

    def _is_whole(self, connection: Connection, message: KeysData | PutDone | Unsupported) -> bool:
        """Map the files of an answer; ask again without them if that fails, and return False."""
        if isinstance(message, KeysData):
            if not message.files:
                return True
            is_whole = True
            for i, file in enumerate(message.files):
                if file is not None:
                    blob = self._read(file)
                    message.results[i] = blob
                    is_whole &= blob is not None
        else:
            request = self.asked[message.request]
            # Those of what was sent are given up (`_send`): these lie in files.
            is_whole = not (isinstance(request, Put) and request.values)
            is_whole |= isinstance(message, PutDone) and message.is_taken
            if not is_whole:
                self.maps = False
        if not is_whole:
            maps, self.maps = self.maps, False
            self._send(connection, self.asked[message.request])
            self.maps = maps
        return is_whole

    def _read(self, file: Blob) -> HostBlob | None:
        try:
            return read_reference(file, is_kept=self._owner._keeps_files)
        except FileGone:
            pass  # the worker has dropped the value, or moved it, since
        except OSError as error:
            _log.debug("files of worker %s cannot be mapped here: %s", self.address, error)
            self.maps = False
        return None

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; requests are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._end("the connection was closed" if error is None else str(error))

    def close(self, reason: str) -> None:
        """Close the connection, or stop connecting; open requests fail."""
        self.connecting.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        owner = self._owner
        if owner._by_address.get(self.address) is self:
            del owner._by_address[self.address]
        asked, self.asked = self.asked, {}
        for request in () if owner._is_closed else asked:
            owner._on_failed(self.address, request, reason)


def _offered(message: Request) -> Message:
    """Return a request that has files of this host in the place of values."""
    if isinstance(message, (GetParts, GetPromised)):
        return message
    if isinstance(message, GetData):
        return GetData(
            request=message.request, keys=message.keys, address=message.address, host=host_id()
        )
    files: list[Blob | None] = []
    for value in message.values:
        reference = value.reference if isinstance(value, HostBlob) else None
        if reference is None:
            return message
        files.append(reference.packed())
    return PutFiles(
        request=message.request,
        keys=message.keys,
        attempts=message.attempts,
        files=files,
        host=host_id(),
    )


class DataConnections:
    """All connections of one process. For the loop's thread only."""

    def __init__(
        self,
        security: Callable[[], Security],
        on_answer: Callable[[str, Any], None],
        on_failed: Callable[[str, int, str], None],
        *,
        connect_timeout_s: float,
        keeps_files: bool = False,
    ) -> None:
        """Prepare; a connection is opened with the first request to its worker.

        Args:
            security: returns the token and certificate at the time of each connection.
            on_answer: called with the address and the answer: `KeysData` or `PutDone`.
            on_failed: called with the address, the request and the reason.
            connect_timeout_s: for one connection, including its handshake.
            keeps_files: keep those of values open, to pass them on.
        """
        self._security = security
        self._keeps_files = keeps_files
        self._on_answer = on_answer
        self._on_failed = on_failed
        self._connect_timeout_s = connect_timeout_s
        #: {address: connection}, the most recently used one last.
        self._by_address: dict[str, _DataConnection] = {}
        self._is_closed = False

    def ask(self, address: str, message: Request) -> None:
        """Send a request to the worker at `address`; do nothing once closed."""
        if self._is_closed:
            return
        connection = self._by_address.pop(address, None)
        if connection is None:
            self._make_room()
            connection = _DataConnection(self, address)
        self._by_address[address] = connection
        connection.ask(message)

    def tell(self, address: str, message: Message) -> None:
        """Send what gets no answer to the worker at `address`, if there is a connection to it."""
        connection = self._by_address.get(address)
        if connection is not None:
            connection.tell(message)

    def give_up(self, address: str, reason: str) -> None:
        """Close the connection to the worker at `address`, if there is one; open requests fail.

        Called for a worker that the scheduler has lost: a suspended process keeps its connections
        open, so that its requests would otherwise fail only after the time for silence.
        """
        connection = self._by_address.get(address)
        if connection is not None:
            connection.close(reason)

    def _make_room(self) -> None:
        if len(self._by_address) >= _MAX_CONNECTIONS:
            unused = next(
                (connection for connection in self._by_address.values() if not connection.asked),
                None,
            )
            if unused is not None:
                unused.close("it was not used")

    async def close(self) -> None:
        """Close all connections; neither callback is called any more."""
        self._is_closed = True
        connections = list(self._by_address.values())
        for connection in connections:
            connection.close("this process stops")
        await asyncio.gather(
            *(connection.connecting for connection in connections), return_exceptions=True
        )
