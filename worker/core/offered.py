"""What this worker offers of each resource, and the tasks that wait until enough of it is free.

The scheduler assigns such tasks ahead, as all others. They begin only here, where it is known what
runs: a slot *takes* the amounts of its chunk, whose tasks all ask for the same, and has them until
the chunk is done. So it has them also while its task waits for something, and while a task runs
that was dropped. Never do running tasks ask for more than this worker offers.

The ready tasks that ask for the same amounts have a queue of their own. One whose amounts are not
free is passed over, so no task waits for another one that cannot begin. Large amounts therefore
wait while small ones keep coming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, TypeAlias

from .ready import ReadyTasks
from .tasks import Slot, WorkerTask

#: (name, amount) of each resource, sorted; no amount is 0. () = nothing is asked for.
Amounts: TypeAlias = tuple[tuple[str, float], ...]

#: Rounded sums and differences of amounts with so many decimals are exact, as in the scheduler.
DIGITS: Final = 9
#: Seven tenths divided by a tenth are not quite seven.
_MARGIN: Final = 1e-6


def amounts_of(resources: Mapping[str, float]) -> Amounts:
    """Return the amounts of an option `resources`, as the scheduler counts them."""
    rounded = ((name, round(float(amount), DIGITS)) for name, amount in resources.items())
    return tuple(sorted((name, amount) for name, amount in rounded if amount > 0))


class Offered:
    """The resources of a worker."""

    __slots__ = ("asked", "free", "n", "queues", "total")

    def __init__(self, resources: Mapping[str, float], plain: ReadyTasks) -> None:
        self.total = {name: round(float(n), DIGITS) for name, n in resources.items()}
        #: `total` minus the amounts that slots have, >= 0.
        self.free = dict(self.total)
        #: {attempt: amounts}. All and only unfinished tasks that ask for some.
        self.asked: dict[int, Amounts] = {}
        #: {amounts: the ready tasks that ask for them}, the one that was served longest ago first.
        #: () has those that ask for nothing, and stays; no other is empty.
        self.queues: dict[Amounts, ReadyTasks] = {(): plain}
        #: Number of tasks in them, apart from those that ask for nothing.
        self.n = 0

    def push(self, *tasks: WorkerTask) -> None:
        """Add ready tasks to the queues of their amounts."""
        asked, queues = self.asked, self.queues
        for amounts, like in groupby(tasks, lambda task: asked.get(task.attempt, ())):
            queue = queues.get(amounts)
            if queue is None:
                queue = queues[amounts] = ReadyTasks()
            n = queue.n
            queue.push(*like)
            if amounts:
                self.n += queue.n - n

    def removed(self, task: WorkerTask) -> None:
        """Count one task that has left the state "ready" by itself."""
        amounts = self.asked.get(task.attempt, ())
        queue = self.queues[amounts]
        queue.removed(task)
        if amounts:
            self.n -= 1
            if not queue.n:
                del self.queues[amounts]

    def fit(self, amounts: Amounts) -> bool:
        """Return whether so much is free."""
        free = self.free
        return all(free.get(name, 0.0) >= amount for name, amount in amounts)

    def next_queue(self) -> tuple[Amounts, ReadyTasks] | None:
        """Return a queue with tasks that may begin, and their amounts.

        The best user priority comes first, then the queue that was served longest ago.
        """
        best: tuple[Amounts, ReadyTasks] | None = None
        best_level = 0
        for amounts, queue in self.queues.items():
            if queue.n and self.fit(amounts):
                level = queue.rotation.best_level()
                assert level is not None, "it has tasks"
                if best is None or level < best_level:
                    best, best_level = (amounts, queue), level
        return best

    def n_at_once(self, amounts: Amounts, n_slots: int) -> int:
        """Return how many of so many slots may run tasks with these amounts, which are free."""
        ratios = [self.free[name] / amount for name, amount in amounts]
        return min([n_slots, *(int(ratio + _MARGIN) for ratio in ratios)])

    def take(self, slot: Slot, amounts: Amounts) -> None:
        """Let a slot have amounts that are free."""
        for name, amount in amounts:
            self.free[name] = round(self.free[name] - amount, DIGITS)
        slot.amounts = amounts

    def give_back(self, slot: Slot) -> None:
        """Free what a slot has, whose chunk is done."""
        for name, amount in slot.amounts:
            self.free[name] = round(self.free[name] + amount, DIGITS)
        slot.amounts = ()

    def served(self, amounts: Amounts, n: int) -> None:
        """Note that `n` tasks of a queue were taken: it is the last one now."""
        queue = self.queues.pop(amounts)
        if queue.n or not amounts:
            self.queues[amounts] = queue
        if amounts:
            self.n -= n

    def __iter__(self) -> Iterator[WorkerTask]:
        """Yield all ready tasks, also those that ask for nothing."""
        for queue in self.queues.values():
            yield from queue
