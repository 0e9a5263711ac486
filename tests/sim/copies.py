"""Wishes of users for copies: each is answered in the end, and the copies are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.client.core.features.questions import AskScheduler
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import Answer
from weft.protocol.wire.question_arguments import MAX_KEYS
from weft.scheduler.core.data.copies import MAX_FAILURES, copies_of, is_over

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .simulation import Simulation


class CopyWatcher(Watcher):
    """Waits for the answer to one wish."""

    __slots__ = ("answers", "client", "keys")

    def __init__(self, client: ClientNode, keys: list[str]) -> None:
        super().__init__(wants_data=False)
        self.client = client
        self.keys = keys
        self.answers: list[Any] = []

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.answers += items


def wish(sim: Simulation) -> None:
    """Let a user have copies of some results."""
    rng = sim.world.rng
    clients = [client for client in sim.clients if client.is_alive and client.futures]
    if not clients:
        return
    client = rng.choice(clients)
    futures = rng.sample(client.futures, k=rng.randint(1, min(5, len(client.futures))))
    arguments: dict[str, Any] = {"keys": [future.spec.key for future in futures]}
    if sim.world.chance(0.7):
        arguments["n"] = rng.randint(1, 4)
    if sim.world.chance(0.2):
        arguments["workers"] = ["host0"]
    watcher = CopyWatcher(client, arguments["keys"])
    sim.copy_wishes.append(watcher)
    question = "rebalance" if sim.world.chance(0.3) else "replicate"
    if question == "rebalance":
        arguments["keys"] = [future.spec.key for future in client.futures[:MAX_KEYS]]
        arguments.pop("n", None)
    sim.world.probes[question] += 1
    client.post(AskScheduler(watcher, question, arguments))


def check(sim: Simulation) -> None:
    """Check that each wish is answered and fulfilled."""
    for watcher in sim.copy_wishes:
        if watcher.client.is_alive:
            n = len(watcher.answers)
            assert n == 1, (
                f"{watcher.client!r} has wished for copies of {watcher.keys}: {n} answers"
            )
            assert isinstance(watcher.answers[0], Answer), watcher.answers
    core = sim.scheduler.core
    for task, wish in copies_of(core).wishes.items():
        if is_over(task, wish):
            continue
        assert wish.moves_from is None, f"{task!r} still moves"
        allowed = [
            ws
            for ws in core.staying.values()
            if (not wish.workers or ws.is_named(wish.workers))
            and (ws in task.replicas or (wish.failed.get(ws, 0) < MAX_FAILURES and not ws.is_full))
        ]
        there = [ws for ws in allowed if ws in task.replicas]
        least = min(wish.n, len(allowed))
        assert len(there) >= least, f"{task!r} has {len(there)} copies, and shall have {least}"
        sim.world.probes["copies kept"] += len(there) > 1
