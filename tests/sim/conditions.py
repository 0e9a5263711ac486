"""Conditions of tasks: how others of the same user have ended, and times.

In a part of the runs. What these runs need is drawn from a source of chance of their own.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from weft.protocol.wire.options import ENDED, ENDS, TaskOptions

from .graphs import INDEX

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .graphs import Spec
    from .simulation import Simulation

#: Share of the runs that have conditions, and of their submissions.
P_CONDITIONS = 0.25
SHARES = (0.05, 0.3)
#: Share of the conditions that every end meets: tasks with others may be cancelled.
P_ENDED = 0.7
P_LIMITED = 0.15
MAX_START_S = 3.0
MAX_LIMIT_S = 2.0


class Conditions:
    """The conditions that a run gives to its tasks."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        self._rng = Random(f"conditions of {seed}")
        self._sim = sim
        has_some = self._rng.random() < P_CONDITIONS
        self._share = self._rng.choice(SHARES) if has_some else 0.0

    def add(self, client: ClientNode, specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """Return the options of some tasks of a user, perhaps with conditions."""
        rng, sim = self._rng, self._sim
        if not self._share or rng.random() >= self._share:
            return options
        if not options.takes_thread or any(spec.function == INDEX for spec in specs):
            return options  # what is brought has no conditions
        added: dict[str, Any] = {}
        first = min(spec.index for spec in specs)
        earlier = [f.state.key for f in client.futures if f.spec.index < first]
        if earlier and rng.random() < 0.8:
            ends = [ENDED if rng.random() < P_ENDED else rng.choice(ENDS[:-1]) for _ in range(2)]
            added["conditions"] = [[how, rng.choice(earlier)] for how in ends]
            sim.world.probes["condition"] += 1
            if {*ends} != {ENDED}:
                self._may_be_cancelled(specs)
        core = sim.scheduler.core
        if core.started is not None and sim.plan.p_clock_back == 0.0:
            now_s = core.epoch / 1e9 + sim.world.now - core.started
            if rng.random() < 0.3:
                added["start_ms"] = round((now_s + rng.random() * MAX_START_S) * 1000) + 1
            if rng.random() < P_LIMITED:
                name = rng.choice(["begin_by_ms", "end_by_ms"])
                added[name] = round((now_s + rng.random() * MAX_LIMIT_S) * 1000) + 1
                self._may_be_cancelled(specs)
        return options.changed(**added) if added else options

    def _may_be_cancelled(self, specs: list[Spec]) -> None:
        for spec in specs:
            self._sim.cancelled[spec.key] = None
            self._sim.forced[spec.key] = None
