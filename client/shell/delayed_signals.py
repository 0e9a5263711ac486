"""Delays the handlers of signals while the main thread changes state that must stay whole.

Python runs the handlers of signals in the main thread, between any two steps of a program, and most
of them raise an exception there: KeyboardInterrupt, or that of a time limit. Code of the event
loop's thread is never interrupted so; code that the main thread runs in its place must not be.

    delayed = delay_handlers()
    try:
        ...
    finally:
        run_delayed(delayed)  # may raise what a handler raises

In other threads both do nothing, but for those of tasks, which others may interrupt
(`worker/slots/interrupting.py`): these are not interrupted meanwhile.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...protocol.host.blocking import InterruptGate, gate_here
from ...protocol.host.forks import after_fork

#: [(number of a signal, its handler)].
Delayed: TypeAlias = list[tuple[int, Callable[[int, Any], Any]]]


class _Closed(Delayed):
    """The state of `run_delayed` in the thread of a task."""

    def __init__(self, gate: InterruptGate) -> None:
        super().__init__([(0, print)])  # never empty
        self.gate = gate


# `signal` has the same functions, which make enums of what these return: that takes ten times as
# long.
_module: Final = importlib.import_module("_signal")
_get_handler: Final[Callable[[int], Any]] = _module.getsignal
_set_handler: Final[Callable[[int, Any], object]] = _module.signal

#: Signals that come from outside, at any moment, and whose handlers may raise. Looking for the
#: handlers of all others too would double the cost of a section.
_NAMES: Final = (
    "SIGHUP SIGINT SIGQUIT SIGUSR1 SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGCHLD SIGXCPU SIGVTALRM "
    "SIGPROF SIGWINCH SIGIO SIGRTMIN SIGRTMAX"
)
_NUMBERS: Final = [int(getattr(signal, name)) for name in _NAMES.split() if hasattr(signal, name)]

_main_thread_id = threading.main_thread().ident


@after_fork
def _note_main_thread() -> None:
    global _main_thread_id  # noqa: PLW0603
    _main_thread_id = threading.main_thread().ident


#: Signals that came while their handlers were delayed, in order. Only the main thread uses it.
_arrived: list[int] = []
#: The handlers of all signals when they were looked up last, and those of them that are functions.
_last: tuple[list[Any], Delayed] = ([], [])

#: A caller with more frames than this below it, or with less room above, is left alone.
_MAX_FRAMES: Final = 300
_MIN_LIMIT: Final = 600


def delay_handlers() -> Delayed:
    """Note signals from now on, instead of handling them; return what `run_delayed` needs."""
    global _last  # noqa: PLW0603
    if threading.get_ident() != _main_thread_id:
        gate = gate_here()
        if gate is None:
            return []
        # Closed already: weft's own code runs, or within it a finalizer of the user.
        was_open = gate.is_open
        gate.close()
        return _Closed(gate) if was_open else []
    handlers = list(map(_get_handler, _NUMBERS))
    if handlers != _last[0]:
        pairs = zip(_NUMBERS, handlers, strict=True)
        _last = (handlers, [(n, handler) for n, handler in pairs if callable(handler)])
    delayed = _last[1]
    try:
        for number, _ in delayed:
            _set_handler(number, _note)
    except BaseException:  # of a handler that is not delayed yet
        _restore(delayed)
        raise
    return delayed


def run_delayed(delayed: Delayed) -> None:
    """Put the handlers back, and run those whose signals have come."""
    if not delayed:
        return
    if isinstance(delayed, _Closed):
        delayed.gate.open()
        return
    _restore(delayed)
    if _arrived:
        arrived = dict.fromkeys(_arrived)
        _arrived.clear()
        handlers = dict(delayed)
        for number in arrived:
            handlers[number](number, sys._getframe(1))


def _restore(delayed: Delayed) -> None:
    error: BaseException | None = None
    n_done = 0
    while n_done < len(delayed):
        try:
            while n_done < len(delayed):
                _set_handler(*delayed[n_done])
                n_done += 1
        except BaseException as raised:  # of a handler that is back; the others must come back too
            error = raised
    if error is not None:
        raise error


def _note(number: int, _frame: object) -> None:
    _arrived.append(number)


def has_room_for_calls() -> bool:
    """Return whether some dozens of nested calls cannot exceed the recursion limit here."""
    if sys.getrecursionlimit() < _MIN_LIMIT:
        return False
    try:
        sys._getframe(_MAX_FRAMES)
    except ValueError:
        return True
    return False
