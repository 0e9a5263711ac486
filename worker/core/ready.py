"""The ready tasks: best user priority first, then clients in turns, each by (priority, attempt).

Each client has a lane at each user priority (`protocol/rotation.py`), and a chunk is of one lane:
the tasks of one client wait for one chunk of another client, not for all of its backlog.

The scheduler sends tasks in about the order in which they are to run, so nearly all are appended to
a sorted run and taken from its front, in constant time; only tasks that come out of order go
through a heap. Removal is lazy: an entry whose task has left the state "ready" is called litter,
and is skipped when it is found.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from ...protocol.rotation import LEVEL_SHIFT, Rotation, level_of
from .tasks import READY, WorkerTask


class ReadyLane:
    """The ready tasks of one client at one user priority, and litter."""

    __slots__ = ("heap", "n", "run")

    def __init__(self) -> None:
        #: Number of its tasks in state "ready".
        self.n = 0
        #: Sorted by (priority, attempt).
        self.run: deque[WorkerTask] = deque()
        #: A heap of (priority, attempt, task). A task is in one of the two, once.
        self.heap: list[tuple[int, int, WorkerTask]] = []

    def push(self, task: WorkerTask) -> None:
        """Put a task into the run, which has some, if it keeps the order, else into the heap."""
        run = self.run
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
        heapq.heappush(self.heap, (priority, task.attempt, task))

    def sweep(self) -> None:
        """Remove the litter."""
        live = sorted(self, key=lambda task: (task.priority, task.attempt))
        self.run = deque(live)
        self.heap = []

    def __iter__(self) -> Iterator[WorkerTask]:
        for task in self.run:
            if task.state == READY:
                yield task
        for _, _, task in self.heap:
            if task.state == READY:
                yield task


class ReadyTasks:
    """All tasks in state "ready", and litter."""

    __slots__ = ("_lane", "n", "rotation")

    def __init__(self) -> None:
        #: Number of tasks in state "ready".
        self.n = 0
        self.rotation: Rotation[ReadyLane] = Rotation()
        #: The lane of the client whose turn it is.
        self._lane: ReadyLane | None = None

    def push(self, *tasks: WorkerTask) -> None:
        """Add tasks that are in state "ready", or are so at once."""
        self.n += len(tasks)
        lane: ReadyLane | None = None
        client = level = -1
        for task in tasks:
            priority = task.priority
            if lane is None or task.client != client or priority >> LEVEL_SHIFT != level:
                client, level = task.client, priority >> LEVEL_SHIFT  # `level_of`, in a hot lane
                lane = self.rotation.lanes.get((level, client))
                if lane is None:
                    lane = ReadyLane()
                    self.rotation.enrol(level, client, lane)
            run = lane.run
            lane.n += 1
            if not run or priority > run[-1].priority:
                run.append(task)
            else:
                lane.push(task)

    def turn(self) -> int:
        """Give the next client its turn; return how many tasks it has. Needs `n > 0`."""
        self._lane = lane = self.rotation.turn()
        assert lane is not None, "n > 0"
        return lane.n

    def pop(self) -> WorkerTask:
        """Take the first task of the lane whose turn it is.

        The caller changes its state, and takes no more tasks than `turn` returned.
        """
        lane = self._lane
        assert lane is not None, "turn comes first"
        run = lane.run
        heap = lane.heap
        while True:
            if not heap or (run and (run[0].priority, run[0].attempt) < heap[0][:2]):
                task = run.popleft()
            else:
                task = heapq.heappop(heap)[2]
            if task.state == READY:
                self.n -= 1
                lane.n -= 1
                if not self.n and (run or heap or len(self.rotation.lanes) > 1):
                    self._end()
                return task

    def removed(self, task: WorkerTask) -> None:
        """Count one task that has left the state "ready" by itself."""
        self.n -= 1
        lane = self.rotation.lanes[level_of(task.priority), task.client]
        lane.n -= 1
        # Litter must not pile up while a slot is busy for long.
        if len(lane.run) + len(lane.heap) > 2 * lane.n + 64:
            lane.sweep()
        if not self.n:
            self._end()

    def _end(self) -> None:
        """Remove the litter, and all lanes but a single one: no task is ready."""
        lane = self.rotation.drop_lanes()
        if lane is not None and (lane.run or lane.heap):
            lane.run.clear()
            lane.heap.clear()

    def __iter__(self) -> Iterator[WorkerTask]:
        """Yield the ready tasks, in an arbitrary order that is the same in each run."""
        for lane in self.rotation.lanes.values():
            yield from lane


def worst_first(tasks: Iterable[WorkerTask]) -> list[tuple[int, int]]:
    """Make a heap of (-priority, -attempt) of the tasks that no task here depends on."""
    heap = [(-task.priority, -task.attempt) for task in tasks if not task.pins]
    heapq.heapify(heap)
    return heap
