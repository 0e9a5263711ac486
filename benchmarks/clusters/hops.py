"""The lower bound of a round trip: its hops between processes and threads, with nothing on the way.

`submit(...).result()` crosses four sockets (client, scheduler, worker, scheduler, client), and is
handed from thread to thread four times (caller to loop; loop to slot and back; loop to caller).
Here three processes with the same threads and event loops pass on eight bytes: no messages, no
authentication, no pickles, no futures, no decisions.
"""

from __future__ import annotations

import asyncio
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

_TOKEN = b"12345678"
_START_TIMEOUT_S = 30.0


class BareHops:
    """Starts a scheduler and a worker that only pass bytes on, and holds a connection to it."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.mkdtemp(prefix="hops-")
        self._path = f"{self._folder}/s"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hops", daemon=True)
        self._answered = threading.Lock()
        self._answered.acquire()
        try:
            self._start("scheduler")
            self._start("worker")
        except BaseException:
            self._end_processes()
            raise
        self._thread.start()
        made = self._loop.create_unix_connection(
            lambda: _Connection(lambda _: self._answered.release()), self._path
        )
        self._transport, _ = asyncio.run_coroutine_threadsafe(made, self._loop).result(
            _START_TIMEOUT_S
        )

    def _start(self, role: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.clusters.hops", role, self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # it is ready

    def pass_on(self) -> None:
        """Make one round trip."""
        self._loop.call_soon_threadsafe(self._transport.write, _TOKEN)
        self._answered.acquire()

    def close(self) -> None:
        """End the processes and the thread."""
        self._loop.call_soon_threadsafe(self._transport.abort)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._end_processes()

    def _end_processes(self) -> None:
        for process in reversed(self._processes):
            process.communicate()  # each stops when its standard input closes
        shutil.rmtree(self._folder, ignore_errors=True)


class _Connection(asyncio.Protocol):
    """Calls a function with what comes."""

    def __init__(self, on_data: Callable[[bytes], object]) -> None:
        self._on_data = on_data
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._on_data(data)


async def _be_scheduler(path: str) -> None:
    """Connect the first two peers, the worker and the client, with each other."""
    connections: list[_Connection] = []

    def accept() -> _Connection:
        number = len(connections)

        def pass_on(data: bytes) -> None:
            connections[1 - number].transport.write(data)

        connections.append(_Connection(pass_on))
        return connections[number]

    server = await asyncio.get_running_loop().create_unix_server(accept, path)
    async with server:
        await _until_stdin_ends()


async def _be_worker(path: str) -> None:
    """Hand each request to a thread, which answers."""
    loop = asyncio.get_running_loop()
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    connection = _Connection(requests.put)
    await loop.create_unix_connection(lambda: connection, path)

    def run_slot() -> None:
        while (data := requests.get()) is not None:
            loop.call_soon_threadsafe(connection.transport.write, data)

    slot = threading.Thread(target=run_slot)
    slot.start()
    try:
        await _until_stdin_ends()
    finally:
        requests.put(None)
        slot.join()


async def _until_stdin_ends() -> None:
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run({"scheduler": _be_scheduler, "worker": _be_worker}[sys.argv[1]](sys.argv[2]))
