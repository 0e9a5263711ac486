"""Categories: what their tasks have used, and which of them wait for amounts to be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.amounts import CORES, MEMORY
from ....protocol.wire.options import FIXED, TaskOptions
from ..records.tasks import FORGOTTEN, QUEUED, SchedulerTask
from .sizing import LEAST_NBYTES, LearnedPeaks

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Categories that are remembered; of more, those without waiting tasks are forgotten, oldest first.
MAX_CATEGORIES: Final = 1000

#: So many tasks that were run again are not looked through.
FEW: Final = 64

#: What tells apart which workers may run a task: their names, whether others may, and amounts.
Shape: TypeAlias = tuple[tuple[str, ...], bool, tuple[tuple[str, float], ...]]
#: (memory, cores) of workers that may run a task, largest memory first. One with less memory is
#: left out unless it has more cores than those before it.
Sizes: TypeAlias = list[tuple[int, int]]


class LearnedTimes:
    """How long calls of a category take, and when one is a straggler."""

    __slots__ = ("are_some", "n_ended", "n_late", "sum_s")

    def __init__(self) -> None:
        #: some calls may be stragglers: those that say after which multiple of the mean
        self.are_some = False
        #: attempts that were stragglers, so far
        self.n_late = 0
        #: calls that have ended well, and the sum of their seconds
        self.n_ended = 0
        self.sum_s = 0.0

    @property
    def mean_s(self) -> float:
        """The mean time of those that have ended, seconds."""
        return self.sum_s / max(self.n_ended, 1)

    def limit_s(self, multiple: float, least_ended: int) -> float:
        """Return the time after which a call is a straggler; 0.0 = not known yet, or never."""
        return multiple * self.mean_s if self.n_ended >= least_ended else 0.0


class Stragglers:
    """Attempts that may be stragglers, as of the last look at workers."""

    __slots__ = ("begun", "copies", "n_late", "next_look")

    def __init__(self) -> None:
        #: {attempt: since when it runs at the latest, in waking time}
        self.begun: dict[int, float] = {}
        #: {task: how many of its attempts were stragglers}; until it has ended
        self.n_late: dict[SchedulerTask, int] = {}
        #: {attempt: (worker, task)} of tasks that run twice, of both; until its task has ended
        self.copies: dict[int, tuple[WorkerHandle, SchedulerTask]] = {}
        self.next_look: Deadline | None = None

    def forget(self) -> None:
        """Forget all attempts."""
        self.begun.clear()
        self.n_late.clear()


class CategoryRecord:
    """One category."""

    __slots__ = (
        "chosen",
        "cpu_s",
        "given",
        "look_at",
        "max_nbytes",
        "mode",
        "n_repeated",
        "name",
        "peaks",
        "repeated",
        "sweep_at",
        "times",
        "waiting",
        "wall_s",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        #: as the latest submission has it
        self.mode = FIXED
        #: the most that a task may use; 0 = what its worker has
        self.max_nbytes = 0
        #: {amount: what measured tasks have used of it}
        self.peaks = {
            MEMORY: LearnedPeaks(LEAST_NBYTES, is_limit=True),
            CORES: LearnedPeaks(1, is_limit=False),
        }
        self.times = LearnedTimes()
        #: sums over the attempts with results whose CPU time was measured: that, and the wall time
        self.cpu_s = self.wall_s = 0.0
        #: {(amount, largest allocation): the first allocation}, of the present mode and peaks
        self.chosen: dict[tuple[str, int], int] = {}
        #: a heap of (priority, number, task): those that could run, also some that cannot any more
        self.waiting: list[tuple[int, int, SchedulerTask]] = []
        #: {task: None}: those that were given amounts, and are queued; others, too
        self.given: dict[SchedulerTask, None] = {}
        #: it is looked at no earlier which of them are assigned, in waking time
        self.look_at = 0.0
        #: {task: None} of those that have used more than their allocation. A map of the state would
        #: cost each task that is forgotten, so those that are forgotten are taken out now and then.
        self.repeated: dict[SchedulerTask, None] = {}
        #: ... as soon as there are so many
        self.sweep_at = FEW
        #: attempts that have used more than their allocation, so far
        self.n_repeated = 0

    def declare(self, options: Mapping[str, Any]) -> bool:
        """Take over what a submission says of it; return whether that is new."""
        if (self.mode, self.max_nbytes) == (options["mode"], options["max_nbytes"]):
            return False
        self.mode, self.max_nbytes = options["mode"], options["max_nbytes"]
        self.chosen.clear()
        return True

    def note_repeated(self, task: SchedulerTask) -> None:
        """Note that a task has used more than its allocation."""
        self.n_repeated += 1
        self.repeated[task] = None
        if len(self.repeated) >= self.sweep_at:
            self.repeated = {task: None for task in self.repeated if task.state != FORGOTTEN}
            self.sweep_at = 2 * len(self.repeated) + FEW

    def forget_assigned(self) -> None:
        """Keep only tasks in `given` that are queued."""
        self.given = {task: None for task in self.given if task.state == QUEUED}

    def first(self, name: str, largest: int) -> int:
        """Return how much of an amount a first attempt is given."""
        found = self.chosen.get((name, largest))
        if found is None:
            found = self.chosen[name, largest] = self.peaks[name].first(self.mode, largest)
        return found

    def __repr__(self) -> str:
        return f"<CategoryRecord {self.name} {self.peaks[MEMORY].n_measured} measured>"


class Categories:
    """All categories. The class is in `SchedulerState.busy` while one is to be looked at."""

    __slots__ = (
        "are_stale",
        "by_name",
        "had_workers",
        "largest",
        "must_sweep",
        "n_waited",
        "to_review",
        "unfiled",
        "waiting",
    )

    def __init__(self) -> None:
        self.by_name: dict[str, CategoryRecord] = {}
        #: {category: None}: all and only those with rows in `waiting`
        self.waiting: dict[CategoryRecord, None] = {}
        #: {category: None}: those whose allocations are chosen anew with the next pass
        self.to_review: dict[CategoryRecord, None] = {}
        #: those that were given amounts, were no_worker, and may be queued since the last pass
        self.unfiled: list[SchedulerTask] = []
        #: {shape: the largest workers that may run it}; as of the last change
        self.largest: dict[Shape, Sizes] = {}
        #: a worker was there at the last change
        self.had_workers = False
        #: all tasks are looked at with the next pass: the largest worker has changed
        self.must_sweep = False
        #: some run with another amount than they would be given now
        self.are_stale = False
        #: tasks that have come to wait so far
        self.n_waited = 0


def categories_of(state: SchedulerState) -> Categories:
    """Return all categories."""
    return state.record(Categories)


def category_of(state: SchedulerState, options: TaskOptions) -> CategoryRecord | None:
    """Return the category of tasks with these options; None if they have none."""
    return categories_of(state).by_name.get(options.category["name"]) if options.category else None


def make_category(state: SchedulerState, name: str) -> CategoryRecord:
    """Return a category, which is new if nothing was known of it."""
    by_name = categories_of(state).by_name
    found = by_name.get(name)
    if found is None:
        if len(by_name) >= MAX_CATEGORIES:
            for category in by_name.values():
                category.forget_assigned()
            idle = next((c for c in by_name.values() if not (c.waiting or c.given)), None)
            if idle is not None:
                categories_of(state).to_review.pop(idle, None)
                del by_name[idle.name]
        found = by_name[name] = CategoryRecord(name)
    return found
