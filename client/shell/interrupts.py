"""Ctrl-C during a wait in an interactive session: reports what goes on; twice, it cancels that.

The wait ends at once, and the tasks continue. A second Ctrl-C within `AGAIN_S` cancels those that
were waited for. It may come in another wait, at the prompt, or while a kernel is idle: so the
handler of SIGINT is replaced for that time, since kernels ignore SIGINT between two cells.

A script that gets Ctrl-C ends, as a rule, and its client with it, which gives up all that is not
done; nothing is reported there, and one that handles Ctrl-C and goes on keeps its tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from ..core.events import Cancel
from ..core.tasks import PENDING, FutureState
from ..display.notebook import in_notebook, is_interactive

if TYPE_CHECKING:
    from .engine import Engine

#: A second Ctrl-C within this time cancels.
AGAIN_S: Final = 2.0
#: How often it is looked whether a cell has ended.
_AFTER_CELL_S: Final = 0.05


class Interruption:
    """The first Ctrl-C: what was waited for, and until when a second one cancels it."""

    def __init__(self, engine: Engine, keys: list[str]) -> None:
        self._engine = weakref.ref(engine)
        self._keys = keys
        self._deadline = time.monotonic() + AGAIN_S
        self._handler = self._on_signal
        self._old: Any = None

    @property
    def is_over(self) -> bool:
        """True if a second Ctrl-C cancels no more."""
        return time.monotonic() > self._deadline

    def cancel(self) -> None:
        """Cancel what is not done. Takes no lock: it may run at any step of the main thread."""
        self._deadline = 0.0
        engine = self._engine()
        if engine is None or engine.is_gone:
            return
        found = (engine.table.states.get(key) for key in self._keys)
        states = [state for state in found if state is not None and state.status == PENDING]
        if states:
            engine.post(Cancel(states, False, "Ctrl-C was pressed twice", running=True))
        _report(f"{_tasks(len(states))} cancelled; what runs already is interrupted")

    def listen(self) -> None:
        """Handle SIGINT from now on, if the program does nothing of its own with it."""
        old = signal.getsignal(signal.SIGINT)
        if old in (signal.SIG_IGN, signal.default_int_handler):
            self._old = old
            signal.signal(signal.SIGINT, self._handler)

    def listen_between_cells(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle SIGINT as soon as no cell runs: a kernel puts its handler back after each."""
        if self.is_over:
            return
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            self.listen()
        else:
            loop.call_later(_AFTER_CELL_S, self.listen_between_cells, loop)

    def stop_listening(self) -> None:
        """Put the handler back that was there."""
        if signal.getsignal(signal.SIGINT) == self._handler:
            signal.signal(signal.SIGINT, self._old)

    def _on_signal(self, number: int, frame: Any) -> None:
        old, is_over = self._old, self.is_over
        self.stop_listening()
        if not is_over:
            self.cancel()
        if callable(old):
            old(number, frame)


def on_interrupt(engine: Engine, states: list[FutureState]) -> None:
    """Note that Ctrl-C has ended the wait for these states, of which some are not done."""
    if threading.current_thread() is not threading.main_thread() or not is_interactive():
        return
    before, engine.interruption = engine.interruption, None
    if before is not None:
        before.stop_listening()
        if not before.is_over:
            before.cancel()
            return
    keys = [state.key for state in states if state.status == PENDING]
    if not keys or engine.is_gone:
        return
    of = "" if len(keys) == len(states) else f" of {len(states)}"
    one = len(keys) == 1
    _report(
        f"interrupted; {len(keys)}{of} task{'' if one and not of else 's'} "
        f"{'is' if one else 'are'} not done and {'continues' if one else 'continue'} on the "
        f"cluster. client.cancel(futures) cancels {'it' if one else 'them'}, and so does a second "
        f"Ctrl-C within {AGAIN_S:g} s"
    )
    engine.interruption = made = Interruption(engine, keys)
    if in_notebook():
        with contextlib.suppress(RuntimeError):  # this kernel runs cells in another way
            loop = asyncio.get_running_loop()
            loop.call_later(_AFTER_CELL_S, made.listen_between_cells, loop)
            loop.call_later(AGAIN_S, made.stop_listening)
    else:
        made.listen()


def _tasks(n: int) -> str:
    return f"{n} task is" if n == 1 else f"{n} tasks are"


def _report(text: str) -> None:
    # Not a warning of logging, whose locks a handler of signals must not take. And an error of the
    # stream, of whatever class a front end has, would come out in the code that was interrupted.
    with contextlib.suppress(Exception):
        print(f"weft: {text}", file=sys.stderr, flush=True)
