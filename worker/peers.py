"""Fetching from other workers: one connection a peer, opened when it is needed and kept.

Turns the core's `Fetch` into `GetData`, and answers, silence and closed connections into exactly
one `Fetched` or `FetchFailed` each. What comes goes into the store as it is, still packed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from ..protocol.errors import CommError, ProtocolError, WeftError
from ..protocol.net.connection import Connection
from ..protocol.net.liveness import Silence
from ..protocol.net.transport import connect
from ..protocol.trust.security import Security
from ..protocol.wire.handshake import Role
from ..protocol.wire.message import Message
from ..protocol.wire.messages import GetData, KeysData
from ..protocol.wire.payload import blob_nbytes
from .core.events import Event, Fetch, Fetched, FetchFailed, GiveUp
from .values import Packed

logger = logging.getLogger("weft.worker")

#: A peer that owes an answer and has sent nothing for this long is given up. Generous: a worker
#: whose task holds the GIL answers late, and asking elsewhere does not make it faster.
_SILENCE_S = 60.0
_LOOKS = 12
_CONNECT_TIMEOUT_S = 10.0
#: Connections that are kept open although nothing is asked.
_MAX_IDLE = 128


class Peers:
    """All connections to other workers' data ports."""

    def __init__(
        self,
        security: Security,
        store: dict[int, object],
        handle: Callable[[Event], None],
    ) -> None:
        # A worker's data port shows a certificate of its own, so there is none to pin; the token's
        # proof is bound to the certificate that was shown.
        self._security = dataclasses.replace(security, certificate_pem=None, private_key_pem=None)
        self._store = store
        self._handle = handle
        #: {address: line}. The one that was used last comes last.
        self._lines: dict[str, _Line] = {}
        self._closed = False

    def belong_to(self, token: bytes, cluster_id: bytes) -> None:
        """Go to peers of this cluster from now on; connections that are open stay."""
        self._security = dataclasses.replace(self._security, token=token, cluster_id=cluster_id)

    def do(self, action: Fetch | GiveUp) -> None:
        """Do what the core asks for."""
        if isinstance(action, GiveUp):
            self.give_up(action.holder)
        else:
            self.fetch(action)

    def fetch(self, fetch: Fetch) -> None:
        """Ask a peer, and hand the core an event when the answer is there."""
        line = self._lines.pop(fetch.holder, None)
        if line is None:
            self._close_idle()
            line = _Line(fetch.holder, self)
        self._lines[fetch.holder] = line
        line.ask(fetch)

    def give_up(self, address: str) -> None:
        """End the connection to a worker that the scheduler has lost; what was asked fails."""
        line = self._lines.get(address)
        if line is not None:
            line.end("the scheduler has lost this worker")

    async def close(self) -> None:
        """Close all connections; what was asked fails."""
        self._closed = True
        lines = list(self._lines.values())
        for line in lines:
            line.end("this worker stops")
        await asyncio.gather(*(line.connecting for line in lines), return_exceptions=True)

    def _close_idle(self) -> None:
        if len(self._lines) >= _MAX_IDLE:
            line = next((line for line in self._lines.values() if not line.asked), None)
            if line is not None:
                line.end("not used")


class _Line:
    """The connection to one peer, from the first request until it is closed."""

    def __init__(self, address: str, peers: Peers) -> None:
        self.address = address
        self._peers = peers
        #: {request: fetch}: asked, or to be asked once connected.
        self.asked: dict[int, Fetch] = {}
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self.connecting = self._loop.create_task(self._connect())
        self._watch: asyncio.TimerHandle | None = None
        self._silence = Silence(_LOOKS)

    def ask(self, fetch: Fetch) -> None:
        self.asked[fetch.request] = fetch
        if self._connection is not None:
            self._send(fetch)

    async def _connect(self) -> None:
        try:
            connection = await connect(
                self.address,
                role=Role.PEER,
                server_role=Role.WORKER_DATA,
                security=self._peers._security,
                handler=self,
                timeout_s=_CONNECT_TIMEOUT_S,
            )
        except WeftError as error:
            self._gone(str(error))
            return
        self._connection = connection
        for fetch in self.asked.values():
            self._send(fetch)

    def _send(self, fetch: Fetch) -> None:
        assert self._connection is not None
        self._connection.send([GetData(request=fetch.request, keys=fetch.keys)])
        if self._watch is None:
            self._silence = Silence(_LOOKS)
            self._look()

    def _look(self) -> None:
        self._watch = None
        if self._connection is None or not self.asked:
            return
        in_process = self.address.startswith("inproc:")  # cannot be away without us
        if self._silence.look(self._connection) and not in_process:
            self.end(f"no answer within {_SILENCE_S:g} s")
        else:
            self._watch = self._loop.call_later(_SILENCE_S / _LOOKS, self._look)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in messages:
            fetch = None
            if isinstance(message, KeysData):
                fetch = self.asked.pop(message.request, None)
            if fetch is None:
                logger.warning("%s sent what was not asked for", self.address)
                self.end("it sent what was not asked for")
                return
            assert isinstance(message, KeysData)
            self._on_data(fetch, message)

    def _on_data(self, fetch: Fetch, message: KeysData) -> None:
        attempts = dict(zip(fetch.keys, fetch.attempts, strict=True))
        keys, nbytes = [], []
        for key, blob in zip(message.keys, message.results, strict=True):
            attempt = attempts.pop(key, None)
            if attempt is None:
                continue  # not asked for, or sent twice
            if blob is None:
                attempts[key] = attempt
                continue
            self._peers._store[attempt] = Packed(blob)
            keys.append(key)
            nbytes.append(max(1, blob_nbytes(blob)))
        # What is neither there nor listed as missing is missing all the same.
        self._peers._handle(Fetched(fetch.holder, fetch.request, keys, nbytes, list(attempts)))

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`. Requests are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._gone("closed" if error is None else str(error))

    def end(self, reason: str) -> None:
        """Close the connection, or stop connecting."""
        self.connecting.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._gone(reason)

    def _gone(self, reason: str) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._peers._lines.get(self.address) is self:
            del self._peers._lines[self.address]
        asked, self.asked = self.asked, {}
        for fetch in asked.values():
            logger.info("cannot fetch from %s: %s", self.address, reason)
            if not self._peers._closed:
                self._peers._handle(FetchFailed(fetch.holder, fetch.request, reason))
