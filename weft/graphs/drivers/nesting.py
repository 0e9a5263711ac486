"""Graphs within tasks: finds out which executors wait for the calling task.

A task may run a graph on its own executor. If its thread only waited, and all threads of a pool did
so, none would be left to run tasks. So the calling thread runs tasks, too, if it belongs to the
executor, or if the executor waits for it: a graph on A whose task runs one on B whose task runs one
on A.
"""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import Executor

from .executors import is_same

_main_thread = threading.main_thread()


class OuterRun:
    """A graph under way, as its tasks see it."""

    __slots__ = ("executor",)

    def __init__(self, executor: Executor) -> None:
        #: None when the run is over, because threads that a task has started may keep its context.
        self.executor: Executor | None = executor


#: The graphs that the calling task belongs to, the outermost first.
_outer: contextvars.ContextVar[tuple[OuterRun, ...]] = contextvars.ContextVar(
    "weft_outer_runs", default=()
)


def context_for_tasks(run: OuterRun) -> contextvars.Context:
    """Return the caller's context, for tasks of a graph; each call gets a copy."""
    context = contextvars.copy_context()
    context.run(_outer.set, (*_outer.get(), run))
    return context


def innermost_executor() -> Executor | None:
    """Return the executor of the graph of the calling task, None outside of tasks."""
    outer = _outer.get()
    return outer[-1].executor if outer else None


def waits_for_caller(executor: Executor) -> bool:
    """Return whether calls of `executor` may have to wait until the caller continues."""
    for run in _outer.get():
        if run.executor is not None and is_same(executor, run.executor):
            return True
    # A call that was submitted to a pool of threads by other means.
    thread = threading.current_thread()
    if thread is _main_thread:
        return False
    threads = getattr(executor, "_threads", None)
    return isinstance(threads, (set, list)) and thread in threads
