"""Code that blocks a thread says so here, so that the worker of a task can use the time.

    with blocked():
        lock.acquire()

A worker registers what is to happen on each thread that runs its tasks: the thread gives its slot
up when the block begins, so that another task can run, and takes a slot back before the block ends.
On every other thread nothing happens, so libraries need not know where they are called.

Coroutines say it as `with awaited():` around an `await`. The loop of a task that is a coroutine
function gives the slot up while it has nothing to do and such an `await` is under way.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias


class TaskWait(NamedTuple):
    """A wait of a thread without a time limit: for tasks and calls of actors, all of them."""

    #: The first of the tasks.
    keys: list[str]
    #: Ends the wait with an error of this text. Called on any thread, perhaps when it is over.
    fail: Callable[[str], None]
    #: The actors of the first of the calls, one for each, and the texts that name the calls.
    actors: list[str] = []  # noqa: RUF012 - never changed
    calls: list[str] = []  # noqa: RUF012 - never changed

    @property
    def columns(self) -> dict[str, list[str]]:
        """The wait, as the columns of `AttemptsBlocked` have it; none is empty."""
        columns = {"keys": self.keys, "actors": self.actors, "calls": self.calls}
        return {name: row for name, row in columns.items() if row}


class Awaits:
    """The `awaited` that are under way in one event loop."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        #: What each waits for; None = something else, or not without a time limit.
        self.waits: list[TaskWait | None] = []

    @contextlib.contextmanager
    def of(self, wait: TaskWait | None) -> Iterator[None]:
        """Count an `await` of this."""
        self.waits.append(wait)
        try:
            yield
        finally:
            self.waits.remove(wait)


_Enter: TypeAlias = Callable[[TaskWait | None, bool], AbstractContextManager[None]]


class InterruptGate(Protocol):
    """Lets a thread be interrupted by others, at any of its steps, while it is open."""

    @property
    def is_open(self) -> bool:
        """True if the thread may be interrupted now; False also if that is under way."""

    def open(self) -> None:
        """Open it, on its thread."""

    def close(self) -> None:
        """Close it, on its thread; this may raise what the thread is interrupted with."""


class _BlockingHook(threading.local):
    enter: _Enter | None = None
    awaits: Awaits | None = None
    gate: InterruptGate | None = None


_here = _BlockingHook()


def blocked(
    wait: TaskWait | None = None, *, may_park: bool = False
) -> AbstractContextManager[None]:
    """Return a context in which the calling thread may wait for long, and computes nothing.

    In a task another task may run on its slot meanwhile; the end of the context waits for a slot.
    Contexts may be nested: only the outermost one has an effect.

    Args:
        wait: the tasks that it waits for; None = something else, or not without a time limit.
        may_park: if many tasks wait here already, start no others in its place: they would only
            wait, too.
    """
    enter = _here.enter
    return contextlib.nullcontext() if enter is None else enter(wait, may_park)


def gate_here() -> InterruptGate | None:
    """Return the gate of the calling thread, to be closed while state changes that must be whole.

    None = the thread is not interrupted by others.
    """
    return _here.gate


def on_interrupts_here(gate: InterruptGate | None) -> None:
    """Have `gate_here` return this on the calling thread."""
    _here.gate = gate


@contextlib.contextmanager
def closed_here() -> Iterator[None]:
    """Close the gate of the calling thread, if it has one, and open it again if it was open."""
    gate = _here.gate
    if gate is None:
        yield
        return
    was_open = gate.is_open
    gate.close()
    try:
        yield
    finally:
        if was_open:
            gate.open()


def awaited(wait: TaskWait | None = None) -> AbstractContextManager[None]:
    """Return a context for an `await` of something that other tasks may have to bring about.

    Args:
        wait: as that of `blocked`.
    """
    awaits = _here.awaits
    return contextlib.nullcontext() if awaits is None else awaits.of(wait)


def on_awaits_here(awaits: Awaits | None) -> None:
    """Have `awaited` count in `awaits`, on the calling thread; None = do nothing."""
    _here.awaits = awaits


def on_blocked_here(enter: _Enter | None) -> None:
    """Have `blocked` return what `enter` returns, on the calling thread; None = do nothing."""
    _here.enter = enter
