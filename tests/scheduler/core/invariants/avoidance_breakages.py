"""How each invariant of avoided workers is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from weft.scheduler.core.avoidance.avoided import Avoided, TimeNeeded
from weft.scheduler.core.avoidance.ending import WorkerEnds, worker_ends_of
from weft.scheduler.core.avoidance.moving import Moves


def an_end(b: Any, left_s: float) -> tuple[WorkerEnds, TimeNeeded]:
    """Let the worker have an end, and a limit be known that it has time for."""
    ends, limit = worker_ends_of(b.state), TimeNeeded(1.0)
    ends.by_worker[b.w.worker_id] = b.state.now + left_s
    ends.limits = {1_000_000: limit}
    return ends, limit


def too_short(b: Any) -> None:
    """Let a worker be too short for a limit that it has time for."""
    _, limit = an_end(b, 2.0)
    limit.short[b.w.worker_id] = None


def unplanned(b: Any) -> None:
    """Let a crossing be to come, and no look."""
    ends, limit = an_end(b, 2.0)
    ends.crossings.append((b.state.now + 1.0, 1, b.w.worker_id, limit))


def unknown_limit(b: Any) -> None:
    b.classy.avoided = Avoided((), TimeNeeded(1.0))


#: {invariant: what breaks it}, of a `Broken` board
AVOIDANCE_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "tasks that have left workers are known": lambda b: b.state.record(Moves).update(
        {copy(b.task("memory")): 1}
    ),
    "ends are those of registered workers": lambda b: worker_ends_of(b.state).by_worker.update(
        {"nobody": 1.0}
    ),
    "a worker that is too short for a limit has less time left": too_short,
    "a worker that has enough time for a limit will be looked at": lambda b: an_end(b, 2.0),
    "the next crossing is looked at": unplanned,
    "limits of classes are known": unknown_limit,
}
