"""How each invariant of recurring jobs is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.recurring.feature import RecurringJob, recurring_of
from weft.scheduler.core.requests import wanted_keys


def recur(b: Any, name: str = "memory") -> RecurringJob:
    """Let a task of a `Broken` board be a recurring job, whatever its state."""
    row = recurring_of(b.state)[b.task(name)] = RecurringJob(0)
    return row


#: {invariant: what breaks it}, of a `Broken` board
RECURRING_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "the keeper of recurring jobs wants runs of theirs": lambda b: wanted_keys.want(
        recurring_of(b.state).keeper, b.task("memory")
    ),
    "a run that is kept is one of its job": lambda b: recurring_of(b.state).jobs.update(
        {"memory": b.task("memory")}
    ),
    "runs of a recurring job are under way only if they are kept": lambda b: recur(
        b
    ).running.update({"processing": None}),
    "times of a recurring job wait for a run of it, and not too many": lambda b: recur(
        b, "waiting"
    ).queued.append(0),
    "a recurring job is looked at again, or waits for a run": recur,
}
