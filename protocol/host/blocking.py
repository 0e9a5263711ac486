"""Code that blocks a thread says so here, so that the worker of a task can use the time.

    with blocked():
        lock.acquire()

A worker registers what is to happen on each thread that runs its tasks: the thread gives its slot
up when the block begins, so that another task can run, and takes a slot back before the block ends.
On every other thread nothing happens, so libraries need not know where they are called.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["blocked", "on_blocked_here"]


class _BlockingHook(threading.local):
    enter: Callable[[], AbstractContextManager[None]] | None = None


_here = _BlockingHook()


def blocked() -> AbstractContextManager[None]:
    """Return a context in which the calling thread may wait for long, and computes nothing.

    In a task another task may run on its slot meanwhile; the end of the context waits for a slot.
    Contexts may be nested: only the outermost one has an effect.
    """
    enter = _here.enter
    return contextlib.nullcontext() if enter is None else enter()


def on_blocked_here(enter: Callable[[], AbstractContextManager[None]] | None) -> None:
    """Have `blocked` return what `enter` returns, on the calling thread; None = do nothing."""
    _here.enter = enter
