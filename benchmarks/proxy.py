"""A TCP proxy whose connections can be reset or held up, one by one or all of a port.

It is used by the benchmarks of lost connections and by `tests/trouble`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

_CHUNK = 1 << 16
#: Linger for 0 seconds: a close sends a reset.
_RESET = struct.pack("ii", 1, 0)


class _Pair:
    """A connection and the one behind it."""

    def __init__(self, party: str, sockets: list[asyncio.StreamWriter]) -> None:
        self.party = party
        self.writers = sockets
        #: cleared while nothing is passed on, for each direction
        self.open = [asyncio.Event(), asyncio.Event()]
        for event in self.open:
            event.set()

    def reset(self) -> None:
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self.release()

    def release(self) -> None:
        for event in self.open:
            event.set()


class Proxy:
    """Forwards to one port, in a thread of its own. Each party has a port, so it can be chosen."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._pairs: list[_Pair] = []
        self._servers: list[asyncio.Server] = []
        self._refusing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def port_for(self, party: str) -> int:
        """Open a port for this party; return it."""

        async def listen() -> int:
            server = await asyncio.start_server(
                lambda reader, writer: self._serve(party, reader, writer), "127.0.0.1", 0
            )
            self._servers.append(server)
            port: int = server.sockets[0].getsockname()[1]
            return port

        port: int = self._call(listen())
        return port

    async def _serve(
        self, party: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if party in self._refusing:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(party, [writer, back])
        self._pairs.append(pair)
        try:
            await asyncio.gather(
                self._pump(reader, back, pair.open[0]), self._pump(there, writer, pair.open[1])
            )
        except (OSError, asyncio.CancelledError):
            pair.reset()
        finally:
            self._pairs.remove(pair)
            for end in (writer, back):
                end.close()

    @staticmethod
    async def _pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event
    ) -> None:
        while data := await reader.read(_CHUNK):
            await is_open.wait()
            writer.write(data)
            await writer.drain()
        await is_open.wait()
        with suppress(OSError):
            writer.write_eof()

    def reset(self, party: str, which: float | None = None) -> int:
        """Reset all connections of a party, or the one at this part of its list; return how many.

        Data under way, in either direction, is lost.
        """

        async def do() -> int:
            pairs = self._chosen(party, which)
            for pair in pairs:
                pair.reset()
            return len(pairs)

        n: int = self._call(do())
        return n

    def stall(self, party: str, which: float | None, directions: list[int], seconds: float) -> int:
        """Pass nothing on for some seconds, in these directions; return how many connections."""

        async def do() -> int:
            pairs = self._chosen(party, which)
            for pair in pairs:
                for direction in directions:
                    event = pair.open[direction]
                    event.clear()
                    self._loop.call_later(seconds, event.set)
            return len(pairs)

        n: int = self._call(do())
        return n

    def refuse(self, party: str, seconds: float) -> int:
        """Reset a party's connections and take none of it for some seconds."""

        async def do() -> None:
            self._refusing.add(party)
            self._loop.call_later(seconds, self._refusing.discard, party)

        self._call(do())
        return self.reset(party)

    def _chosen(self, party: str, which: float | None) -> list[_Pair]:
        pairs = [pair for pair in self._pairs if pair.party == party]
        if which is None or not pairs:
            return pairs
        return [pairs[int(which * len(pairs))]]

    def heal(self) -> None:
        """Pass everything on."""

        async def do() -> None:
            self._refusing.clear()
            for pair in self._pairs:
                pair.release()

        self._call(do())

    def close(self) -> None:
        """Close all connections and end the thread."""

        async def do() -> None:
            for server in self._servers:
                server.close()
            for pair in list(self._pairs):
                pair.reset()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(do())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
