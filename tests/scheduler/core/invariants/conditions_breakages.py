"""How each invariant of conditions is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of
from weft.scheduler.core.conditions.records import Conditions, conditions_of, watched_of
from weft.scheduler.core.requests.submission import DEFERRED
from weft.scheduler.core.requests.wanted_keys import want


def wait_for(b: Any, key: str) -> None:
    """Let a task of the default class have a condition."""
    row = conditions_of(b.state)[b.task("waiting")] = Conditions()
    row.unmet[key] = ["done"]
    watched_of(b.state).waiters[key] = {b.task("waiting"): None}


#: {invariant: what breaks it}, of a `Broken` board
CONDITIONS_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "a deferred task has a condition": lambda b: setattr(
        b.task("waiting").group.task_class, "key", DEFERRED
    ),
    "the keeper of conditions wants what others wait for": lambda b: want(
        watched_of(b.state).keeper, b.task("memory")
    ),
    "who waits for the end of a task has that condition": lambda b: watched_of(
        b.state
    ).waiters.update({"processing": {}}),
    "what others wait for has not ended": lambda b: wait_for(b, "memory"),
    "the first time of a task is looked at": lambda b: watched_of(b.state).times.add(
        5, b.task("processing"), Conditions(), "start_ms"
    ),
    "conditions are busy while a task has some": lambda b: conditions_of(b.state).update(
        {b.task("processing"): Conditions()}
    ),
    "tasks that no worker can run are looked at if they may not wait for ever": lambda b: setattr(
        no_worker_limit_of(b.state), "seconds", 5.0
    ),
}
