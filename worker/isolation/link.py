"""The socket between a worker and a child: whole messages, with large buffers beside them.

Each message is a pickle of a list of plain values. Both ends are weft's own code of one user; what
the user's code has pickled travels as bytes. A blob in a file of this host goes as the file's name,
so a large value is not copied; and any other blob with its buffers, uncopied at the sender.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from typing import Any, Final

from ...protocol.values.host_blobs import FileReference, HostBlob, read_reference
from ...protocol.wire.payload import Blob, Payload

_COUNT: Final = struct.Struct("<I")
_PROTOCOL: Final = 5
#: Parts up to this size are joined, to be sent at once.
_JOINED_NBYTES: Final = 64 << 10


def as_plain(blob: Blob | FileReference | None) -> Any:
    """Return what stands for a blob in a message."""
    if isinstance(blob, HostBlob) and (reference := blob.reference) is not None:
        blob = reference
    if isinstance(blob, FileReference):
        return "file", blob.packed()
    if isinstance(blob, Payload):
        return "beside", pickle.PickleBuffer(blob.data), [*map(pickle.PickleBuffer, blob.buffers)]
    return blob


def as_blob(plain: Any, *, is_kept: bool) -> Any:
    """Return the blob of `as_plain`; `is_kept` as in `read_reference`.

    Raises:
        FileGone, OSError: see `read_reference`.
    """
    if not isinstance(plain, tuple):
        return plain
    if plain[0] == "file":
        return read_reference(plain[1], is_kept=is_kept)
    return Payload(plain[1], [_writable(buffer) for buffer in plain[2]])


def _writable(buffer: Any) -> Any:
    """Return the memory of a buffer that was read-only at the sender: it is this process's own."""
    return buffer.obj if isinstance(buffer, memoryview) else buffer


class Link:
    """One end of the socket. For one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, *message: Any) -> None:
        """Send a message.

        Raises:
            OSError: the other end is gone.
        """
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, _PROTOCOL, buffer_callback=buffers.append)
        parts: list[Any] = [data, *(buffer.raw() for buffer in buffers)]
        sizes = [len(data), *(part.nbytes for part in parts[1:])]
        head = _COUNT.pack(len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        if sum(sizes) <= _JOINED_NBYTES:
            self.socket.sendall(b"".join([head, *parts]))
            return
        self.socket.sendall(head)
        for part in parts:
            self.socket.sendall(part)

    def receive(self) -> Any:
        """Wait for a message and return it.

        Raises:
            EOFError: the other end is gone.
        """
        (n,) = _COUNT.unpack(self._read(_COUNT.size))
        sizes = struct.unpack(f"<{n}Q", self._read(8 * n))
        data, *buffers = map(self._read, sizes)
        return pickle.loads(data, buffers=buffers)

    def is_ready(self, timeout_s: float = 0.0) -> bool:
        """Return whether a message, or the end, has come, within this time."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            try:
                n = self.socket.recv_into(view[done:])
            except ConnectionResetError:
                n = 0
            if not n:
                raise EOFError("the other end of the socket is closed")
            done += n
        return data

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
