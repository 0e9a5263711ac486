"""A process that burdens a cluster, for `benchmarks.fairness`: another client, or a hostile peer.

Standard input: one line of JSON (the cluster's address, the kind of burden, its size), then "go".
Standard output: "ready" after the preparation, "done" when the scheduler has answered the last
request of the burden. The process stops when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import weft
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import connect
from weft.protocol.trust.security import Security
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role

from .tasks import inc

#: Half of the "memory" of a worker.
AMOUNT: Final = 1_000_000
#: Rows per message of the hostile peers; a process of weft sends shorter ones.
HOSTILE_ROWS: Final = 100_000


def report(word: str) -> None:
    print(word, flush=True)


def wait_for_go() -> None:
    report("ready")
    assert sys.stdin.readline().strip() == "go"


def map_many(client: weft.Client, n: int) -> None:
    """Map n tiny tasks and wait for all of them."""
    wait_for_go()
    futures = client.map(inc, range(n), pure=False)
    weft.wait(futures)
    report("done")
    client.close()  # the release of n futures is another burden


def map_unrunnable(client: weft.Client, n: int) -> None:
    """Map n tasks that no worker may run."""
    wait_for_go()
    futures = client.map(inc, range(n), pure=False, workers="absent")
    client.scheduler_info()
    report("done")
    assert len(futures) == n


def submit_amounts(client: weft.Client, n: int) -> None:
    """Submit n tasks, each of which asks for another amount; a worker has enough for one."""
    wait_for_go()
    futures = [
        client.submit(time.sleep, 0.002, pure=False, resources={"memory": AMOUNT + i + 1.0})
        for i in range(n)
    ]
    weft.wait(futures)
    report("done")


def release_many(client: weft.Client, n: int) -> None:
    """Release n results."""
    futures = client.map(inc, range(n), pure=False)
    weft.wait(futures)
    wait_for_go()
    del futures
    client.submit(inc, n).result()
    report("done")


class _Answers:
    """Receives the messages to a hostile peer; only the answers to its heartbeats matter."""

    def __init__(self) -> None:
        self.welcome: asyncio.Future[m.Welcome] = asyncio.get_running_loop().create_future()
        self.beat = asyncio.Event()
        self._changed = asyncio.Event()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, m.Welcome):
                connection.wire.epoch = message.epoch
                connection.wire.session = message.session
                self.welcome.set_result(message)
            elif isinstance(message, m.Heartbeat):
                self.beat.set()

    async def writable(self, connection: Connection) -> None:
        """Wait until there is room for the next message."""
        while not (connection.writable or connection.closed):
            self._changed.clear()
            await self._changed.wait()

    def on_writable(self, connection: Connection) -> None:
        self._changed.set()

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        self.closed.set_result(None)
        self.beat.set()
        self._changed.set()


async def be_hostile(address: str, security: Security, kind: str, n: int) -> None:
    """Send n messages of keys or attempts that do not exist, each as long as is allowed."""
    answers = _Answers()
    role = Role.WORKER if kind == "replicas" else Role.CLIENT
    connection = await connect(
        address, role=role, server_role=Role.SCHEDULER, security=security, handler=answers
    )
    facts = {"python": ".".join(map(str, sys.version_info[:3]))}
    common: dict[str, Any] = {"name": "hostile", "session": 1, "last_epoch": 0, "facts": facts}
    if kind == "replicas":
        connection.send(
            [
                m.RegisterWorker(
                    worker_id="hostile",
                    address="tcp://127.0.0.1:1",
                    nthreads=1,
                    memory_limit=0,
                    resources={},
                    supervisor_id="",
                    **common,
                )
            ]
        )
    else:
        connection.send([m.RegisterClient(client_id="hostile", **common)])
    await answers.welcome
    keys = [f"no-such-key-{i:08}" for i in range(HOSTILE_ROWS)]
    wait_for_go()
    for i in range(n):
        first = (1 << 60) + i * HOSTILE_ROWS
        if kind == "replicas":
            attempts = list(range(first, first + HOSTILE_ROWS))
            connection.send([m.ReplicasAdded(attempts=attempts, keys=keys)])
        else:
            connection.send([m.WantKeys(keys=keys)])
        await answers.writable(connection)
    connection.send([m.Heartbeat()])
    await answers.beat.wait()
    report("done")
    connection.close()
    await answers.closed


CLIENTS: Final[dict[str, Callable[[weft.Client, int], None]]] = {
    "map": map_many,
    "unrunnable": map_unrunnable,
    "amounts": submit_amounts,
    "release": release_many,
}


def main() -> None:
    """Run the burden that standard input names."""
    order = json.loads(sys.stdin.readline())
    security = Security.from_plain(order["security"])
    kind, n = order["kind"], order["n"]
    if kind in CLIENTS:
        with weft.Client(order["address"], security=security) as client:
            CLIENTS[kind](client, n)
            sys.stdin.read()
    else:
        asyncio.run(be_hostile(order["address"], security, kind, n))
        sys.stdin.read()


if __name__ == "__main__":
    main()
