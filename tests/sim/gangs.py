"""Gangs: tasks of a user that run at the same time or not at all, in a part of the runs.

They have no inputs and no readers, and keys of their own, which other users do not share. What
these runs need is drawn from a source of chance of their own. All members of a run are told the
same; that they begin at one moment and end together is an invariant of the scheduler.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from weft.protocol.amounts import asked_by_cores
from weft.protocol.wire.failure import Failure
from weft.scheduler.core.gangs.records import gangs_of
from weft.worker.core.tasks import WorkerTask

from .graphs import ALWAYS, CONSTANT, Spec

if TYPE_CHECKING:
    from weft.scheduler.core.state import SchedulerState

    from .client_node import ClientNode, Future
    from .simulation import Simulation

#: Share of the runs that have gangs, and of the acts of their users that submit one.
P_GANGS: Final = 0.3
SHARES: Final = (0.1, 0.4)


class SimulatedGangs:
    """The gangs of a run."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        self._rng = Random(f"gangs of {seed}")
        self._sim = sim
        has_some = self._rng.random() < P_GANGS
        self._share = self._rng.choice(SHARES) if has_some else 0.0
        self._n = 0
        #: {name of a run of a gang: (name of the gang, the workers of all)}
        self._runs: dict[str, tuple[str, list[str]]] = {}
        #: {name: its specs}
        self.by_name: dict[str, list[Spec]] = {}

    def submit(self, client: ClientNode) -> bool:
        """Let a user submit a gang now and then; return whether it did."""
        if not self._share or self._rng.random() >= self._share:
            return False
        specs = self._make()
        self._sim.world.probes["gang"] += 1
        states = client.post_tasks(specs)
        client.hold_gang(states, specs)
        return True

    def _make(self) -> list[Spec]:
        """Make a gang that one worker could hold: so it can run whatever happens to others."""
        rng, plan = self._rng, self._sim.plan
        size = rng.randint(1, max(plan.nthreads, 2) if rng.random() < 0.3 else plan.nthreads)
        size = min(size, plan.nthreads)
        cores = rng.choice([1, 1, 0, 0.5])
        resources = asked_by_cores(cores) if cores != 1 else {"cores": 1.0}
        self._n += 1
        name = f"gang-{self._n}"
        retries = rng.choice([0, 1, 2])
        culprit = rng.randrange(size) if rng.random() < 0.4 else -1
        n_raises = rng.choice([1, ALWAYS])
        priority = rng.choice([0, 0, 3])
        specs = []
        for rank in range(size):
            index = len(self._sim.graph.by_key)
            spec = Spec(
                index=index,
                key=f"{name}-{rank}",
                function="member",
                dependencies=[],
                duration=rng.expovariate(1.0) * plan.duration,
                nbytes=rng.choice([8, 1000]),
                n_raises=n_raises if rank == culprit else 0,
                kills=False,
                spec_hash=None,
                args=f"args-{index}".encode(),
                retries=retries,
                resources=resources,
                priority=priority,
                gang=[name, str(rank), str(size)],
            )
            self._sim.graph.add_member(spec)
            specs.append(spec)
        keys = dict.fromkeys(spec.key for spec in specs)
        for spec in specs:
            spec.ancestors = keys
            if culprit >= 0:
                spec.culprits = {specs[culprit].key: None}
        self.by_name[name] = specs
        return specs

    def whole(self, futures: list[Future], held: list[Future]) -> list[Future]:
        """Return futures, and those of the same gangs: the futures of a gang live together."""
        names = {future.spec.gang[0] for future in futures if future.spec.gang}
        chosen = {id(future) for future in futures}
        others = [f for f in held if f.spec.gang and f.spec.gang[0] in names]
        return futures + [f for f in others if id(f) not in chosen]

    def note_cancelled(self, spec: Spec) -> None:
        """Note that a member is cancelled, and all others with it."""
        for other in self.by_name.get(spec.gang[0] if spec.gang else "", ()):
            self._sim.cancelled[other.key] = None
            self._sim.forced[other.key] = None

    def wait_for_members(self, core: SchedulerState) -> bool:
        """Return whether a gang will be given up unless its other members come."""
        lone = [gang.lone for gang in gangs_of(core).by_name.values()]
        return any(deadline is not None and deadline.is_pending for deadline in lone)

    def note_start(self, task: WorkerTask, spec: Spec) -> None:
        """Check what an execution of a member was told; its result as a constant is none."""
        if not spec.gang or spec.function == CONSTANT:
            return
        name, rank, *workers = task.together
        assert rank == spec.gang[1]
        assert len(workers) == int(spec.gang[2])
        known = self._runs.setdefault(name, (spec.gang[0], workers))
        assert known == (spec.gang[0], workers), f"{task!r} was told of others than the rest"
        self._sim.world.probes["member of a gang"] += 1

    def has_lost(self, spec: Spec, failure: Failure) -> bool:
        """Return whether there is a reason that a gang could not run again."""
        forgot = self._sim.n_restarts or self._sim.scheduler.core.counters.clients_expired
        limited = self._sim.plan.limits["scheduler.user_tasks"]
        return bool(spec.gang and "gang" in str(failure[2]) and (forgot or limited))
