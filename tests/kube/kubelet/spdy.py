"""Port-forward over SPDY/3.1, which `kubectl port-forward` needs at the kubelet.

For each connection a client opens two streams with the same `requestid`: of type `error`, on which
the kubelet sends why it failed, and of type `data`. Windows are not used by either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import zlib
from collections.abc import Callable

from tornado.iostream import IOStream, StreamClosedError

_SYN_STREAM, _SYN_REPLY, _PING, _GOAWAY = 1, 2, 6, 7
_FIN = 1

#: The dictionary of SPDY/3: words with their lengths, then a text.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 "
    "Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service "
    "UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, "
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/"
    "xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    "charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(
        struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split()
    )
    + _TEXT.encode()
)


class SpdySession:
    """The streams of one connection of a client."""

    def __init__(self, stream: IOStream, connect: Callable[[int], socket.socket]) -> None:
        """Take the connection; `connect(port)` connects to the pod or raises OSError."""
        self._stream, self._connect = stream, connect
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        #: request -> its stream of errors
        self._errors: dict[str, int] = {}
        #: stream of data -> what the client has sent on it; b"" is its end
        self._boxes: dict[int, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve until the client closes the connection."""
        try:
            while True:
                await self._read_frame()
        except StreamClosedError:
            return
        finally:
            for task in self._tasks:
                task.cancel()
            self._stream.close()

    async def _read_frame(self) -> None:
        first, second = struct.unpack(">II", await self._stream.read_bytes(8))
        flags, length = second >> 24, second & 0xFFFFFF
        data = await self._stream.read_bytes(length) if length else b""
        if not first >> 31:
            box = self._boxes.get(first)
            if box is not None:
                if data:
                    box.put_nowait(data)
                if flags & _FIN:
                    box.put_nowait(b"")
            return
        kind = first & 0xFFFF
        if kind == _PING:
            await self._stream.write(struct.pack(">II", first, second) + data)
        elif kind == _GOAWAY:
            self._stream.close()
        elif kind == _SYN_STREAM:
            number = struct.unpack(">I", data[:4])[0] & 0x7FFFFFFF
            await self._open(number, self._headers(data[10:]))

    def _headers(self, block: bytes) -> dict[str, str]:
        data = self._inflate.decompress(block)
        parts, at = [], 4
        for _ in range(2 * struct.unpack(">I", data[:4])[0]):
            (n,) = struct.unpack(">I", data[at : at + 4])
            parts.append(data[at + 4 : at + 4 + n].decode())
            at += 4 + n
        return dict(zip(parts[::2], parts[1::2], strict=True))

    async def _open(self, number: int, headers: dict[str, str]) -> None:
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(
            zlib.Z_SYNC_FLUSH
        )
        reply = struct.pack(">III", 0x80030000 | _SYN_REPLY, 4 + len(block), number) + block
        await self._stream.write(reply)
        if headers.get("streamtype") == "error":
            self._errors[headers["requestid"]] = number
            return
        self._boxes[number] = asyncio.Queue()
        error = self._errors.pop(headers["requestid"])
        task = asyncio.ensure_future(self._forward(number, error, int(headers["port"])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, number: int, error: int, port: int) -> None:
        with contextlib.suppress(StreamClosedError):
            try:
                reader, writer = await asyncio.open_connection(sock=self._connect(port))
            except OSError as failure:
                await self._send(error, str(failure).encode(), _FIN)
                await self._send(number, b"", _FIN)
                return
            receiving = asyncio.ensure_future(self._receive(number, writer))
            try:
                with contextlib.suppress(ConnectionError):
                    while data := await reader.read(1 << 16):
                        await self._send(number, data)
                await self._send(number, b"", _FIN)
                await self._send(error, b"", _FIN)
            finally:
                receiving.cancel()
                writer.close()
                del self._boxes[number]

    async def _receive(self, number: int, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._boxes[number].get():
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def _send(self, number: int, data: bytes, flags: int = 0) -> None:
        await self._stream.write(struct.pack(">II", number, flags << 24 | len(data)) + data)
