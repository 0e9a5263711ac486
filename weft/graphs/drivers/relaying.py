"""Passes the begin and end of tasks, in order, from the threads that run them to callbacks.

The threads that pull tasks do not wait for callbacks. They queue these events, and the calling
thread, which has no other work, shows them to the `Observer`. The end of a task is queued before
any of its dependents can begin, so tasks are shown in an order in which they might have been run
one by one.

Results are held until they were shown. So that they do not pile up behind slow callbacks, no task
is taken once the calling thread has been showing for `AHEAD_S` without reaching the end.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from ..core.tasks import GraphTask, call
from .observing import Observer

#: The time for which the calling thread may have to wait for the interpreter lock.
AHEAD_S = 0.005


class Relay:
    """Shows a run whose tasks are called by `call`. One thread creates it and calls `show`.

    Attributes:
        error: the error that a callback raised while the calling thread was running tasks.
    """

    def __init__(self, observer: Observer) -> None:
        self.error: BaseException | None = None
        self._observer = observer
        self._caller_id = threading.get_ident()
        #: (task,) when it begins, (task, value, thread) when it has ended; (): check the waiters.
        self._events: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        #: Time at which the calling thread began to show; None = it has shown all events.
        self._since_s: float | None = None

    @property
    def is_behind(self) -> bool:
        """True while events are shown too late."""
        since_s = self._since_s
        return since_s is not None and monotonic() - since_s > AHEAD_S

    def call(self, task: GraphTask) -> Any:
        """Make the call of a task, in any thread, and return its result."""
        thread_id = threading.get_ident()
        is_caller = thread_id == self._caller_id
        self._events.put((task,))
        if is_caller:
            self._show_between()
        value = call(task)
        self._events.put((task, value, thread_id))
        if is_caller:
            self._show_between()
        return value

    def wake(self) -> None:
        """Let the calling thread check whether the run is over."""
        self._events.put(())

    def show(self, timeout_s: float = 0.0) -> None:
        """Show the queued events; if there are none, wait for one.

        Raises:
            BaseException: an error of a callback.
        """
        events, observer = self._events, self._observer
        try:
            event = events.get(timeout=timeout_s) if timeout_s else events.get_nowait()
        except Empty:
            return
        self._since_s = monotonic()
        while event:
            if len(event) == 1:
                observer.pretask(*event)
            else:
                observer.posttask(*event)
            try:
                event = events.get_nowait()
            except Empty:
                break
        self._since_s = None

    def _show_between(self) -> None:
        try:
            self.show()
        except BaseException as exc:
            self.error = exc
            raise
