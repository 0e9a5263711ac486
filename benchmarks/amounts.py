"""Measures what it costs that tasks ask for resources: rates, and the time of the scheduler.

- *plenty*: no-op tasks with 1 of a resource, on workers that offer a million, beside the same map
  without. The goal is 0.9 of its rate.
- *scarce*: tasks of 1 ms with 1 of a resource, of which each of two workers offers one. The goal is
  half of what the units allow.
- *distinct*: 2 000 tasks of 2 ms, each with an amount of its own; the scheduler's core alone. The
  goal is 50 us for each event.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from typing import Any, Final

import weft
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import PeerConnected, PeerSent
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

from .framework import machine
from .framework.driving import ROOT
from .tasks import inc

N_WORKERS: Final = 2
PLENTY: Final = 1e6
TASK_S: Final = 0.001
CLIENT: Final = 1
#: The tasks of *distinct* take this long, by the worker's report.
TASK_US: Final = 2000
#: The least and the largest amount of *distinct*, as parts of what a worker offers.
SPREADS: Final = {"one fits": (0.51, 0.52), "all fit": (0.001, 0.002), "mixed": (0.001, 1.0)}
OFFERED: Final = 1e9
_ARGS: Final = b"\x80\x05]."


def rate(client: weft.Client, function: Any, n: int, resources: dict[str, float] | None) -> float:
    """Map a function over n values; return the tasks per second until all have ended."""
    start = time.perf_counter()
    futures = client.map(function, range(n), pure=False, resources=resources)
    weft.wait(futures)
    return n / (time.perf_counter() - start)


def nap(_i: int) -> None:
    time.sleep(TASK_S)


def measure_plenty(n: int, n_rounds: int) -> str:
    """Compare maps with and without a resource that is never scarce, in turns."""
    with (
        weft.LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, resources={"R": PLENTY}
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(N_WORKERS)
        rate(client, inc, n // 4, None)
        rate(client, inc, n // 4, {"R": 1})
        plain: list[float] = []
        asking: list[float] = []
        for _ in range(n_rounds):
            plain.append(rate(client, inc, n, None))
            asking.append(rate(client, inc, n, {"R": 1}))
    ratio = statistics.median(a / p for a, p in zip(asking, plain, strict=True))
    return (
        f"plenty: {statistics.median(asking):,.0f} tasks/s, without {statistics.median(plain):,.0f}"
        f": {ratio:.2f} of it (goal 0.9)"
    )


def measure_scarce(n: int, n_rounds: int, threads: int) -> str:
    """Measure the rate of tasks of 1 ms, of which each worker may run one at a time."""
    with (
        weft.LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=threads, resources={"R": 1}
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(N_WORKERS)
        rate(client, nap, n // 4, {"R": 1})
        found = statistics.median(rate(client, nap, n, {"R": 1}) for _ in range(n_rounds))
    share = found / (N_WORKERS / TASK_S)
    return f"scarce, {threads} thread(s): {found:,.0f} tasks/s, {share:.2f} of it (goal 0.5)"


class Distinct:
    """A scheduler's core and two workers that run one task after the other."""

    def __init__(self, n: int, least: float, most: float) -> None:
        self.state = SchedulerState(1, features=FEATURES)
        self.now = 0.0
        self.costs: list[float] = []
        #: per worker: attempts that it has and has not reported
        self.backlogs: dict[int, deque[int]] = {}
        self.handle(PeerConnected(CLIENT, Role.CLIENT, Level.CLIENT))
        hello = m.RegisterClient(client_id="c", name="c", session=1, last_epoch=0, facts={})
        self.handle(PeerSent(CLIENT, [hello]))
        for peer in range(2, 2 + N_WORKERS):
            self.backlogs[peer] = deque()
            self.handle(PeerConnected(peer, Role.WORKER, Level.WORKER))
            self.handle(PeerSent(peer, [_worker_hello(peer)]))
        keys = [f"task-{i}" for i in range(n)]
        step = (most - least) * OFFERED / n
        # Large and small ones in turns, the same in each run.
        amounts = [least * OFFERED + step * (i * 619 % n) for i in range(n)]
        submission = m.SubmitTasks(
            functions=[b"0123456789abcdef"],
            function_names=["nap"],
            function_blobs=[b"a function"],
            function_of=[0] * n,
            keys=keys,
            args=[_ARGS] * n,
            dependencies=[],
            spec_hashes=[],
            options=[{"resources": {"memory": amount}} for amount in amounts],
            option_of=[*range(n)],
        )
        self.handle(PeerSent(CLIENT, [submission]))
        self.costs.clear()

    def handle(self, event: Any) -> None:
        start = time.process_time()
        self.state.handle(event, self.now)
        self.costs.append(time.process_time() - start)
        self.state.after.clear()
        outboxes, self.state.outboxes = self.state.outboxes, {}
        for peer, box in outboxes.items():
            for message in box:
                assert not isinstance(message, m.ReturnAttempts), "much is queued"
                if isinstance(message, m.AssignTasks):
                    self.backlogs[peer].extend(message.attempts)

    def run(self, n: int) -> None:
        """Let the workers report n tasks, one at a time, in turns."""
        for i in range(n):
            self.now += TASK_US * 1e-6 / N_WORKERS
            peer = 2 + i % N_WORKERS
            if not self.backlogs[peer]:
                continue
            report = m.AttemptsFinished(
                attempts=[self.backlogs[peer].popleft()],
                nbytes=[28],
                durations_us=[TASK_US],
                results=[None],
            )
            self.handle(PeerSent(peer, [report]))


def _worker_hello(peer: int) -> m.RegisterWorker:
    return m.RegisterWorker(
        worker_id=f"w{peer}",
        name=f"w{peer}",
        session=1,
        last_epoch=0,
        address=f"tcp://127.0.0.1:{10_000 + peer}",
        nthreads=1,
        memory_limit=0,
        resources={"memory": OFFERED},
        supervisor_id="",
        facts={QUEUES_RESOURCES: True},
    )


def measure_distinct(n: int, spread: str) -> str:
    """Measure the scheduler's time for each event while at least half of the tasks are queued."""
    bench = Distinct(n, *SPREADS[spread])
    bench.run(n // 2)
    n_left = sum(len(c.queue) for c in bench.state.classes.values())
    costs = bench.costs
    mean, median = statistics.mean(costs) * 1e6, statistics.median(costs) * 1e6
    return (
        f"distinct, {spread}: {mean:.1f} us for each of {len(costs)} events, median {median:.1f}, "
        f"worst {max(costs) * 1e6:.0f}, {n_left} still queued (goal 50)"
    )


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.amounts", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    kinds = ["plenty", "scarce", "distinct"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    parser.add_argument("--quick", action="store_true", help="few tasks: does it still run?")
    options = parser.parse_args()
    facts = machine.describe(ROOT)
    print(machine.headline("tasks with resources", facts, {"weft": weft.__version__}))
    shrink, n_rounds = (50, 1) if options.quick else (1, 5)
    if "distinct" in options.only:
        for spread in SPREADS:
            print(measure_distinct(2000 // shrink, spread), flush=True)
    if "plenty" in options.only:
        print(measure_plenty(20_000 // shrink, n_rounds), flush=True)
    if "scarce" in options.only:
        for threads in (1, 4):
            print(measure_scarce(2000 // shrink, n_rounds, threads), flush=True)


if __name__ == "__main__":
    main()
