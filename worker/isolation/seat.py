"""The seat of a call in a child: what it may do there asks the thread of its slot in the worker."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...protocol.errors import NotInTask
from ...protocol.host.blocking import closed_here
from ...protocol.wire.columns import MAX_SIZE
from ..core.tasks import AttemptUsage
from ..slots.interrupting import (
    AGAIN_S,
    SlotGate,
    TaskInterrupted,
    is_import_statement,
)
from .process import NEWS_SIGNAL

if TYPE_CHECKING:
    from types import FrameType

    from ...protocol.host.blocking import TaskWait
    from ...protocol.values.printed import CallOutput
    from .link import Link


class SignalGate(SlotGate):
    """Where a signal may interrupt the only thread that runs calls."""

    __slots__ = ("_is_open", "is_due")

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False
        #: The call is to end, and has not been interrupted.
        self.is_due = False

    def open(self) -> None:
        """Let the thread be interrupted from now on; this may raise `TaskInterrupted` itself."""
        self._is_open = True
        if self.is_due:
            self.is_due = self._is_open = False
            raise TaskInterrupted

    def close(self) -> None:
        """Do not let it be interrupted."""
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """True if the thread may be interrupted now."""
        return self._is_open


class ProgramUsage(AttemptUsage):
    """Tells the worker how much memory the programs of a call use, which its category limits."""

    __slots__ = ("_peak_nbytes", "_seat")

    def __init__(self, seat: ChildSeat) -> None:
        self._seat = seat
        self._peak_nbytes = 0
        super().__init__(MAX_SIZE)

    @property
    def peak_nbytes(self) -> int:
        """The most memory that was seen."""
        return self._peak_nbytes

    @peak_nbytes.setter
    def peak_nbytes(self, nbytes: int) -> None:
        if nbytes > self._peak_nbytes:
            self._peak_nbytes = nbytes
            self._seat.send("program", nbytes)


class ChildSeat:
    """The seat of the call that runs. For the thread of calls, and handlers of signals there."""

    #: The key of the actor whose thread it is: none.
    actor = ""

    def __init__(
        self, link: Link, gate: SignalGate, sample: Callable[[float], dict[str, Any]]
    ) -> None:
        self._link = link
        #: has the stacks of calls sampled for so long from now on, and returns what was sampled
        self.sample = sample
        self.gate = gate
        #: The call that runs; 0 = none.
        self.attempt = 0
        #: A message is being sent or awaited.
        self.is_busy = False
        #: A signal said meanwhile that there are messages: these are read behind it.
        self._has_news = False
        self._is_given_up = False
        self._depth = 0
        #: What the call waits for.
        self._wait: TaskWait | None = None
        self._at_end: dict[Callable[[], object], None] = {}
        signal.signal(NEWS_SIGNAL, self._on_news)

    def begin(self, attempt: int) -> None:
        """Begin a call."""
        self.attempt = attempt
        self._is_given_up = self.gate.is_due = False
        self._depth = 0

    def on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Interrupt the call again if a finalizer has lost the exception. A hook of `sys`."""
        if not issubclass(unraisable.exc_type, TaskInterrupted):
            sys.__unraisablehook__(unraisable)
        elif self.attempt:
            self.gate.open()
            self.gate.is_due = True
            self._be_told_again()

    def leave(self) -> None:
        """Ask the worker for nothing any more: this process was forked by a call."""
        self.attempt = 0
        self._is_given_up = True
        signal.signal(NEWS_SIGNAL, signal.SIG_DFL)

    # --- Messages ---------------------------------------------------------------------------------

    def send(self, *message: Any) -> None:
        """Tell the worker something."""
        with closed_here():
            self.is_busy = True
            try:
                self._link.send(*message)
            finally:
                self.is_busy = False
            self._read_missed()

    def ask(self, *message: Any) -> Any:
        """Tell the worker something and return its answer."""
        with closed_here():
            self.is_busy = True
            try:
                self._link.send(*message)
                while True:
                    verb, *answer = self._link.receive()
                    if verb == "answer":
                        break
                    self._take_news(verb, *answer)
            finally:
                self.is_busy = False
            self._read_missed()
            return answer[0]

    def _on_news(self, _number: int, frame: FrameType | None) -> None:
        self._has_news = True
        if self.is_busy:
            return
        if frame is not None and is_import_statement(frame):
            self._be_told_again()
        else:
            self._read_missed()

    def _be_told_again(self) -> None:
        """Have the signal sent again, after the import or the finalizer.

        A signal that is raised here would have its handler called before this returns.
        """
        self.is_busy = True
        try:
            threading.Timer(AGAIN_S, os.kill, (os.getpid(), NEWS_SIGNAL)).start()
        finally:
            self.is_busy = False

    def _read_missed(self) -> None:
        """Read the messages of which a signal has told, if a call runs that they are for."""
        while self._has_news and self.attempt:
            self._has_news = False
            self._read_news()

    def _read_news(self) -> None:
        self.is_busy = True
        try:
            while self._link.is_ready():
                self._take_news(*self._link.receive())
        except EOFError:
            return  # the guard ends this process
        finally:
            self.is_busy = False
        if self.gate.is_due and self.gate.is_open:
            self.gate.open()

    def _take_news(self, verb: str, attempt: int, more: Any = None) -> None:
        if attempt != self.attempt:
            return
        if verb == "interrupt":
            self.gate.is_due = True
        elif verb == "sample":
            self._link.send("sampled", self.sample(more))
        elif self._wait is not None:
            self._wait.fail(more)

    # --- What a call may do -----------------------------------------------------------------------

    @contextlib.contextmanager
    def blocked(self, wait: TaskWait | None = None, may_park: bool = False) -> Iterator[None]:
        """See `SlotSeat.blocked`."""
        if self._depth or self._is_given_up or not self.attempt:
            yield
            return
        self._depth = 1
        self._wait = wait
        self.send("blocked", None if wait is None else wait.columns, may_park)
        try:
            yield
        except TaskInterrupted:  # it ends: a seat may not be free for long
            self._is_given_up = True
            raise
        finally:
            self._wait = None
            self._depth = 0
            if not self._is_given_up:
                self.ask("resumed")

    def secede(self) -> None:
        """See `SlotSeat.secede`."""
        if not self._is_given_up:
            self._is_given_up = True
            self.ask("seceded")

    def rejoin(self) -> None:
        """See `SlotSeat.rejoin`."""
        if self._is_given_up and self.attempt:
            self._is_given_up = False
            self.ask("rejoined")

    def keep_output(self, output: CallOutput) -> None:
        """See `SlotSeat.keep_output`."""
        if self.attempt:
            self.send("kept", output.stdout, output.stderr, output.is_cut)

    def make_scratch(self) -> str:
        """Return the folder of the call, which the worker makes and removes.

        Raises:
            OSError: it cannot be made.
        """
        if not self.attempt:
            raise NotInTask("get_scratch_directory() does not work in a process that a task forks")
        folder, error = self.ask("scratch")
        if error is not None:
            raise OSError(*error)
        return str(folder)

    def is_cancelled(self, attempt: int) -> bool:
        """Return whether the call is to end."""
        return self.gate.is_due or (self.attempt != 0 and bool(self.ask("is_cancelled")))

    def when_task_ends(self, action: Callable[[], object]) -> None:
        """Call `action` when the call has ended, before its end is reported."""
        self._at_end[action] = None

    def end_task(self) -> None:
        """Do what is due at the end of the call."""
        actions, self._at_end = list(self._at_end), {}
        for action in actions:
            action()
