"""How many results workers hold at most while the scheduler's core runs a graph, by its ranks.

The other half of `bench_order`: workers take 100 ms for each task, one at a time, and the scheduler
is given no ranks, those of the order in which a client submits, or those of `dask.order`.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from weft.graphs.core.reading import read_graph
from weft.graphs.core.state import finish
from weft.graphs.core.tasks import GraphTask
from weft.graphs.dask_graphs import node_types
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import Event, PeerConnected, PeerSent
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.records.tasks import MEMORY
from weft.scheduler.core.state import SchedulerState

from .bench_scheduler import BATCH, CLIENT, submissions, worker_hello

_TASK_S: Final = 0.1


def tree(n_leaves: int, n_inputs: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return a reduction of `n_leaves` by sums of `n_inputs`, and its key."""
    dsk: dict[Any, Any] = {("leaf", i): (abs, i) for i in range(n_leaves)}
    level: list[Any] = list(dsk)
    depth = 0
    while len(level) > 1:
        depth += 1
        parts = [level[i : i + n_inputs] for i in range(0, len(level), n_inputs)]
        level = [(f"level-{depth}", i) for i in range(len(parts))]
        dsk.update(zip(level, [(operator.length_hint, part) for part in parts], strict=True))
    return dsk, level


class Rows:
    """The tasks of a graph in the order in which a client submits them."""

    def __init__(self, dsk: Mapping[Any, Any], wanted: list[Any]) -> None:
        graph = read_graph(dsk, wanted, node_types=node_types())
        numbers: dict[GraphTask, int] = {}
        self.keys: list[str] = []
        self.of_graph: list[Any] = []
        self.needs: list[list[str]] = []
        used: set[str] = set()
        ready, dropped = graph.sources, list[Any]()
        while ready:
            task = ready.pop()
            needs = dict.fromkeys(f"t{numbers[one]}" for one in task.dependencies)
            numbers[task] = len(numbers)
            self.keys.append(f"t{numbers[task]}")
            self.of_graph.append(task.key)
            self.needs.append(list(needs))
            used.update(needs)
            finish(task, None, ready, dropped)
            dropped.clear()
        self.inner = [key for key in self.keys if key in used]


class Run:
    """One run of the rows on workers of one thread each."""

    def __init__(self, rows: Rows, ranks: list[int], n_workers: int) -> None:
        self._state = SchedulerState(epoch=1, features=FEATURES)
        self._now = 0.0
        self._assigned: dict[int, deque[int]] = {}
        self._answers: deque[PeerSent] = deque()
        self._play(PeerConnected(CLIENT, Role.CLIENT, Level.CLIENT))
        hello = m.RegisterClient(client_id="c", name="c", session=1, last_epoch=0, facts={})
        self._play(PeerSent(CLIENT, [hello]))
        for peer in range(CLIENT + 1, CLIENT + 1 + n_workers):
            self._assigned[peer] = deque()
            self._play(PeerConnected(peer, Role.WORKER, Level.WORKER))
            self._play(PeerSent(peer, [worker_hello(peer)]))
        for i, message in enumerate(submissions(rows.keys, rows.needs)):
            assert isinstance(message, m.SubmitTasks)
            message.ranks = ranks[i * BATCH : (i + 1) * BATCH]
            self._play(PeerSent(CLIENT, [message]))
        self._play(PeerSent(CLIENT, [m.ReleaseKeys(keys=rows.inner)]))

    def finish(self) -> int:
        """Run all tasks; return the largest number of results that were held at once."""
        peak = 0
        tasks = self._state.tasks
        while any(self._assigned.values()):
            self._now += _TASK_S
            for peer, attempts in self._assigned.items():
                if attempts:
                    done = m.AttemptsFinished(
                        attempts=[attempts.popleft()],
                        nbytes=[1000],
                        durations_us=[int(_TASK_S * 1e6)],
                        results=[None],
                    )
                    self._answers.append(PeerSent(peer, [done]))
            while self._answers:
                self._play(self._answers.popleft())
            peak = max(peak, sum(task.state == MEMORY for task in tasks.values()))
        return peak

    def _play(self, event: Event) -> None:
        self._state.handle(event, self._now)
        self._state.after.clear()
        outboxes, self._state.outboxes = self._state.outboxes, {}
        for peer, box in outboxes.items():
            if peer != CLIENT:
                for message in box:
                    self._receive(peer, message)

    def _receive(self, peer: int, message: Message) -> None:
        assigned = self._assigned[peer]
        if isinstance(message, m.AssignTasks):
            assigned.extend(message.attempts)
            if message.located_keys:
                copies = m.ReplicasAdded(
                    attempts=message.located_attempts, keys=message.located_keys
                )
                self._answers.append(PeerSent(peer, [copies]))
        elif isinstance(message, m.ReturnAttempts):
            n = min(message.count, len(assigned))
            back = m.AttemptsReturned(attempts=[assigned.pop() for _ in range(n)])
            self._answers.append(PeerSent(peer, [back]))


def peaks(dsk: Mapping[Any, Any], wanted: Any, order: Mapping[Any, int], n: int) -> list[int]:
    """Return the largest numbers of results: without ranks, by the submission, by `order`."""
    rows = Rows(dsk, wanted)
    ranks = [[], list(range(len(rows.keys))), [order[key] for key in rows.of_graph]]
    return [Run(rows, one, n).finish() for one in ranks]
