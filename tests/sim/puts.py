"""Values that clients put at workers: the way of one to a data port."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.protocol.wire.messages import Put

if TYPE_CHECKING:
    from .client_process import ClientProcess
    from .simulation import Simulation
    from .worker_node import WorkerNode


def put(
    sim: Simulation,
    client: ClientProcess,
    address: str,
    message: Put,
    on_end: Callable[[str], None],
) -> None:
    """Send a value to a data port; `on_end` gets the reason why it failed, or "".

    It may also fail after it has arrived, or stop on its way when the worker ends.
    """
    world, plan = sim.world, sim.plan
    world.probes["put"] += 1
    refused = not sim.is_healed and world.chance(plan.p_put_fails)
    unanswered = not sim.is_healed and world.chance(plan.p_put_fails)
    target = sim.by_address.get(address)

    def arrive(worker: WorkerNode | None) -> None:
        if worker is None or not worker.is_alive or refused:
            world.probes["put failed"] += 1
            world.at(plan.timing.draw(world), on_end, "it is gone")
            return
        if not worker.when_awake(arrive, worker):
            return
        worker.data.take_put(message)
        world.at(plan.timing.draw(world), on_end, "the answer is lost" if unanswered else "")

    delay = plan.timing.draw(world) + world.rng.random() * plan.put_s
    world.at(delay, arrive, target)
