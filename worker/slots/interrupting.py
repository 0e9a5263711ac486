"""Interrupts running tasks: first a flag that they can look at, then an exception in their thread.

An exception of another thread may come between any two steps of a thread, so it must not come while
weft's own code changes state that must stay whole. Each slot has a `SlotGate`, which its thread
opens where tasks run, and closes before weft's code does more than take the next task. The one that
takes the gate's token may interrupt the thread; a thread that does not find it waits until that is
over, and the exception comes there at the latest. What it leaves behind between two tasks is mended
(`mend`).

A task that does not end then (it waits in C code, or does not let itself be interrupted) is the
scheduler's concern: after some seconds it has the process ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.failure import reschedule
from ..core.events import ChunkDone, InterruptRunning, WorkerAction, WorkerEvent
from ..core.features.categories import WatchMemory
from ..core.features.timeouts import WatchRunning
from .timeouts import RunningWatch
from .usage import MemoryWatch

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

    from ..context import WorkerContext
    from ..core.state import WorkerState
    from ..core.tasks import WorkerTask
    from ..data.store import Store

#: A task that has looked at the flag has this long to end by itself, seconds.
FLAG_S: Final = 1.0
#: How often it is tried to interrupt a thread that is busy with weft's own code, seconds.
AGAIN_S: Final = 0.02

#: Why a task is placed again that an exception for another one has hit.
IN_PLACE_OF: Final = "it was interrupted in the place of the task before it, which had just ended"

#: The files of the code that imports modules begin so.
_IMPORTLIB: Final = "<frozen importlib"

#: A function of its own: one that is read from `pythonapi` is shared with the libraries of tasks,
#: which may call it with other types.
_set_exception: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class TaskInterrupted(BaseException):
    """The task is to end: it was cancelled with `running=True`, or ran for too long.

    Raised in the thread of the task, between two of its steps. Clean up and let it pass. It is not
    an `Exception`, so that code which handles all errors does not swallow it.
    """


class SlotGate:
    """Where the thread of one slot may be interrupted. Open and close it on that thread."""

    __slots__ = ("_lock", "_token", "was_hit")

    def __init__(self) -> None:
        self._token: deque[None] = deque()
        #: Reentrant: a finalizer of the user may close the gate, too.
        self._lock = threading.RLock()
        #: The thread was interrupted, and no task has seen to it yet.
        self.was_hit = False

    def open(self) -> None:
        """Let the thread be interrupted from now on."""
        if not self._token:
            self._token.append(None)

    def close(self) -> None:
        """Do not let it be interrupted; this may raise `TaskInterrupted` itself."""
        try:
            self._token.pop()
        except IndexError:
            self._pass()

    @property
    def is_open(self) -> bool:
        """True if the thread may be interrupted now; False also if that is under way."""
        return bool(self._token)

    def _pass(self) -> None:
        with self._lock:  # so nobody interrupts at the moment
            # An exception that was set before is raised here: CPython looks for one at each call.
            self._token.clear()
            self.was_hit = False

    def interrupt(self, thread: int, context: WorkerContext, attempt: int) -> bool:
        """Interrupt the thread if it is open and runs this attempt; return whether it was."""
        with self._lock:
            try:
                self._token.pop()
            except IndexError:
                return False
            if context.attempt != attempt or _is_importing(thread):
                self._token.append(None)
                return False
            self.was_hit = True
            _set_exception(thread, TaskInterrupted)
            return True


def _is_importing(thread: int) -> bool:
    """Return whether a thread is in an import: an exception there could leave its lock held."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if is_import_statement(frame):
            return True
        frame = frame.f_back
    return False


def is_import_statement(frame: FrameType) -> bool:
    """Return whether a frame is in the middle of an import statement.

    An exception there could be lost, or leave the lock of imports held. A module that is being
    imported is code like other code: the import ends, as with any exception.
    """
    return frame.f_code.co_filename.startswith(_IMPORTLIB)


def interrupt_code(thread: int) -> None:
    """Interrupt a thread that nobody waits for, unless it is in an import statement."""
    frame = sys._current_frames().get(thread)
    if frame is not None and not is_import_statement(frame):
        _set_exception(thread, TaskInterrupted)


class Interrupts:
    """The running tasks that are to end.

    `is_asked`, `was_asked` and `was_mistaken` are for threads of slots, all others for the loop's.
    """

    __slots__ = (
        "_contexts",
        "_due",
        "_is_stepping",
        "_looked",
        "_state",
        "gates",
        "memory",
        "watch",
    )

    def __init__(
        self,
        state: WorkerState,
        contexts: dict[int, WorkerContext],
        store: Store,
        handle: Callable[[WorkerEvent], object],
        crashed: Callable[[BaseException], object],
    ) -> None:
        #: Looks how much memory the process takes.
        self.memory = MemoryWatch(state, contexts, store, handle, crashed)
        #: Looks which tasks run.
        self.watch = RunningWatch(state, contexts, handle, crashed)
        self._state = state
        self._contexts = contexts
        #: `step` will be called.
        self._is_stepping = False
        #: One per slot.
        self.gates = [SlotGate() for _ in state.slots]
        #: {attempt: when its thread is interrupted; inf = that was done}.
        self._due: dict[int, float] = {}
        #: Attempts of tasks that have looked at the flag.
        self._looked: dict[int, None] = {}

    def is_asked(self, attempt: int) -> bool:
        """Return whether a task is to end. For the task's own thread."""
        if attempt in self._due:
            return True
        self._looked[attempt] = None
        if len(self._looked) > 10_000:
            self._looked.clear()
        return False

    def was_asked(self, attempt: int) -> bool:
        """Return whether a task is to end, for the executor."""
        return attempt in self._due

    def was_mistaken(self, task: WorkerTask) -> bool:
        """Return whether a task has got an exception that was meant for another one."""
        gate = self.gates[task.slot]
        was_hit, gate.was_hit = gate.was_hit, False
        gate.open()  # it has been delivered; the next task of the chunk may be interrupted, too
        return was_hit and not self.was_asked(task.attempt)

    def do(self, action: WorkerAction, loop: asyncio.AbstractEventLoop) -> bool:
        """Do an action of the core; return False if it is not about tasks that run."""
        if isinstance(action, InterruptRunning):
            self.ask(action.attempts, loop)
        elif isinstance(action, WatchRunning):
            self.watch.start(loop)
        elif isinstance(action, WatchMemory):
            self.memory.start(loop)
        else:
            return False
        return True

    def ask(self, attempts: list[int], loop: asyncio.AbstractEventLoop) -> None:
        """Interrupt tasks, now and until they have ended."""
        now = time.monotonic()
        for attempt in attempts:
            self._due.setdefault(attempt, now + (FLAG_S if attempt in self._looked else 0.0))
        if not self._is_stepping:
            self._step_in(loop)

    def _step_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_stepping = self.step()
        if self._is_stepping:
            loop.call_later(AGAIN_S, self._step_in, loop)

    def step(self) -> bool:
        """Interrupt what is due; return whether to call this again, after `AGAIN_S`."""
        now = time.monotonic()
        for attempt, due in list(self._due.items()):
            if attempt not in self._state.cancelled:  # it has ended
                del self._due[attempt]
                self._looked.pop(attempt, None)
            elif due <= now and self._interrupt(attempt):
                self._due[attempt] = float("inf")
        return bool(self._due)

    def _interrupt(self, attempt: int) -> bool:
        for thread, context in list(self._contexts.items()):
            seat = context.seat
            if seat is not None and context.attempt == attempt:
                gate = self.gates[seat.slot]
                if context.here.stand_in is not None:
                    thread, gate = context.here.stand_in
                is_hit = gate.interrupt(thread, context, attempt)
                if is_hit and context.here.wake is not None:
                    with contextlib.suppress(RuntimeError):  # its event loop has ended
                        context.here.wake()
                return is_hit
        return False


def mend(report: ChunkDone, values: list[Any], state: WorkerState, slot: int) -> None:
    """Complete the report of a slot whose thread was interrupted between two steps of weft's code.

    Rows that are not whole are cut off. What the thread had taken and has not reported is placed
    again, in a way that costs no retry; the reports of dropped tasks are thrown away in any case.
    """
    columns: tuple[list[Any], ...]
    columns = (report.attempts, report.nbytes, report.durations_us, report.results, values)
    failed: tuple[list[Any], ...]
    failed = (report.failed_attempts, report.failed_durations_us, report.failures)
    for table in (columns, failed):
        n = min(len(column) for column in table)
        for column in table:
            del column[n:]
    known = {*report.attempts, *report.failed_attempts}
    known.update(task.attempt for task in state.slots[slot].chunk)
    for task in [*state.by_attempt.values(), *state.cancelled.values()]:
        if task.slot == slot and task.attempt not in known:
            report.failed_attempts.append(task.attempt)
            report.failed_durations_us.append(0)
            report.failures.append(reschedule(task.key, IN_PLACE_OF))
    report.finished = True
