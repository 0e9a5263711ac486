"""Recurring jobs: users begin some, whose runs come while schedulers are started again.

In a part of the runs. What these runs need is drawn from a source of chance of their own. A job has
an end, so that the run comes to rest. Each time is recorded once: see `journal.py`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from weft.client.core.events import Cancel
from weft.protocol.wire.options import MISSED, OVERLAPS, TaskOptions

from .graphs import LARGE, PUT, READ, Spec

if TYPE_CHECKING:
    from weft.client.core.tasks import FutureState

    from .client_node import ClientNode
    from .graphs import Graph
    from .plan import Plan
    from .simulation import Simulation

P_RECURRING = 0.35
MAX_S = 8
#: Times that are as late as this were missed, where there are recurring jobs.
GRACE_S = 0.5


class Recurring:
    """The recurring jobs of a run."""

    def __init__(self, seed: int, plan: Plan, graph: Graph) -> None:
        self._rng = rng = Random(f"recurring jobs of {seed}")
        #: Their expressions, which each is begun with once.
        self._specs: list[Spec] = []
        #: {state of the future: the user} of those that were begun
        self._begun: dict[FutureState, ClientNode] = {}
        # A scheduler whose clock is an hour behind waits for that hour.
        if rng.random() < P_RECURRING and plan.p_clock_back == 0.0:
            self._specs = [self._make(plan, graph) for _ in range(rng.choice([1, 1, 3]))]
        self.are_some = bool(self._specs)
        if self.are_some and not plan.executes_once:
            plan.restart_rate = rng.choice([plan.restart_rate, 3.0 / plan.time])
        self._keys = {spec.key for spec in self._specs}

    def _make(self, plan: Plan, graph: Graph) -> Spec:
        rng = self._rng
        able = [one for one in graph.specs if one.function not in (PUT, READ) and not one.actors]
        spec = Spec(
            index=len(graph.by_key),
            key=f"recurring-{len(graph.by_key)}",
            function="f0",
            dependencies=rng.sample(able, k=min(len(able), rng.choice([0, 0, 1, 2]))),
            duration=rng.choice([0.01, 0.3, 3.0]),
            nbytes=rng.choice([8, 1000, LARGE]),
            n_raises=rng.choice([0, 0, 2]),
            kills=False,
            spec_hash=None,
            args=f"args-{len(graph.by_key)}".encode(),
            retries=plan.retries,
        )
        graph.add(spec, is_recurring=True)
        return spec

    def act(self, sim: Simulation) -> None:
        """Let a user begin a job, or end one."""
        rng = self._rng
        if self._specs and rng.random() < 0.7:
            self._begin(sim, self._specs.pop())
        elif self._begun and rng.random() < 0.3:
            state = rng.choice([*self._begun])
            client = self._begun.pop(state)
            if client.is_alive:
                sim.world.probes["recurring: ended"] += 1
                client.post(Cancel([state], force=True, reason="user", running=rng.random() < 0.5))

    def _begin(self, sim: Simulation, spec: Spec) -> None:
        clients = [one for one in sim.clients if one.is_alive]
        if not clients or sim.scheduler.core.started is None:
            return
        sim.world.probes["recurring: begun"] += 1
        for of_keys in (sim.cancelled, sim.forced, sim.released):
            of_keys[spec.key] = None  # it ends badly, and its runs are let go of
        client = self._rng.choice(clients)
        client.submit(spec.dependencies)
        [state] = client.post_tasks([spec])
        client.beside.append(state)
        self._begun[state] = client

    def timed(self, sim: Simulation, specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """Return the options of some tasks of a user, with times if it is a recurring job."""
        if specs[0].key not in self._keys:
            return options
        rng, core = self._rng, sim.scheduler.core
        assert core.started is not None
        now_ms = int(core.epoch / 1e6 + (sim.world.now - core.started) * 1000)
        return options.changed(
            cron={
                "expression": rng.choice(["* * * * * *", "*/2 * * * * *"]),
                "zone": "UTC",
                "since_ms": now_ms - rng.choice([0, 0, 3000]),
                "until_ms": now_ms + rng.randint(1, MAX_S * 1000),
                "overlap": rng.choice(OVERLAPS),
                "missed": rng.choice(MISSED),
            }
        )
