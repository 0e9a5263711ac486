"""Faults of a running cluster: drawn from a seed, one every 0.3 to 2 seconds."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import psutil

from .cluster import N_WORKERS, Cluster, Host
from .orders import Orders

#: {kind: how often, relative to the others}
KINDS = {
    "worker killed": 4,
    "scheduler killed": 1,
    "supervisor killed": 1,
    "spawner killed": 1,
    "worker suspended": 2,
    "supervisor suspended": 1,
    "host suspended": 1,
    "connection reset": 4,
    "host's connections reset": 1,
    "connection stalled": 3,
    "host's connections stalled": 1,
    "client's connection reset": 2,
    "client's connection stalled": 1,
    "refused for a while": 1,
    "worker drained": 2,
    "host drained": 1,
    "workers retired": 2,
}
INTERVAL_S = (0.3, 2.0)
SUSPENDED_S = (5.0, 40.0)
STALLED_S = (0.5, 40.0)
REFUSED_S = (0.5, 5.0)
RESTARTED_S = (0.0, 3.0)
#: How long after an order to leave the cluster is scaled back, as such workers are not replaced.
SCALED_S = (0.0, 10.0)
#: Workers of one order, and the share of orders that lose what has no room elsewhere.
MAX_RETIRED = 3
P_DROP = 0.2
#: The directions of a connection that are held up: one of them, or more often both.
DIRECTIONS = ([0], [1], [0, 1], [0, 1])


class Troubles:
    """Causes the next fault whenever it is due. One number of the seed's stream decides each step,
    however many processes there are when it comes, so that a seed stands for one plan.
    """

    def __init__(
        self,
        seed: int,
        cluster: Cluster,
        orders: Orders,
        n_clients: int,
        say: Callable[[str], None],
    ) -> None:
        self._rng = random.Random(f"troubles {seed}")
        self._cluster = cluster
        self._orders = orders
        #: when the cluster gets its size again, if it is too small
        self._scaled = 0.0
        self._n_clients = n_clients
        self._say = say
        self._next = time.monotonic() + self._rng.uniform(*INTERVAL_S)
        #: {process: when it is to go on}
        self._suspended: dict[psutil.Process, float] = {}
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """Cause the faults that are due by now."""
        now = time.monotonic()
        self._cluster.look()
        self.mend(now)
        if now >= self._next:
            self._next = now + self._rng.uniform(*INTERVAL_S)
            kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
            rng = random.Random(self._rng.random())
            what = self._do(kind, rng, now)
            if what:
                self.done[kind] += 1
                self._say(f"{kind}: {what}")

    def mend(self, now: float) -> None:
        """Continue processes that were suspended for long enough, and start hosts that are due."""
        for process, until in list(self._suspended.items()):
            if now >= until:
                del self._suspended[process]
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)
        for host in self._cluster.hosts:
            if host.daemon is not None and host.daemon.process.poll() is None:
                continue
            if host.daemon is not None:
                # Its last processes are about to end; none may be there for ever.
                host.daemon, host.due = None, now + self._rng.uniform(*RESTARTED_S)
            elif now >= host.due:
                self._cluster.start(host)
        if self._orders.is_small and now >= self._scaled:
            self._scaled = now + SCALED_S[1]
            self._orders.scale(N_WORKERS * len(self._cluster.hosts))

    def heal(self) -> None:
        """End all trouble, and start the hosts and workers that do not run."""
        self._orders.is_small, self._scaled = True, 0.0
        self._suspended.clear()
        self._cluster.resume_all()
        assert self._cluster.proxy is not None
        self._cluster.proxy.heal()

    def _do(self, kind: str, rng: random.Random, now: float) -> str:
        proxy = self._cluster.proxy
        assert proxy is not None
        host = rng.choice(self._cluster.hosts)
        client = f"client-{rng.randrange(self._n_clients)}"
        if kind == "scheduler killed":
            return self._cluster.kill_scheduler()
        if kind.endswith(("drained", "retired")):
            self._orders.is_small = True
            self._scaled = now + rng.uniform(*SCALED_S)
        if kind == "workers retired":
            return self._orders.retire(rng.randint(1, MAX_RETIRED), drop=rng.random() < P_DROP)
        if kind.endswith("drained"):
            return self._end(kind.split(maxsplit=1)[0], host, rng, signal.SIGTERM)
        if kind.endswith("killed"):
            return self._end(kind.split(maxsplit=1)[0], host, rng, signal.SIGKILL)
        if kind.endswith("suspended"):
            return self._suspend(kind.split(maxsplit=1)[0], host, rng, now)
        if kind.startswith("refused"):
            seconds = rng.uniform(*REFUSED_S)
            party = rng.choice([host.name, client])
            return f"{party}, {seconds:.1f} s, {proxy.refuse(party, seconds)} connections"
        party = client if kind.startswith("client") else host.name
        which = None if kind.startswith("host") else rng.random()
        if kind.endswith("reset"):
            n = proxy.reset(party, which)
            return f"{party}, {n} connections" if n else ""
        seconds, directions = rng.uniform(*STALLED_S), rng.choice(DIRECTIONS)
        n = proxy.stall(party, which, directions, seconds)
        return f"{party}, {n} connections, {seconds:.1f} s, directions {directions}" if n else ""

    def _end(self, what: str, host: Host, rng: random.Random, number: signal.Signals) -> str:
        victim: psutil.Process | None
        if what == "worker":
            workers = host.workers()
            victim = rng.choice(workers) if workers else None
        elif what == "supervisor":
            victim = host.supervisor()
        else:
            victim = next(iter(host.family()), None)
        if victim is None:
            return ""
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(number)
            return f"{host.name}, process {victim.pid}"
        return ""

    def _suspend(self, what: str, host: Host, rng: random.Random, now: float) -> str:
        if what == "worker":
            workers = host.workers()
            victims = [rng.choice(workers)] if workers else []
        elif what == "supervisor":
            supervisor = host.supervisor()
            victims = [supervisor] if supervisor is not None else []
        else:
            victims = host.family()
        seconds = rng.uniform(*SUSPENDED_S)
        pids = []
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGSTOP)
                self._suspended[victim] = now + seconds
                pids.append(victim.pid)
        return f"{host.name}, {seconds:.1f} s, processes {pids}" if pids else ""
