"""Resets the signal handling that a process forked by a task must not inherit from its worker."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection


def give_children_default_signals(numbers: Collection[signal.Signals]) -> None:
    """Give children that are forked from now on the default action for these signals.

    The loop's handlers write each signal into a socket that parent and child share. A task that
    uses `multiprocessing.Pool` ends its processes with SIGTERM; without this, the worker would
    take each of these signals for its own order to stop. A signal that comes at once waits until
    the child has closed the socket.
    """
    if not hasattr(os, "register_at_fork"):
        return
    forking = threading.local()

    def block() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def forget() -> None:
        # The child has one thread, the one that forked, which is its main thread now.
        signal.set_wakeup_fd(-1)
        for number in numbers:
            is_ctrl_c = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=forget)
