"""The queue of ready tasks, ordered by (priority, attempt).

The scheduler sends tasks in about the order in which they are to run, so nearly all are appended to
a sorted run and taken from its front, in constant time; only what comes out of order goes through a
heap. Removal is lazy: a task that has left the state "ready" is skipped when it is found.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from .tasks import WorkerTask


class ReadyQueue:
    """All tasks in state "ready", and litter."""

    __slots__ = ("_heap", "_run", "n")

    def __init__(self) -> None:
        #: Number of tasks in state "ready".
        self.n = 0
        #: Sorted by (priority, attempt).
        self._run: deque[WorkerTask] = deque()
        #: A heap of (priority, attempt, task). A task is in one of the two, once.
        self._heap: list[tuple[int, int, WorkerTask]] = []

    def push(self, task: WorkerTask) -> None:
        """Make `task` ready."""
        task.state = "ready"
        self.n += 1
        run = self._run
        if not run:
            run.append(task)
            return
        last = run[-1]
        priority = task.priority
        if priority > last.priority or (priority == last.priority and task.attempt > last.attempt):
            run.append(task)
            return
        first = run[0]
        if priority < first.priority or (
            priority == first.priority and task.attempt < first.attempt
        ):
            run.appendleft(task)
            return
        heapq.heappush(self._heap, (priority, task.attempt, task))

    def pop(self) -> WorkerTask:
        """Take the task that is to run first; its caller changes its state. Needs `n > 0`."""
        run = self._run
        heap = self._heap
        while True:
            if not heap or (run and (run[0].priority, run[0].attempt) < heap[0][:2]):
                task = run.popleft()
            else:
                task = heapq.heappop(heap)[2]
            if task.state == "ready":
                self.n -= 1
                return task

    def removed(self) -> None:
        """Count one task that has left the state "ready" by itself."""
        self.n -= 1
        # A slot that is busy for long must not let litter pile up.
        if len(self._run) + len(self._heap) > 2 * self.n + 64:
            live = sorted(self, key=lambda task: (task.priority, task.attempt))
            self._run = deque(live)
            self._heap = []

    def __iter__(self) -> Iterator[WorkerTask]:
        """Yield the ready tasks, in no order worth mentioning (but always the same)."""
        for task in self._run:
            if task.state == "ready":
                yield task
        for _, _, task in self._heap:
            if task.state == "ready":
                yield task


def worst_first(tasks: Iterable[WorkerTask]) -> list[tuple[int, int]]:
    """Make a heap of (-priority, -attempt): of those that no local task depends on, the last."""
    heap = [(-task.priority, -task.attempt) for task in tasks if not task.pins]
    heapq.heapify(heap)
    return heap
