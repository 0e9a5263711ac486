"""The messages between parent and workers, and the stream sockets on which they are sent.

A message is a plain tuple that begins with one of the constants below; on the wire it is its
length, in eight bytes, and its pickle. Both ends are the same user's processes on one machine, and
have proof of that before the first message (`pool` hands the socket down, `executor_crew` requires
a proof): so pickles are safe here.

The two ends differ: a `Link` never blocks, because the parent has many of them; a `Channel` does,
and may be written by two threads. Neither is kept in a forked child, because a copy of a socket
would hide the end of this process from the other end.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import threading
import weakref
from collections import deque
from typing import Any, Final, TypeAlias

from ...protocol.values.pickling import PROTOCOL

Message: TypeAlias = "tuple[Any, ...]"

# Values travel as (value,), if they are small and simple, or as the result of `sharing.pack`.

# --- From the parent ------------------------------------------------------------------------------

#: (run id, path of the shared directory, `pool.Context` or None): the answer is READY.
BEGIN: Final = 0
#: (functions, imports, list of `serving.Item`, numbers of values to drop)
RUN: Final = 1
#: (numbers of values): the answers are EXPORTED or UNPICKLABLE.
EXPORT: Final = 2
#: (): the answer is FINISHED, if anything has.
REPORT: Final = 3
#: (number of a task): the answers are FINISHED, if anything has, and RETURNED.
REVOKE: Final = 4
#: (numbers of values)
DROP: Final = 5
#: (): the run is over, finished or not; the answer is ENDED.
END: Final = 6
#: (): there will be no other run.
LEAVE: Final = 7

# --- From a worker: the second item is always the run's id ----------------------------------------

#: (run id): the worker is free, and begins with this run.
READY: Final = 0
#: (run id, numbers of tasks, {number: value}, {number: bytes}, {group: [tasks, seconds]}, chunks)
FINISHED: Final = 1
#: (run id, number of a task, packed exception): the worker runs no other task of this run.
FAILED: Final = 2
#: (run id, number of a value, name of the type, text)
UNPICKLABLE: Final = 3
#: (run id, numbers of tasks)
RETURNED: Final = 4
#: (run id, number of a value, value)
EXPORTED: Final = 5
#: (run id): the worker is free.
ENDED: Final = 6

_LENGTH_NBYTES = 8
_RECEIVE_NBYTES = 1 << 18
#: Beyond this, copying costs more than a second system call.
_JOIN_NBYTES = 1 << 16
#: The default of 200 KiB holds only a chunk or two.
_SOCKET_BUFFER_NBYTES = 1 << 20

_open_ends: weakref.WeakSet[Link | Channel] = weakref.WeakSet()


def _close_all() -> None:
    for end in list(_open_ends):
        end.close()


os.register_at_fork(after_in_child=_close_all)


def _encoded(message: Message) -> tuple[bytes, bytes]:
    data = pickle.dumps(message, PROTOCOL)
    return len(data).to_bytes(_LENGTH_NBYTES, "little"), data


class _Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add received bytes; return the messages that are complete now."""
        buffer = self._buffer
        buffer += data
        messages = []
        begin, n_bytes = 0, len(buffer)
        while n_bytes - begin >= _LENGTH_NBYTES:
            body = begin + _LENGTH_NBYTES
            end = body + int.from_bytes(buffer[begin:body], "little")
            if end > n_bytes:
                break
            messages.append(pickle.loads(buffer[body:end]))
            begin = end
        if begin:
            del buffer[:begin]
        return messages


class Link:
    """The parent's end. No method blocks: data that the socket does not take is kept.

    Attributes:
        n_bytes_sent: number of bytes written to the socket.
        n_bytes_received: number of bytes read from it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_NBYTES)
        self.n_bytes_sent = 0
        self.n_bytes_received = 0
        self.is_closed = False
        self._sock = sock
        self._fd = sock.fileno()
        self._frames = _Frames()
        self._unsent: deque[memoryview] = deque()
        _open_ends.add(self)

    def fileno(self) -> int:
        """Return the file descriptor, also when it is closed."""
        return self._fd

    @property
    def is_stuck(self) -> bool:
        """True while data is kept; then call `flush` when the socket can be written."""
        return bool(self._unsent)

    def send(self, *message: Any) -> None:
        """Send a message, or keep it. If the other end has closed, `receive` returns None."""
        header, data = _encoded(message)
        if len(data) < _JOIN_NBYTES:
            self._unsent.append(memoryview(header + data))
        else:
            self._unsent += (memoryview(header), memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Send as much of the kept data as possible."""
        unsent = self._unsent
        while unsent:
            try:
                n_bytes = self._sock.send(unsent[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the other end is gone
                unsent.clear()
                return
            self.n_bytes_sent += n_bytes
            if n_bytes == len(unsent[0]):
                unsent.popleft()
            else:
                unsent[0] = unsent[0][n_bytes:]

    def receive(self) -> list[Message] | None:
        """Return the messages that have arrived; None if no other can arrive."""
        try:
            data = self._sock.recv(_RECEIVE_NBYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not data:
            return None
        self.n_bytes_received += len(data)
        return self._frames.feed(data)

    def close(self) -> None:
        """Close the socket. Does nothing the second time."""
        self.is_closed = True
        _open_ends.discard(self)
        self._sock.close()


class Channel:
    """A worker's end. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_NBYTES)
        #: Held to send; hold it to change something and report it in one step.
        self.lock = threading.RLock()
        self._sock = sock
        self._frames = _Frames()
        _open_ends.add(self)

    def send(self, *message: Any) -> None:
        """Send a message, waiting until the parent takes it.

        Raises:
            OSError: the parent has closed the connection.
        """
        header, data = _encoded(message)
        with self.lock:
            if len(data) < _JOIN_NBYTES:
                self._sock.sendall(header + data)
            else:
                self._sock.sendall(header)
                self._sock.sendall(data)

    def receive(self) -> list[Message] | None:
        """Wait for messages and return them; [] if the socket's timeout is over, None at the end.

        May return [] early.
        """
        try:
            data = self._sock.recv(_RECEIVE_NBYTES)
        except BlockingIOError:  # SO_RCVTIMEO
            return []
        except OSError:
            return None
        return self._frames.feed(data) if data else None

    def hang_up(self) -> bool:
        """End the connection, so that both ends receive None; return whether it has ended."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError as exc:
            return exc.errno == errno.ENOTCONN  # the parent has closed it before
        return True

    def close(self) -> None:
        """Close the socket. Does nothing the second time."""
        _open_ends.discard(self)
        self._sock.close()
