"""The scheduler's core alone: `SchedulerState` driven in this process by workers that answer at
once.

    python -m benchmarks.bench_scheduler --tasks 200000 --workers 2 --shape map --profile

There are no sockets, no codec and no user code, so the figure is the cost of the scheduler's
decisions: only the CPU time inside `handle` counts. A run submits in batches as a client does,
answers every assignment in the order in which it was made, and releases everything at the end; a
state that still knows a task then is a wrong result.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actions import CloseConnection
from weft.scheduler.core.events import Event, PeerConnected, PeerSent
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

#: Rows per message, about as many as one turn of a client's loop submits.
BATCH = 4096

SHAPES = ("map", "neighbour")

CLIENT = 1
_FIRST_WORKER = 2
_RESULT = b"\x80\x05K\x01."
_ARGS = b"\x80\x05K\x01\x85\x94."


@dataclass(slots=True)
class Outcome:
    """`n_finished` results came to the client in `seconds` of CPU inside the scheduler's core."""

    n_finished: int
    seconds: float
    extra: dict[str, float] = field(default_factory=dict)


class Bench:
    """The other end of every connection."""

    def __init__(self, n_workers: int, n_clients: int = 1, *, keeps_keys: bool = True) -> None:
        self.state = SchedulerState(epoch=1, features=FEATURES)
        self.seconds = 0.0
        self.n_events = 0
        #: Keys whose result came to the client.
        self.results: dict[str, None] = {}
        self._keeps_keys = keeps_keys
        self.n_results = 0
        #: Answers of workers that the scheduler has not read.
        self._answers: deque[PeerSent] = deque()
        self._handle(PeerConnected(CLIENT, Role.CLIENT, Level.CLIENT))
        self._handle(PeerSent(CLIENT, [_client_hello(CLIENT)]))
        first = _FIRST_WORKER + n_workers
        for peer in range(first, first + n_clients - 1):
            self._handle(PeerConnected(peer, Role.CLIENT, Level.CLIENT))
            self._handle(PeerSent(peer, [_client_hello(peer)]))
        self.seconds = 0.0
        for peer in range(_FIRST_WORKER, _FIRST_WORKER + n_workers):
            self._handle(PeerConnected(peer, Role.WORKER, Level.WORKER))
            self._handle(PeerSent(peer, [worker_hello(peer)]))
        self.join_seconds, self.seconds, self.n_events = self.seconds, 0.0, 0

    def run(self, batches: Iterator[Message]) -> None:
        """Feed the client's messages in, each after all earlier answers of the workers."""
        for message in batches:
            self._handle(PeerSent(CLIENT, [message]))
            while self._answers:
                self._handle(self._answers.popleft())

    def _handle(self, event: Event) -> None:
        start = time.process_time()
        self.state.handle(event, start)
        self.seconds += time.process_time() - start
        self.n_events += 1
        refusals = [x.reason for x in self.state.after if isinstance(x, CloseConnection)]
        if refusals:
            raise RuntimeError(f"the scheduler refused a peer: {refusals[0]}")
        self.state.after.clear()
        outboxes, self.state.outboxes = self.state.outboxes, {}
        for peer, box in outboxes.items():
            if peer == CLIENT:
                for message in box:
                    if isinstance(message, m.ResultsReady):
                        self.n_results += len(message.keys)
                        if self._keeps_keys:
                            self.results.update(dict.fromkeys(message.keys))
            else:
                answers = [answer for message in box for answer in answer_to(message)]
                if answers:
                    self._answers.append(PeerSent(peer, answers))


def _client_hello(peer: int) -> Message:
    return m.RegisterClient(client_id=f"c{peer}", name="c", session=1, last_epoch=0, facts={})


def worker_hello(peer: int) -> Message:
    return m.RegisterWorker(
        worker_id=f"w{peer}",
        name=f"w{peer}",
        session=1,
        last_epoch=0,
        address=f"tcp://127.0.0.1:{10_000 + peer}",
        nthreads=1,
        memory_limit=0,
        resources={},
        supervisor_id="",
        facts={},
    )


def answer_to(message: Message) -> Iterator[Message]:
    """Yield the answers of a worker that fetches and computes in no time."""
    if isinstance(message, m.AssignTasks):
        if message.located_keys:
            yield m.ReplicasAdded(attempts=message.located_attempts, keys=message.located_keys)
        n = len(message.keys)
        yield m.AttemptsFinished(
            attempts=message.attempts,
            nbytes=[28] * n,
            durations_us=[1] * n,
            results=[_RESULT if wanted else None for wanted in message.wanted],
        )
    elif isinstance(message, m.ReturnAttempts):
        # All attempts have run, so none is returned.
        yield m.AttemptsReturned(attempts=[])


def submissions(keys: list[str], dependencies: list[list[str]]) -> Iterator[Message]:
    for i in range(0, len(keys), BATCH):
        rows = keys[i : i + BATCH]
        yield m.SubmitTasks(
            functions=[b"0123456789abcdef"],
            function_names=["inc"],
            function_blobs=[b"a function"],
            function_of=[0] * len(rows),
            keys=rows,
            args=[_ARGS] * len(rows),
            dependencies=dependencies[i : i + BATCH],
            spec_hashes=[],
            options=[{}],
        )


def _graph(shape: str, n_tasks: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (keys, dependencies) per layer."""
    if shape == "map":
        yield [f"inc-{i}" for i in range(n_tasks)], []
        return
    n = n_tasks // 2
    first = [f"first-{i}" for i in range(n)]
    yield first, []
    yield (
        [f"second-{i}" for i in range(n)],
        [list(dict.fromkeys((first[i - 1], first[i], first[(i + 1) % n]))) for i in range(n)],
    )


def run(*, n_tasks: int, n_workers: int = 2, shape: str = "map") -> Outcome:
    """Run one graph of about `n_tasks` tasks from submission to release.

    Args:
        n_tasks: how many tasks.
        n_workers: single-thread workers.
        shape: "map" (independent tasks) or "neighbour" (two layers, three dependencies each).
    """
    bench = Bench(n_workers)
    layers = list(_graph(shape, n_tasks))
    batches = [batch for keys, needs in layers for batch in submissions(keys, needs)]
    keys = [key for layer, _ in layers for key in layer]
    gc.collect()
    bench.run(iter(batches))
    submitted_s = bench.seconds
    n_finished = sum(key in bench.results for key in keys)
    releases = [m.ReleaseKeys(keys=keys[i : i + BATCH]) for i in range(0, len(keys), BATCH)]
    bench.run(iter(releases))
    if bench.state.tasks:
        raise RuntimeError(f"{len(bench.state.tasks)} tasks are left after all were released")
    extra = {
        "us_per_task": bench.seconds / len(keys) * 1e6,
        "release_us_per_task": (bench.seconds - submitted_s) / len(keys) * 1e6,
        "events": float(bench.n_events),
    }
    return Outcome(n_finished, bench.seconds, extra)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scheduler")
    parser.add_argument("--tasks", type=int, default=200_000, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--shape", choices=SHAPES, default="map")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--profile", action="store_true", help="print the slowest functions")
    options = parser.parse_args()
    for _ in range(options.repeat):
        outcome = run(n_tasks=options.tasks, n_workers=options.workers, shape=options.shape)
        rate = outcome.n_finished / outcome.seconds
        figures = ", ".join(f"{name} {value:.3g}" for name, value in outcome.extra.items())
        print(f"{rate:,.0f} tasks/s ({outcome.n_finished} finished; {figures})", flush=True)
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(run, n_tasks=options.tasks, n_workers=options.workers, shape=options.shape)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
