"""What this worker offers of each resource, and the tasks that wait until enough of it is free.

The scheduler assigns such tasks ahead, as all others. They begin only here, where it is known what
runs: a slot *takes* the amounts of its chunk, whose tasks all ask for the same, and has them until
the chunk is done. So it has them also while its task waits for something, and while a task runs
that was dropped. Never do running tasks ask for more than this worker offers.

The ready tasks that ask for the same amounts have a queue of their own. One whose amounts are not
free is passed over, so no task waits for another one that cannot begin. Large amounts would wait
for ever while small ones keep coming. So a queue that has been passed over for `PATIENCE_S` is
*favoured*: what it asks for is kept for it, from tasks of no better user priority, until one of its
tasks begins. Nothing is kept while a task that has amounts waits for something: what it waits for
may be able to begin only here.

Cores are seats (`seats.py`). The tasks that name cores take as many seats as the sum of theirs,
rounded up; `n_seats_for` returns the difference that one more makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import ceil
from typing import Final, TypeAlias

from ...protocol.amounts import BESIDE, CORES
from .ready import ReadyTasks
from .tasks import Slot, WorkerTask

#: (name, amount) of each resource, sorted; no amount is 0. () = nothing is asked for.
Amounts: TypeAlias = tuple[tuple[str, float], ...]

#: Rounded sums and differences of amounts with so many decimals are exact, as in the scheduler.
DIGITS: Final = 9
#: Seven tenths divided by a tenth are not quite seven.
_MARGIN: Final = 1e-6
#: The longest time that tasks are passed over for others before what they ask for is kept.
PATIENCE_S: Final = 1.0


def amounts_of(resources: Mapping[str, float]) -> Amounts:
    """Return the amounts of an option `resources`, as the scheduler counts them."""
    rounded = ((name, round(float(amount), DIGITS)) for name, amount in resources.items())
    return tuple(sorted((name, amount) for name, amount in rounded if amount > 0))


def cores_of(amounts: Amounts) -> float | None:
    """Return the cores that amounts name; None = none, so that a task has its seat."""
    for name, amount in amounts:
        if name == CORES:
            return amount
        if name == BESIDE:
            return 0.0
    return None


class Offered:
    """The resources of a worker."""

    __slots__ = ("asked", "free", "n", "passed", "queues", "total")

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
        #: {amounts: since when}, of queues that were passed over because these were not free.
        self.passed: dict[Amounts, float] = {}

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
                self.passed.pop(amounts, None)

    def fit(self, amounts: Amounts) -> bool:
        """Return whether so much is free."""
        free = self.free
        return all(free.get(name, 0.0) >= amount for name, amount in amounts)

    def next_queue(
        self, n_idle: int, now: float, *, may_keep: bool
    ) -> tuple[Amounts, ReadyTasks] | None:
        """Return a queue with tasks that may begin, and their amounts.

        The best user priority comes first, then the queue that was served longest ago.

        Args:
            n_idle: the number of seats that are idle.
            now: seconds.
            may_keep: False = nothing is kept for a favoured queue.
        """
        best: tuple[Amounts, ReadyTasks] | None = None
        best_level = 0
        favoured = self.favoured(now) if may_keep else None
        kept = {name for name, _ in favoured or ()}
        favoured_level = self.queues[favoured].rotation.best_level() if favoured else None
        for amounts, queue in self.queues.items():
            if not queue.n or not self._may_begin(amounts, n_idle):
                continue
            level = queue.rotation.best_level()
            assert level is not None, "it has tasks"
            if favoured_level is not None and amounts != favoured and level >= favoured_level:
                asks = {name for name, _ in amounts}
                if not kept.isdisjoint(asks) or (CORES in kept and BESIDE not in asks):
                    continue
            if best is None or level < best_level:
                best, best_level = (amounts, queue), level
        return best

    def _may_begin(self, amounts: Amounts, n_idle: int) -> bool:
        return self.n_seats_for(amounts) <= n_idle and self.fit(amounts)

    def n_seats_missing(self, n_idle: int) -> int:
        """Return how many more idle seats would let a task with several cores begin; 0 = none."""
        asked = [self.n_seats_for(one) for one in self.queues if one and self.fit(one)]
        return min((n - n_idle for n in asked if n > max(n_idle, 1)), default=0)

    def note_passed(self, n_idle: int, now: float) -> None:
        """Note which queues are passed over."""
        for amounts in self.queues:
            if amounts and not self._may_begin(amounts, n_idle):
                self.passed.setdefault(amounts, now)

    def favoured(self, now: float) -> Amounts | None:
        """Return the amounts that are kept for tasks which were passed over for long."""
        for amounts, since in self.passed.items():
            if now - since > PATIENCE_S:
                return amounts
        return None

    def keeps_seats(self, now: float) -> bool:
        """Return whether seats are kept for a task with several cores."""
        return any(name == CORES for name, _ in self.favoured(now) or ())

    def n_seats_for(self, amounts: Amounts) -> int:
        """Return how many idle seats a chunk with these amounts takes."""
        cores = cores_of(amounts)
        return 1 if cores is None else self._n_seats(cores) - self._n_seats(0.0)

    def _n_seats(self, cores: float) -> int:
        """Return how many seats all chunks that name cores take, with so many cores more."""
        if CORES not in self.total:
            return 0
        return ceil(self.total[CORES] - self.free[CORES] + cores - _MARGIN)

    def n_at_once(self, amounts: Amounts, n_slots: int) -> int:
        """Return how many of so many slots may run tasks with these amounts, which are free."""
        ratios = [self.free[name] / amount for name, amount in amounts]
        return min([n_slots, *(int(ratio + _MARGIN) for ratio in ratios)])

    def take(self, slot: Slot, amounts: Amounts) -> None:
        """Let a slot have amounts that are free."""
        for name, amount in amounts:
            self.free[name] = round(self.free[name] - amount, DIGITS)
        slot.amounts = amounts

    def give_back(self, slot: Slot) -> int:
        """Free what a slot has, whose chunk is done; return how many seats its cores have taken."""
        n_before = self._n_seats(0.0)
        for name, amount in slot.amounts:
            self.free[name] = round(self.free[name] + amount, DIGITS)
        slot.amounts = ()
        return n_before - self._n_seats(0.0)

    def served(self, amounts: Amounts, n: int) -> None:
        """Note that `n` tasks of a queue were taken: it is the last one now."""
        queue = self.queues.pop(amounts)
        self.passed.pop(amounts, None)
        if queue.n or not amounts:
            self.queues[amounts] = queue
        if amounts:
            self.n -= n

    def __iter__(self) -> Iterator[WorkerTask]:
        """Yield all ready tasks, also those that ask for nothing."""
        for queue in self.queues.values():
            yield from queue
