"""How many inputs cross from one worker to another: the scheduler's core, and workers in virtual
time.

    python -m benchmarks.crossing --workers 2 --task-us 640

A worker runs what it can start, best priority first, one task at a time per thread, fetches inputs
in `FETCH_S`, and reports each task at once. So a run is determined by its arguments, and shows what
the placement costs and nothing else: the inputs that were fetched, and the time beyond the ideal.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import Event, PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

from .bench_scheduler import CLIENT, submissions, worker_hello

#: An input of a peer is there after this time, and a message to or from the scheduler, seconds.
FETCH_S: Final = 0.0005
MESSAGE_S: Final = 0.0002

Graph = dict[str, list[str]]


def stencil(width: int = 16, steps: int = 60) -> Graph:
    """Each task reads its left neighbour, itself and its right neighbour of the row before."""
    graph: Graph = {}
    for step in range(steps):
        for x in range(width):
            row = [i for i in (x - 1, x, x + 1) if 0 <= i < width] if step else []
            graph[f"s-{step}-{x}"] = [f"s-{step - 1}-{i}" for i in row]
    return graph


def tree(leaves: int = 1024) -> Graph:
    """A reduction by pairs."""
    graph: Graph = {f"t-0-{i}": [] for i in range(leaves)}
    level = 0
    while leaves > 1:
        leaves //= 2
        for i in range(leaves):
            graph[f"t-{level + 1}-{i}"] = [f"t-{level}-{2 * i}", f"t-{level}-{2 * i + 1}"]
        level += 1
    return graph


def chains(n: int = 16, length: int = 60) -> Graph:
    """Chains that do not depend on each other, submitted step by step."""
    return {
        f"c-{step}-{i}": [f"c-{step - 1}-{i}"] if step else []
        for step in range(length)
        for i in range(n)
    }


def shuffle(n: int = 24) -> Graph:
    """Each of n tasks reads all of the n before."""
    first = {f"in-{i}": [] for i in range(n)}
    parts = {f"part-{i}-{j}": [f"in-{i}"] for i in range(n) for j in range(n)}
    return {**first, **parts, **{f"out-{j}": [f"part-{i}-{j}" for i in range(n)] for j in range(n)}}


def layers(n: int = 1000) -> Graph:
    """Random tasks with up to three inputs among the last 50."""
    rng = random.Random(7)
    keys: list[str] = []
    graph: Graph = {}
    for i in range(n):
        near = keys[-50:]
        graph[f"r-{i}"] = rng.sample(near, min(len(near), rng.choice([0, 1, 2, 3])))
        keys.append(f"r-{i}")
    return graph


GRAPHS: Final[dict[str, Callable[[], Graph]]] = {
    "stencil 16 x 60": stencil,
    "chains 16 x 60": chains,
    "tree of 1 024": tree,
    "shuffle of 24": shuffle,
    "random 1 000": layers,
}


class _Worker:
    """A single-thread worker."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.running: int | None = None
        self.held: set[str] = set()
        #: {attempt: (priority, key, inputs that are not here)} of what was not started
        self.waiting: dict[int, tuple[int, str, set[str]]] = {}
        self.ready: list[tuple[int, int, str]] = []
        self.fetching: set[str] = set()


class Crossing:
    """One run."""

    def __init__(self, graph: Graph, n_workers: int, task_s: float) -> None:
        self.graph, self.task_s = graph, task_s
        self.state = SchedulerState(epoch=1, features=FEATURES)
        self.now = 0.0
        self.n_fetched = 0
        self.n_done = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0
        self.workers = {peer: _Worker(peer) for peer in range(2, 2 + n_workers)}
        self._play(PeerConnected(CLIENT, Role.CLIENT, Level.CLIENT))
        hello = m.RegisterClient(client_id="c", name="c", session=1, last_epoch=0, facts={})
        self._play(PeerSent(CLIENT, [hello]))
        for peer in self.workers:
            self._play(PeerConnected(peer, Role.WORKER, Level.WORKER))
            self._play(PeerSent(peer, [worker_hello(peer)]))

    def run(self) -> None:
        """Submit the graph at once, and let all tasks end."""
        for message in submissions([*self.graph], [*self.graph.values()]):
            self._play(PeerSent(CLIENT, [message]))
        while self.n_done < len(self.graph):
            due = max(self.state.next_deadline, self.now)
            if self._heap and self._heap[0][0] <= due:
                self.now, _, what = heappop(self._heap)
                what()
            else:
                self.now = due
                self._play(SchedulerTick())

    def _at(self, delay: float, what: Callable[[], None]) -> None:
        self._n += 1
        heappush(self._heap, (self.now + delay, self._n, what))

    def _play(self, event: Event) -> None:
        self.state.handle(event, self.now)
        self.state.after.clear()
        outboxes, self.state.outboxes = self.state.outboxes, {}
        for peer, messages in outboxes.items():
            if peer in self.workers:
                self._at(MESSAGE_S, lambda p=peer, x=messages: self._deliver(self.workers[p], x))

    def _report(self, ws: _Worker, message: Message) -> None:
        self._at(MESSAGE_S, lambda: self._play(PeerSent(ws.peer, [message])))

    def _deliver(self, ws: _Worker, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, m.AssignTasks):
                self._assign(ws, message)
            elif isinstance(message, m.ReturnAttempts):
                self._return(ws, message.count)
            elif isinstance(message, m.DropAttempts):
                ended = [a for a in message.attempts if ws.waiting.pop(a, None) is not None]
                ws.ready = sorted(entry for entry in ws.ready if entry[1] in ws.waiting)
                if ended:
                    self._report(ws, m.AttemptsEnded(attempts=ended))
        self._start(ws)

    def _assign(self, ws: _Worker, message: m.AssignTasks) -> None:
        located = dict(zip(message.located_keys, message.located_attempts, strict=True))
        for key in located:
            if key not in ws.held and key not in ws.fetching:
                ws.fetching.add(key)
                self._at(FETCH_S, lambda k=key: self._fetched(ws, k, located[k]))
        needs = message.dependencies or [[] for _ in message.keys]
        for row, attempt in enumerate(message.attempts):
            missing = {key for key in needs[row] if key not in ws.held}
            entry = (message.priorities[row], message.keys[row], missing)
            ws.waiting[attempt] = entry
            if not missing:
                heappush(ws.ready, (entry[0], attempt, entry[1]))

    def _return(self, ws: _Worker, count: int) -> None:
        last = [*ws.waiting][-count:]
        for attempt in last:
            del ws.waiting[attempt]
        ws.ready = sorted(entry for entry in ws.ready if entry[1] in ws.waiting)
        self._report(ws, m.AttemptsReturned(attempts=last))

    def _fetched(self, ws: _Worker, key: str, attempt: int) -> None:
        ws.fetching.discard(key)
        if key not in ws.held:
            self.n_fetched += 1
            self._report(ws, m.ReplicasAdded(attempts=[attempt], keys=[key]))
            self._hold(ws, key)
            self._start(ws)

    def _hold(self, ws: _Worker, key: str) -> None:
        ws.held.add(key)
        for attempt, (priority, own, missing) in ws.waiting.items():
            if key in missing:
                missing.discard(key)
                if not missing:
                    heappush(ws.ready, (priority, attempt, own))

    def _start(self, ws: _Worker) -> None:
        if ws.running is None and ws.ready:
            _, attempt, key = heappop(ws.ready)
            del ws.waiting[attempt]
            ws.running = attempt
            self._at(self.task_s, lambda: self._finish(ws, attempt, key))

    def _finish(self, ws: _Worker, attempt: int, key: str) -> None:
        ws.running = None
        self.n_done += 1
        report = m.AttemptsFinished(
            attempts=[attempt], nbytes=[28], durations_us=[int(self.task_s * 1e6)], results=[None]
        )
        self._report(ws, report)
        self._hold(ws, key)
        self._start(ws)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossing")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--task-us", type=float, default=640.0, metavar="US")
    options = parser.parse_args()
    print(f"{options.workers} workers, tasks of {options.task_us:g} us")
    for name, make in GRAPHS.items():
        graph = make()
        run = Crossing(graph, options.workers, options.task_us * 1e-6)
        run.run()
        n_edges = sum(map(len, graph.values()))
        ideal_s = len(graph) * run.task_s / options.workers
        print(
            f"{name}: {run.n_fetched} of {n_edges} inputs fetched, "
            f"{run.now / ideal_s:.2f} times the ideal time",
            flush=True,
        )


if __name__ == "__main__":
    main()
