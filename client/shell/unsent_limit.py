"""Limits what is submitted while there is no session; beyond the limit, callers wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..core.events import Confirm
from .watchers import ThreadWaiter

if TYPE_CHECKING:
    from .engine import Engine


class Gap:
    """Counts the bytes of calls that are submitted from the end of a session to the next one."""

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self._nbytes = 0
        self._lock = threading.RLock()  # a finalizer may submit within it

    def admit(self, engine: Engine, nbytes: int) -> None:
        """Wait, if these bytes are too many, until the scheduler has read the earlier calls.

        It returns as well when the client gives up: then the call fails. The event loop's own
        thread does not wait, so that of an asynchronous client never does. Ctrl-C interrupts.
        """
        if engine.is_own_thread or engine.is_gone:
            return
        with self._lock:
            is_over = self._nbytes > 0 and self._nbytes + nbytes > self.limit_nbytes
            self._nbytes += nbytes
        if is_over:
            waiter = ThreadWaiter(1, wants_data=False)
            engine.wait(waiter, Confirm(waiter), None)
