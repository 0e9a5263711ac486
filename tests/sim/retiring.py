"""Orders of users that workers leave: each is answered in the end, and what it says is true."""

from __future__ import annotations

from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from weft.client.core.features.questions import AskScheduler
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import Answer, AskFailed

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .simulation import Simulation
    from .worker_node import WorkerNode


#: Share of the workers with a signal to leave that lose their connection a moment later.
P_BREAKS = 0.4


class OrderWatcher(Watcher):
    """Waits for the answer to one order."""

    __slots__ = ("answers", "client", "is_all", "workers")

    def __init__(self, client: ClientNode, workers: list[str], *, is_all: bool) -> None:
        super().__init__(wants_data=False)
        self.client = client
        self.workers = workers
        self.is_all = is_all
        self.answers: list[Any] = []

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.answers += items


def retire(sim: Simulation, worker: WorkerNode) -> None:
    """Let a worker leave, or its family, or those that a user chooses; some have little time.

    Where nothing may be executed again, they have as much as they need.
    """
    world = sim.world
    if world.chance(0.5):
        order(sim)
        return
    is_hurried = not sim.plan.executes_once and world.chance(0.7)
    seconds = world.rng.random() * 3.0 if is_hurried else inf
    workers = [worker]
    if worker.supervisor is not None and world.chance(0.3):
        world.probes["drain: family"] += 1
        workers = list(worker.supervisor.workers.values())
    rng = Random(f"leavers of {world.seed} {world.n_events}")
    for one in workers:
        one.drain(seconds)
        if rng.random() < P_BREAKS:
            world.at(rng.random() * 0.3, sim.break_line_of, one)
    if not is_hurried and not sim.plan.executes_once and world.chance(0.3):
        world.at(world.rng.random(), worker.kill, "SIGKILL while it leaves")


def order(sim: Simulation) -> None:
    """Let a user retire some workers, one of several, or all."""
    rng = sim.world.rng
    clients = [client for client in sim.clients if client.is_alive]
    if not clients or not sim.workers:
        return
    client = rng.choice(clients)
    ids = rng.sample(list(sim.workers), k=rng.randint(1, len(sim.workers)))
    is_all = len(ids) == 1 or sim.world.chance(0.3)
    arguments: dict[str, Any] = {"order": sim.new_id("order"), "workers": ids}
    if not is_all:
        arguments["n"] = 1
    elif sim.world.chance(0.5):
        sim.world.probes["scale to zero"] += 1
        del arguments["workers"]
        arguments["keep"] = 0
        ids = list(sim.workers)
    losses = ["keep", "wait"] if sim.plan.executes_once else ["keep", "keep", "wait", "drop"]
    arguments["losses"] = rng.choice(losses)
    watcher = OrderWatcher(client, ids, is_all=is_all)
    sim.orders.append(watcher)
    sim.world.probes["retire"] += 1
    client.post(AskScheduler(watcher, "retire", arguments))


def check(sim: Simulation) -> None:
    """Check that every order of a user who is still there has come to its end."""
    for watcher in sim.orders:
        if not watcher.client.is_alive:
            continue
        assert len(watcher.answers) == 1, f"{watcher.client!r} retired {watcher.workers}: no answer"
        (answer,) = watcher.answers
        if isinstance(answer, AskFailed):
            assert "ask again" in answer.text, answer.text
            sim.world.probes["retire refused"] += 1
            continue
        assert isinstance(answer, Answer)
        rows = answer.info["workers"].values()
        ends = [row["end"] for row in rows]
        for end in ends:
            sim.world.probes[f"retired: {end}"] += 1
        n_recomputed = sum(row["n_recomputed"] for row in rows)
        assert not (n_recomputed and sim.plan.executes_once), answer
        sim.world.probes["retire recomputed"] += n_recomputed
        sim.world.probes["retire: results moved"] += sum(row["n_moved"] for row in rows)
        if any("no other worker stays" in row["reason"] for row in rows):
            sim.world.probes["scale to zero: kept"] += 1
        if not watcher.is_all:
            assert len([end for end in ends if end != "kept"]) <= 1, ends
