"""The lower bound of a round trip: a process that runs calls and answers over one asyncio stream.

No scheduler, no authentication, no futures. A system with a scheduler has two such hops where this
has one.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import subprocess
import sys
from typing import Any

_LENGTH = struct.Struct("!I")


class EchoProcess:
    """Start the answering process and hold a blocking connection to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.clusters.echo"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def call(self, function: Any, *args: Any) -> Any:
        body = pickle.dumps((function, args))
        self._socket.sendall(_LENGTH.pack(len(body)) + body)
        (length,) = _LENGTH.unpack(self._stream.read(_LENGTH.size))
        return pickle.loads(self._stream.read(length))

    def close(self) -> None:
        """End the process: it stops when its standard input closes."""
        self._stream.close()
        self._socket.close()
        self._process.communicate()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            function, args = pickle.loads(await reader.readexactly(length))
            body = pickle.dumps(function(*args))
            writer.write(_LENGTH.pack(len(body)) + body)
    except asyncio.IncompleteReadError:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
