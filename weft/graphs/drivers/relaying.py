"""From the threads that run tasks to the one that shows them: what begins and what ends, in order.

The threads that pull tasks do not wait for callbacks. They put down what happens, and the calling
thread, which has nothing else to do, shows it to the `Observer`. A task that has ended is put down
before any that needed it can begin, so what is shown is an order in which the tasks might have been
run one by one.

Results are held until they were shown. So that they do not pile up behind slow callbacks, no task
is taken while the calling thread has been showing for `AHEAD_S` without coming to the end.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from ..core.tasks import GraphTask, call
from .observing import Observer

#: As long as an interpreter with a lock may keep the calling thread waiting for it.
AHEAD_S = 0.005


class Relay:
    """Shows a run whose tasks are called by `call`. Created and asked to show by one thread.

    Attributes:
        error: what a callback has raised while the calling thread was running tasks.
    """

    def __init__(self, observer: Observer) -> None:
        self.error: BaseException | None = None
        self._observer = observer
        self._caller_id = threading.get_ident()
        #: (task,) when it begins, (task, value, thread) when it has ended; (): check the waiters.
        self._events: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        #: When the calling thread has begun to show; None = it has come to the end.
        self._since_s: float | None = None

    @property
    def is_behind(self) -> bool:
        """Whether what has happened is not shown in time."""
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
        """Let the calling thread look whether the run is over."""
        self._events.put(())

    def show(self, timeout_s: float = 0.0) -> None:
        """Show what has happened; if nothing has, wait for it.

        Raises:
            BaseException: what a callback raises.
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
