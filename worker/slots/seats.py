"""The seat of one slot's thread, as the task that runs there gives it up and takes one again.

`core/seats.py` decides who gets the seat. Here is what the thread does: `blocked` of
`protocol/host/blocking.py` on the threads of tasks, and the functions that users call.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...protocol.errors import NotInTask
from ...protocol.host.blocking import closed_here
from ...protocol.wire.messages import AttemptsPrinted
from ..context import WorkerContext, get_worker
from ..core.events import ChunkDone, SlotWaits
from ..core.features.output import OutputCame
from .interrupting import TaskInterrupted

if TYPE_CHECKING:
    from ...protocol.host.blocking import TaskWait
    from ...protocol.values.printed import CallOutput
    from ...protocol.wire.keys import Key
    from .executor import TaskExecutor


class SlotSeat:
    """The seat of one slot. For the slot's own thread."""

    __slots__ = (
        "_at_end",
        "_depth",
        "_executor",
        "_waited_ns",
        "is_given_up",
        "pending",
        "scratch",
        "slot",
        "was_used",
    )

    def __init__(self, executor: TaskExecutor, slot: int) -> None:
        self._executor = executor
        self.slot = slot
        #: What the thread has finished and not reported, and the values; None while it rests.
        self.pending: tuple[ChunkDone, list[Any]] | None = None
        #: `secede` was called, and `rejoin` was not; or the task was interrupted while it waited.
        self.is_given_up = False
        #: The present task has used this object: `end_task` has something to do.
        self.was_used = False
        #: The folder of the present attempt; None = it has none.
        self.scratch: str | None = None
        #: Number of `blocked` that the thread is in.
        self._depth = 0
        self._waited_ns = 0
        #: Called once when the task ends.
        self._at_end: dict[Callable[[], object], None] = {}

    @property
    def actor(self) -> str:
        """The key of the actor whose thread it is: none."""
        return ""

    @property
    def attempt(self) -> int:
        """The attempt that runs here."""
        task = get_worker().task
        assert task is not None, "a task runs on this thread"
        return task.attempt

    @contextlib.contextmanager
    def blocked(self, wait: TaskWait | None = None, may_park: bool = False) -> Iterator[None]:
        """Give the seat up, unless that is so already, and take one at the end."""
        if self._depth or get_worker().task is None:
            yield
            return
        if self.is_given_up:
            with self._waiting_without_seat(wait):
                yield
            return
        self.was_used = True
        start = time.perf_counter_ns()
        attempt = self.attempt
        self._executor.give_seat_up(self, wait, park=may_park)
        self._depth = 1
        try:
            yield
        except TaskInterrupted:  # it ends: a seat may not be free for long
            self.is_given_up = True
            raise
        finally:
            self._depth = 0
            self._executor.waits.pop(attempt, None)
            if not self.is_given_up:
                self._executor.take_seat(self)
            self._waited_ns += time.perf_counter_ns() - start

    @contextlib.contextmanager
    def _waiting_without_seat(self, wait: TaskWait | None) -> Iterator[None]:
        """Let the worker know what a task waits for that has seceded."""
        if wait is None:
            yield
            return
        self._note_wait(wait)
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0
            self._note_wait(None)

    def _note_wait(self, wait: TaskWait | None) -> None:
        executor = self._executor
        gate = executor.interrupts.gates[self.slot]
        gate.close()
        event = SlotWaits(self.slot)
        if wait is None:
            executor.waits.pop(self.attempt, None)
        else:
            executor.waits[self.attempt] = wait
            event.waits_for = wait.columns
        executor.handle(event)
        gate.open()

    def secede(self) -> None:
        """Give the seat up until the task ends, or takes one with `rejoin`."""
        if not self.is_given_up:
            self.was_used = True
            if not self._depth:
                self._executor.give_seat_up(self, None, park=False)
            self.is_given_up = True

    def rejoin(self) -> None:
        """Take a seat again."""
        if self.is_given_up:
            self.is_given_up = False
            if not self._depth:
                self._executor.take_seat(self)

    def when_task_ends(self, action: Callable[[], object]) -> None:
        """Call `action` on this thread when the task has ended, before its end is reported."""
        self.was_used = True
        self._at_end[action] = None

    def keep_output(self, output: CallOutput) -> None:
        """Report what the task has printed, before its end is reported."""
        message = AttemptsPrinted(
            attempts=[self.attempt],
            stdout=[output.stdout],
            stderr=[output.stderr],
            cut=[int(output.is_cut)],
        )
        with closed_here():
            self._executor.handle(OutputCame(message))

    def is_cancelled(self, attempt: int) -> bool:
        """Return whether the task of this thread is to end."""
        return self._executor.interrupts.is_asked(attempt)

    def end_task(self) -> int:
        """Do what is due at the end of the task; return for how many ns it has waited."""
        if self._at_end:
            with closed_here():  # an interrupt would leave some undone
                actions, self._at_end = list(self._at_end), {}
                for action in actions:
                    action()
        self.was_used = False
        self._depth = 0  # as always, unless an exception came between two steps of `blocked`
        waited_ns, self._waited_ns = self._waited_ns, 0
        task = get_worker().task
        if waited_ns and task is not None and self.pending is not None:
            report = self.pending[0]
            report.waited_us = {**(report.waited_us or {}), task.attempt: waited_ns // 1000}
        return waited_ns


def secede() -> None:
    """Let the worker run another task in the place of the calling one, until that ends.

    A task that waits by weft's own means does this by itself meanwhile. One that waits for
    something else, or that runs for very long and computes little, calls `secede`. It is not
    counted as a running task of the worker afterwards, so it should not compute. `rejoin` ends
    this.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started.
    """
    task_seat("secede").secede()


def rejoin() -> None:
    """End what `secede` has begun: wait until the worker has a thread for the calling task again.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started.
    """
    task_seat("rejoin").rejoin()


def get_current_task() -> Key:
    """Return the key of the calling task.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started.
    """
    return _context("get_current_task").key


def _context(name: str) -> WorkerContext:
    with contextlib.suppress(NotInTask):
        context = get_worker()
        if context.task is not None:
            return context
    raise NotInTask(f"{name}() works only in a task, on the thread that runs it")


def task_seat(name: str) -> SlotSeat:
    """Return the seat of the calling task; `name` is that of the function which asks.

    Raises:
        NotInTask: no task runs on this thread.
    """
    seat = _context(name).seat
    assert seat is not None, "tasks run on threads of slots"
    return seat
