"""How each invariant of queues of jobs is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.protocol.wire.options import TaskOptions
from weft.scheduler.core.job_queues.feature import paused_queues_of


def pause_queue_of(b: Any, key: str) -> None:
    """Pause the queue of a task without holding it back."""
    b.task(key).group.options = TaskOptions(job_queue="q")
    paused_queues_of(b.state)["q"] = {}


#: {invariant: what breaks it}, of a `Broken` board
QUEUE_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "tasks that a paused queue holds back are no_worker, and are of that queue": (
        lambda b: paused_queues_of(b.state).update({"q": {b.task("memory"): None}})
    ),
    "no task of a paused queue is queued": lambda b: pause_queue_of(b, "queued"),
    "queues are busy while one is paused": lambda b: paused_queues_of(b.state).update({"q": {}}),
}
