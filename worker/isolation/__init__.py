"""Calls in child processes of the worker, as `weft worker --isolate` has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import WorkerConfig
    from ..slots.executor import TaskExecutor


def executor_for(config: WorkerConfig) -> Callable[..., TaskExecutor]:
    """Return what makes the executor of a worker that isolates calls, or does not."""
    if config.isolation is None:
        from ..slots.executor import TaskExecutor

        return TaskExecutor
    from .executor import IsolatingExecutor

    return partial(IsolatingExecutor, config.isolation, config.fractions)
