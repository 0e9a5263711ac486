"""A second handle of a connection's socket, for threads that go past the event loop.

Waking the loop's thread takes longer than sending or receiving a short message. A thread that has
something to send writes it itself if nothing waits before it; what the socket does not take at once
goes to the loop. The connection's lock makes the writers take turns, so that frames keep their
order. A thread that waits for a message may read it itself while the loop does not read.

The handle is a duplicate: the transport closes its own whenever the connection ends, and a number
that was closed may be in use again for another file.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Sequence
from typing import Final

from ..wire.payload import Buffer

#: Most parts of one write; the system's limit is 1024.
_MAX_PARTS: Final = 64


class Bypass:
    """Writes to the socket of a transport, and reads from it.

    The caller of `is_clear`, `write` and `close` holds the connection's lock.
    """

    def __init__(self, transport: asyncio.Transport, sock: socket.socket) -> None:
        self._transport = transport
        self._sock = sock
        self._number = sock.fileno()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: A byte sent from the second to the first ends a `wait`.
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        self._poll.register(self._bell[0], select.POLLIN)
        #: Parts that the socket did not take and that the transport was not given yet, in order.
        self.rest: list[Buffer] = []

    @property
    def is_clear(self) -> bool:
        """True if nothing that was sent earlier waits to be written."""
        return not self.rest and not self._transport.get_write_buffer_size()

    def write(self, parts: Sequence[Buffer]) -> bool:
        """Write parts, if `is_clear`; return whether the socket took them all, else see `rest`.

        After the end of the connection they are dropped: the loop's thread notices the end when it
        reads.
        """
        try:
            if len(parts) == 1:
                n = self._sock.send(parts[0])
            else:
                n = self._sock.sendmsg(parts[:_MAX_PARTS])
        except (BlockingIOError, InterruptedError):
            n = 0
        except OSError:
            return True
        if len(parts) == 1 and n == len(parts[0]):
            return True
        for i, part in enumerate(parts):
            view = memoryview(part)
            nbytes = view.nbytes
            if n < nbytes:
                self.rest = [view.cast("B")[n:] if n else part, *parts[i + 1 :]]
                return False
            n -= nbytes
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to read, or the end of the stream; return whether it is.

        Return early if `interrupt` is or was called.
        """
        found = self._poll.poll(timeout_s * 1000.0)
        if not found:
            return False
        if len(found) == 1 and found[0][0] == self._number:
            return True
        with contextlib.suppress(OSError):  # closed meanwhile, as the end of the connection does
            self._bell[0].recv(64)
        return len(found) > 1

    def interrupt(self) -> None:
        """End the `wait` that is under way, or the next one. On any thread."""
        with contextlib.suppress(OSError):  # closed meanwhile, or rung many times
            self._bell[1].send(b"!")

    def receive(self, buffer: memoryview) -> int:
        """Return how many bytes were received; 0 at the end of the stream, -1 if none are there."""
        try:
            return self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0

    def close(self) -> None:
        """Close this handle; the transport's own is not affected."""
        self.rest = []
        for sock in (self._sock, *self._bell):
            sock.close()


def open_bypass(transport: asyncio.Transport) -> Bypass | None:
    """Return a bypass of a transport; None if the socket carries other bytes, as with TLS."""
    own = transport.get_extra_info("socket")
    if own is None or transport.get_extra_info("ssl_object") is not None:
        return None
    with contextlib.suppress(OSError):  # no more file descriptors
        sock = socket.socket(own.family, own.type, own.proto, socket.dup(own.fileno()))
        sock.setblocking(False)
        return Bypass(transport, sock)
    return None
