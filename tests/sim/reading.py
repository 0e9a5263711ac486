"""Readers of the task stream in the simulator.

What is asserted, at rest: every question of a reader who is still there was answered; no attempt
came twice to one reader from one scheduler; each was executed, and ended no later than it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.client.core.features.questions import AskScheduler
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import Answer

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .simulation import Simulation


class Reader(Watcher):
    """Reads the stream, page by page, as long as a user asks."""

    __slots__ = ("client", "cursor", "is_waiting", "n_missed", "seen", "sim")

    def __init__(self, sim: Simulation, client: ClientNode) -> None:
        super().__init__(wants_data=False)
        self.sim = sim
        self.client = client
        self.cursor = ""
        self.is_waiting = False
        self.n_missed = 0
        #: {(epoch, attempt): None}
        self.seen: dict[tuple[str, int], None] = {}

    def ask(self, page: str = "") -> None:
        """Ask for one page."""
        self.is_waiting = True
        keep_s = self.sim.world.rng.choice([0.0, 0.05, 1.0, 30.0])
        arguments = {"after": self.cursor, "keep_s": keep_s}
        self.client.post(AskScheduler(self, "task_stream", arguments, page))

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        answer = items[-1]
        self.is_waiting = False
        if not isinstance(answer, Answer):
            assert answer is None, answer
            return
        info = answer.info
        self.cursor = info["cursor"]
        self.n_missed += info["n_missed"]
        epoch = self.cursor.partition(".")[0]
        for report in info["reports"]:
            self.sim.world.probes["stream: report"] += 1
            for key, attempt in zip(report["keys"], report["attempts"], strict=True):
                known = self.sim.executed.get(attempt, self.sim.disks.stopped.get(attempt))
                assert known is not None, f"attempt {attempt} was not executed"
                assert not key or known == key
                assert (epoch, attempt) not in self.seen, f"attempt {attempt} came twice"
                self.seen[epoch, attempt] = None
        if answer.next_page:
            self.ask(answer.next_page)


def act(sim: Simulation) -> None:
    """Let a user read on."""
    clients = [client for client in sim.clients if client.is_alive]
    if clients:
        client = sim.world.rng.choice(clients)
        reader = sim.readers.get(client)
        if reader is None:
            reader = sim.readers[client] = Reader(sim, client)
        if not reader.is_waiting:
            reader.ask()


def check(sim: Simulation) -> None:
    """Check, at rest, that nobody waits for an answer."""
    waiting = [reader.client for reader in sim.readers.values() if reader.is_waiting]
    assert not [client for client in waiting if client.is_alive], waiting
