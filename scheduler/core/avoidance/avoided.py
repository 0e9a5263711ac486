"""The workers that the tasks of a class avoid: left by them, or with too little time.

The kernel has the rule: a worker that is avoided may not run a class while others may. Here is who
is avoided (`TaskClass.avoided`). Workers that tasks have left are part of the key of a class. Those
that end too early come into it as time passes, so they are one map for all classes with the same
limit, and no task changes its class for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from ..moves.eligibility import fill_class
from ..records.tasks import TaskClass

if TYPE_CHECKING:
    from ..state import SchedulerState

_LEFT: Final = "is one that the task has left"
_TOO_SHORT: Final = "ends before the task may have ended"


class TimeNeeded:
    """A time that tasks may take, and the workers that end before it is over."""

    __slots__ = ("limit_s", "short")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        #: {worker id: None} of registered workers that have less time left
        self.short: dict[str, None] = {}


class Avoided(Mapping[str, str]):
    """The workers that a class avoids: {id: why}. Equal for equal workers left, and one limit."""

    __slots__ = ("left", "limit")

    def __init__(self, left: tuple[str, ...] = (), limit: TimeNeeded | None = None) -> None:
        #: ids of the workers that its tasks have left, the latest last
        self.left = left
        self.limit = limit

    @property
    def _short(self) -> dict[str, None]:
        return {} if self.limit is None else self.limit.short

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self.left or worker_id in self._short

    def __getitem__(self, worker_id: str) -> str:
        if worker_id in self.left:
            return _LEFT
        if worker_id in self._short:
            return _TOO_SHORT
        raise KeyError(worker_id)

    def __iter__(self) -> Iterator[str]:
        return chain(self.left, (one for one in self._short if one not in self.left))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self.left or self._short)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Avoided) and self.left == other.left and self.limit is other.limit

    def __hash__(self) -> int:
        return hash((self.left, self.limit))


def limit_of(task_class: TaskClass) -> TimeNeeded | None:
    """Return the time limit of the tasks of a class, if workers are avoided for that."""
    avoided = task_class.avoided
    return avoided.limit if isinstance(avoided, Avoided) else None


def left_by(task_class: TaskClass) -> tuple[str, ...]:
    """Return the ids of the workers that the tasks of a class have left, the latest last."""
    avoided = task_class.avoided
    return avoided.left if isinstance(avoided, Avoided) else ()


def class_avoiding(state: SchedulerState, like: TaskClass, avoided: Avoided) -> TaskClass:
    """Return the class of tasks that are as those of a class, but avoid these workers."""
    key = (like.workers, like.allow_other_workers, like.resources, avoided)
    found = state.classes.get(key)
    if found is None:
        found = state.classes[key] = TaskClass(key, *key)
        fill_class(state, found)
    return found
