"""One connection over a byte stream (TCP, TLS or a Unix socket): handshake first, then frames.

A shell: it moves bytes between an asyncio transport and the cores `handshake`, `framing` and
`wire`, and turns time into deadlines. Its *owner* (`listen.Listener`, `transport._Connecting`)
chooses the handshake and the handler.

Until the handshake is complete the transport gets a buffer of exactly the bytes that the handshake
needs next, so that no more than these are held for a peer that is not authenticated.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from ..errors import CommClosed, CommError, HandshakeError, ProtocolError, RemoteProtocolError
from ..host.buffers import new_buffer
from ..wire.codec import WireState
from ..wire.framing import MEMORY_BYTES, Frame, FrameDecoder
from ..wire.handshake import PREAUTH_BYTES, ClientHandshake, ServerHandshake
from ..wire.message import Message
from ..wire.payload import Buffer
from ..wire.session import Silence
from .bypass import Bypass, open_bypass
from .connection import Connection, Handler
from .sockets import set_options
from .unfinished import MIN_RATE, Trickle, UnfinishedFrames

#: `writable` becomes False above HIGH bytes that wait to be written, and True again below LOW.
_HIGH_BYTES: Final = 1 << 20
_LOW_BYTES: Final = 256 << 10
#: Time that `close` waits for a peer that does not read.
_CLOSE_TIMEOUT_S: Final = 5.0
#: The number of parts that a time limit is divided into; see `wire.session.Silence`.
_LOOKS: Final = 5

# Plain asyncio's `writelines` joins all parts before 3.12, and never pauses before these fixes.
_HAS_WRITELINES: Final = sys.version_info >= (3, 13, 2) or (3, 12, 9) <= sys.version_info < (3, 13)
#: Without a usable `writelines`, smaller parts are joined and larger ones written one by one.
_JOIN_BYTES: Final = 64 << 10


class Owner(Protocol):
    """The object that made a connection, which the connection calls while it is set up."""

    def on_transport(self, connection: StreamConnection, transport: asyncio.Transport) -> None:
        """Call `connection.begin` or `fail`: the socket is connected, with TLS if it is used."""

    def on_authenticated(self, connection: StreamConnection) -> Handler:
        """Return the handler to deliver to, once the handshake is complete."""

    def on_failed(self, connection: StreamConnection, error: CommError | ProtocolError) -> None:
        """Handle an end before authentication, or because of a fault of the peer."""

    def on_gone(self, connection: StreamConnection) -> None:
        """Handle the end of the connection. This is the last call."""


class _Memory(threading.local):
    """The receive buffer that all connections of one thread, and so of one loop, share."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(MEMORY_BYTES))


_memory = _Memory()


class StreamConnection(Connection, asyncio.BufferedProtocol):
    """A `Connection` that a connecting or listening owner makes and passes to asyncio."""

    def __init__(
        self,
        owner: Owner,
        address: str,
        wire: WireState,
        handshake_timeout_s: float,
        progress_timeout_s: float,
        unfinished: UnfinishedFrames | None = None,
    ) -> None:
        self.address = address
        self.peer_address = address
        self.wire = wire
        self.writable = True
        self.closed = False
        self.authenticated = False
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        self._owner = owner
        self._handler: Handler | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writes_lines = False
        #: Held from the numbering of a frame until it is written or with the transport. Reentrant,
        #: so that it can be seen when a finalizer of the user sends in the middle of a frame.
        self._sending = threading.RLock()
        #: Opened by `allow_bypass`; None for TLS, and after the end.
        self._bypass: Bypass | None = None
        #: None before `begin` and after the handshake.
        self._handshake: ClientHandshake | ServerHandshake | None = None
        self._scratch = memoryview(bytearray(PREAUTH_BYTES))
        self._decoder: FrameDecoder | None = None
        self._error: CommError | ProtocolError | None = None
        self._is_gone = False
        #: The reasons not to read in the loop: the handler paused it, memory is short
        #: (`unfinished`), or other threads read.
        self._is_paused = self._is_held_up = self._is_lent = False
        self._has_own_memory = False
        self._reads = True
        self._progress_timeout_s = progress_timeout_s
        #: The handshake's deadline, later that of `close`.
        self._deadline: asyncio.TimerHandle | None = None
        self._watch_handshake(handshake_timeout_s, _LOOKS)
        self._progress: asyncio.TimerHandle | None = None
        #: Counts the memory of half received frames; None = it is not counted, because this end
        #: requested the data and limits its requests.
        self._unfinished = unfinished
        #: The number of bytes that was last counted there, and the frame that it belongs to.
        self._held = self._held_frame = 0

    @property
    def receiving(self) -> bool:
        """Return whether a frame has begun and is not complete. See `Connection.receiving`."""
        return self._decoder is not None and self._decoder.half_received

    @property
    def is_connected(self) -> bool:
        """True if there is or was a transport; then asyncio calls `connection_lost`."""
        return self._transport is not None

    # --- Opening ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        # uvloop's transports have the methods, but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()
            return
        self._owner.on_transport(self, self._transport)

    def begin(
        self, transport: asyncio.Transport, handshake: ClientHandshake | ServerHandshake
    ) -> None:
        """Start the handshake."""
        transport.set_write_buffer_limits(high=_HIGH_BYTES, low=_LOW_BYTES)
        self._writes_lines = _writes_lines(transport)
        set_options(transport.get_extra_info("socket"), _HIGH_BYTES)
        self._handshake = handshake
        self._write_handshake(handshake.start())

    def _on_handshake_bytes(self, data: memoryview) -> None:
        handshake = self._handshake
        assert handshake is not None
        try:
            self._write_handshake(handshake.feed(data))
        except HandshakeError as error:
            self.fail(error)
            return
        if handshake.error is not None:
            # The reason was written just now: let it be sent.
            self.fail(handshake.error, flush=True)
        elif handshake.done:
            self._on_authenticated(handshake)

    def _write_handshake(self, data: bytes) -> None:
        if data:
            assert self._transport is not None
            self._transport.write(data)
            self.bytes_out += len(data)

    def _on_authenticated(self, handshake: ClientHandshake | ServerHandshake) -> None:
        self.peer_role = handshake.peer_role
        self.level = handshake.level
        self.user = handshake.user
        self.cluster_id = handshake.cluster_id
        self._handshake = None
        self._cancel_deadline()
        self._decoder = FrameDecoder(self.wire.limits, _memory.view, new_buffer)
        self.authenticated = True
        self._handler = self._owner.on_authenticated(self)

    def _watch_handshake(self, timeout_s: float, n_looks: int) -> None:
        # In parts, so that a loop that was blocked for longer first reads what arrived meanwhile.
        self._deadline = None
        if n_looks:
            self._deadline = self._loop.call_later(
                timeout_s / _LOOKS, self._watch_handshake, timeout_s, n_looks - 1
            )
        elif self.closed:
            # It failed before, and the peer did not read the reason in time.
            self._abort_transport()
        else:
            self.fail(HandshakeError(f"the handshake was not done within {timeout_s:g} s"))

    # --- Receiving --------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        if self._decoder is not None:
            return self._decoder.get_buffer(sizehint)
        # At least one byte: asyncio forbids an empty buffer. Bytes after a failure are dropped.
        want = self._handshake.bytes_wanted if self._handshake is not None else 1
        return self._scratch[: max(want, 1)]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        if self.closed:
            return
        self.bytes_in += nbytes
        decoder = self._decoder
        if decoder is None:
            self._on_handshake_bytes(self._scratch[:nbytes])
            return
        try:
            for frame in decoder.received(nbytes):
                if not self._deliver(frame):
                    return
        except RemoteProtocolError as error:
            self.fail(error)
            return
        if decoder.held or self._held:
            self._count_held(decoder.held, decoder.next_nbytes)
        if decoder.half_received and self._progress is None:
            self._watch_progress(Silence(_LOOKS), Trickle(_LOOKS))

    def _count_held(self, nbytes: int, next_nbytes: int) -> None:
        if self._unfinished is None:
            return
        if self._held and self.frames_in != self._held_frame:
            # The count was of an earlier frame, and frames are ordered by their age.
            self._unfinished.update(self, 0, 0)
        self._held, self._held_frame = nbytes, self.frames_in
        self._unfinished.update(self, nbytes, next_nbytes)

    def _deliver(self, frame: Frame) -> bool:
        """Deliver a frame's messages; return whether the handler left the connection open."""
        self.frames_in += 1
        messages = self.wire.decode(frame)
        if messages:
            self.messages_in += len(messages)
            assert self._handler is not None
            self._handler.on_messages(self, messages)
        return not self.closed

    def pause_reading(self) -> None:
        """See `Connection.pause_reading`."""
        self._is_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """See `Connection.resume_reading`."""
        self._is_paused = False
        self._read_or_not()

    def hold_up(self) -> None:
        """Stop reading until there is memory for more: see `unfinished`."""
        self._is_held_up = True
        self._read_or_not()

    def go_on(self) -> None:
        """Read again: there is memory."""
        self._is_held_up = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        reads = not (self._is_paused or self._is_held_up or self._is_lent)
        if self._transport is None or self.closed or reads == self._reads:
            return
        self._reads = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def lend_reading(self) -> bool:
        """See `Connection.lend_reading`."""
        decoder = self._decoder
        if self._bypass is None or decoder is None or decoder.half_received or not self._reads:
            return False
        if not self._has_own_memory:
            # The decoders of one loop share theirs, which another thread must not touch.
            decoder.use_memory(memoryview(bytearray(MEMORY_BYTES)))
            self._has_own_memory = True
        self._is_lent = True
        self._read_or_not()
        return True

    def receive(self, timeout_s: float) -> bool:
        """See `Connection.receive`."""
        bypass, decoder = self._bypass, self._decoder
        if bypass is None or decoder is None or self.closed:
            return False
        if not bypass.wait(timeout_s):
            return True
        nbytes = bypass.receive(decoder.get_buffer(-1))
        if nbytes <= 0:
            return nbytes < 0  # the loop notices the end when it reads
        self.bytes_in += nbytes
        try:
            for frame in decoder.received(nbytes):
                if not self._deliver(frame):
                    return False
        except RemoteProtocolError as error:
            self._leave_to_loop(self.fail, error)
            return False
        return not decoder.half_received

    def interrupt(self) -> None:
        """See `Connection.interrupt`."""
        bypass = self._bypass
        if bypass is not None:
            bypass.interrupt()

    def take_reading_back(self) -> None:
        """See `Connection.take_reading_back`."""
        if self._is_lent:
            self._is_lent = False
            self._read_or_not()
            decoder = self._decoder
            if decoder is not None and decoder.half_received and self._progress is None:
                self._watch_progress(Silence(_LOOKS), Trickle(_LOOKS))

    def _watch_progress(self, silence: Silence, trickle: Trickle) -> None:
        # One timer while frames are incomplete, not one per read.
        self._progress = None
        if self.closed or self._decoder is None or not self._decoder.half_received:
            return
        timeout_s = self._progress_timeout_s
        min_rate = MIN_RATE if self._unfinished is None else self._unfinished.min_rate
        if not self._reads:
            silence = Silence(_LOOKS)  # this end does not read
        elif silence.look(self.bytes_in):
            self.fail(RemoteProtocolError(f"a frame stopped halfway for {timeout_s:g} s"))
            return
        if trickle.look(self, int(min_rate * timeout_s), is_paused=not self._reads):
            text = f"a frame comes too slowly: less than {min_rate >> 10} KiB/s for {timeout_s:g} s"
            if min_rate > MIN_RATE:
                text += ", while other peers wait for the memory that it takes"
            self.fail(RemoteProtocolError(text))
            return
        self._progress = self._loop.call_later(
            timeout_s / _LOOKS, self._watch_progress, silence, trickle
        )

    # --- Sending ----------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """See `Connection.send`."""
        if self.closed or not messages:
            return
        assert self.authenticated
        if self._sending._is_owned():  # type: ignore[attr-defined]
            self._loop.call_soon(self.send, messages)
            return
        with self._sending:
            parts = self._encode(messages)
            if self._bypass is not None:
                self._write_rest()
            if len(parts) == 1 and self._transport is not None:
                self._transport.write(parts[0])
            else:
                self._write(parts)

    def allow_bypass(self) -> bool:
        """See `Connection.allow_bypass`."""
        if self._bypass is None and self._transport is not None and not self.closed:
            self._bypass = open_bypass(self._transport)
        return self._bypass is not None

    def send_past_loop(self, messages: Sequence[Message]) -> bool:
        """See `Connection.send_past_loop`."""
        if self._sending._is_owned():  # type: ignore[attr-defined]
            return False
        with self._sending:
            bypass = self._bypass
            if bypass is None or self.closed or not bypass.is_clear:
                return False
            if not bypass.write(self._encode(messages)):
                self._leave_to_loop(self._on_rest)
        return True

    def _encode(self, messages: Sequence[Message]) -> list[Buffer]:
        """Return the parts of the next frames, counted as sent."""
        frames = self.wire.encode(messages)
        self.messages_out += len(messages)
        parts = frames[0]
        if len(frames) == 1 and len(parts) == 1:
            self.frames_out += 1
            self.bytes_out += len(parts[0])
            return parts
        self.frames_out += len(frames)
        # Memory views, because asyncio's TLS slices what it has not yet written.
        views: list[Buffer] = [_view(part) for frame in frames for part in frame]
        self.bytes_out += sum(map(len, views))
        return views

    def _write(self, parts: Sequence[Buffer]) -> None:
        assert self._transport is not None
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif self._writes_lines:
            self._transport.writelines(parts)
        else:
            _write_one_by_one(self._transport, parts)

    def _leave_to_loop(self, call: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
            self._loop.call_soon_threadsafe(call, *args)

    def _on_rest(self) -> None:
        with self._sending:
            if not self.closed:
                self._write_rest()

    def _write_rest(self) -> None:
        """Give the transport what a bypass could not write. For the loop's thread."""
        bypass = self._bypass
        if bypass is not None and bypass.rest:
            rest, bypass.rest = bypass.rest, []
            self._write(rest)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self.writable = False

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self.writable = True
        if self._handler is not None and not self.closed:
            self._handler.on_writable(self)

    # --- Closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """See `Connection.close`."""
        if self.closed:
            return
        with self._sending:
            self._write_rest()
            self.closed = True
        self._cancel_deadline()
        if self._transport is not None:
            self._deadline = self._loop.call_later(_CLOSE_TIMEOUT_S, self._abort_transport)
            self._transport.close()

    def abort(self) -> None:
        """See `Connection.abort`."""
        self.closed = True
        self._abort_transport()

    def discard(self) -> None:
        """Abort without calling the owner, which gives up the connection before its use."""
        self._handler = None
        self._cancel_deadline()
        self.abort()

    def fail(self, error: CommError | ProtocolError, *, flush: bool = False) -> None:
        """End the connection because of `error`."""
        if self.closed:
            return
        self.closed = True
        self._error = error
        self._owner.on_failed(self, error)
        if flush and self._transport is not None:
            # The handshake's deadline stays, for a peer that does not read.
            self._transport.close()
        else:
            self._cancel_deadline()
            self._abort_transport()

    def eof_received(self) -> None:
        """Called by asyncio, which closes the transport next."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by asyncio."""
        if self._is_gone:
            return
        self._is_gone = True
        if not self.closed:
            error = self._lost(exc)
            self.closed = True
            self._error = error
            if not self.authenticated:
                self._owner.on_failed(self, error)
        self.writable = False
        with self._sending:
            bypass, self._bypass = self._bypass, None
            if bypass is not None:
                bypass.interrupt()
                bypass.close()
        self._cancel_deadline()
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None
        self._decoder = None
        if self._held:
            self._count_held(0, 0)
        if sys.version_info < (3, 11) and self._transport is not None:
            # asyncio's TLS transport does not notice that the other end closed it, and warns later.
            self._transport.close()
        handler, self._handler = self._handler, None
        try:
            if handler is not None:
                handler.on_closed(self, self._error)
        finally:
            self._owner.on_gone(self)

    def _lost(self, exc: BaseException | None) -> CommError | ProtocolError:
        if self._handshake is not None and self.bytes_in:
            return self._handshake.on_eof()
        if isinstance(exc, ssl.SSLError) and not self.authenticated:
            # In TLS 1.3 the server completes its handshake before the client can refuse.
            return HandshakeError(f"TLS: {tls_reason(exc)}")
        if not self.authenticated:
            return CommClosed("the connection was closed before its handshake", self.peer_address)
        how = "the connection was lost" if exc else "the other end closed the connection"
        if self._decoder is not None and self._decoder.half_received:
            how += " in the middle of a frame"
        return CommClosed(f"{how}: {exc}" if exc else how, self.peer_address)

    def _abort_transport(self) -> None:
        # An asyncio transport raises when it is aborted after its end.
        if self._transport is not None and not self._is_gone:
            self._transport.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def tls_reason(error: BaseException) -> str:
    """Return a short reason why TLS failed."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or str(error) or type(error).__name__).replace("_", " ").lower()


# --- Transports -----------------------------------------------------------------------------------


def _view(part: Buffer) -> memoryview:
    view = memoryview(part)
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


def _writes_lines(transport: asyncio.Transport) -> bool:
    """Return whether this transport's `writelines` does not join its parts and pauses writing."""
    if not type(transport).__module__.startswith("asyncio."):
        return True
    if transport.get_extra_info("ssl_object") is not None:
        return sys.version_info >= (3, 11)
    return _HAS_WRITELINES


def _write_one_by_one(transport: asyncio.Transport, parts: Sequence[Buffer]) -> None:
    small: list[Buffer] = []
    nbytes = 0
    for part in parts:
        if transport.is_closing():
            return  # lost just now; asyncio would log warnings for further writes
        if len(part) < _JOIN_BYTES and nbytes < _JOIN_BYTES:
            small.append(part)
            nbytes += len(part)
            continue
        if small:
            transport.write(b"".join(small))
            small, nbytes = [], 0
        transport.write(part)
    if small:
        transport.write(b"".join(small))
