"""Calls in child processes of the worker, as `weft worker --isolate` has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..policy import Isolation
    from ..slots.executor import TaskExecutor


def executor_for(isolation: Isolation | None) -> Callable[..., TaskExecutor]:
    """Return what makes the executor of a worker that isolates calls, or does not."""
    if isolation is None:
        from ..slots.executor import TaskExecutor

        return TaskExecutor
    from .executor import IsolatingExecutor

    return partial(IsolatingExecutor, isolation)
