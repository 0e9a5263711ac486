"""Lets a caller that is alone send and receive by itself, without the thread of the event loop.

`submit(...).result()` in a loop is a question and an answer at a time. When some waits one after
the other were such (`may_begin`), the loop lends the reading (`protocol/net/lent_reading.py`), and
a caller hands its call to the core on its own thread, writes the message, and reads until the state
is done. What only has to be done some time, as a release, waits for the next call.

The loop takes the reading back when anything else happens: another thread waits, a second
call is submitted before the first is waited for, something is posted that has to be noticed, the
answer does not come soon, or no caller has waited for a while. A thread that receives delivers all
that comes, and is never disturbed: it gives the reading back when it has done.

The core is protected by the engine's lock. Handlers of signals, which may raise anywhere in the
main thread, are delayed while that thread is here, for `_LONGEST_S` at most.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ...protocol.net.lent_reading import STREAK, LentReading
from ..core.tasks import PENDING, FutureState
from .delayed_signals import delay_handlers, has_room_for_calls, run_delayed
from .watchers import ThreadWaiter

if TYPE_CHECKING:
    from .engine import Engine

#: A caller waits this long by itself; then the loop receives, and the caller sleeps.
_LONGEST_S: Final = 0.05


class PastLoop(LentReading):
    """The lent reading of an engine's connection. Any thread may call what has no other comment."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        #: {thread: its waiter} of all threads that wait for the loop. An exception of a signal
        #: handler may have left one behind, whose place the next wait of that thread takes.
        self._waiting: dict[int, ThreadWaiter] = {}
        #: Calls that were submitted since the last wait began.
        self._n_submitted = 0

    # --- What callers do --------------------------------------------------------------------------

    def note_submission(self) -> bool:
        """Count a call; return whether its thread may send it."""
        self._n_submitted += 1
        return self.is_lent and self._n_submitted == 1

    def wait_begins(self, waiter: ThreadWaiter, is_single: bool) -> None:
        """Note that a thread waits for the loop, for one state or for more."""
        self._waiting[threading.get_ident()] = waiter
        is_alone = is_single and self._n_submitted <= 1 and len(self._waiting) == 1
        self._streak = self._streak + 1 if is_alone else 0
        self._n_submitted = 0

    def wait_ends(self) -> None:
        """Note that it waits no more."""
        # None, if it was interrupted in `wait_begins`.
        self._waiting.pop(threading.get_ident(), None)

    def flush(self) -> bool:
        """Hand the queue to the core on this thread; return False if the loop has to do it.

        It has to do it within an event of the core, where a finalizer of the user submits. This
        waits for no lock: such a thread may hold another one, for which the core's holder waits.
        """
        engine = self._engine
        if engine.is_in_core or not has_room_for_calls():
            return False
        delayed = delay_handlers()
        try:
            if not engine.lock.acquire(blocking=False):
                return False
            try:
                if not self.is_lent or engine.is_closed:
                    return False
                if engine.handle_slice():
                    engine.wake()
                self.drain()
                return True
            finally:
                engine.lock.release()
        finally:
            run_delayed(delayed)

    def hand_over(self) -> None:
        """Hand the whole queue to the core on this thread; the loop sends, unless it lends."""
        engine = self._engine
        delayed = delay_handlers()
        try:
            with engine.lock:
                while engine.handle_slice():
                    pass
                is_sent = self.is_lent and not engine.is_closed
                if is_sent:
                    self.drain()
            if not is_sent:
                engine.wake()
        finally:
            run_delayed(delayed)

    def receive_until_done(self, state: FutureState, timeout: float | None) -> None:
        """Receive on this thread until `state` is done.

        Return earlier if the time is over, or if the loop has to receive: a wait that is posted now
        takes the reading back.
        """
        self._n_submitted = 0
        if self._is_wanted_back or not has_room_for_calls():
            return
        delayed = delay_handlers()
        try:
            if not self._reading.acquire(blocking=False):
                return  # another thread receives
            try:
                left_s = _LONGEST_S if timeout is None else min(_LONGEST_S, timeout)
                deadline = time.monotonic() + left_s
                connection = self._connection
                while self.is_lent and state.status == PENDING and left_s > 0:
                    if not connection.receive(left_s):
                        break
                    left_s = deadline - time.monotonic()
                self._n_readings += 1
            finally:
                self._reading.release()
            if self._is_wanted_back or self._waiting:
                self._engine.wake()
        finally:
            run_delayed(delayed)

    def drain(self) -> None:
        """Empty the core's out-boxes on this thread, which holds the lock.

        What only the loop can do is left to it.
        """
        engine = self._engine
        core, link = engine.core, engine.link
        if core.before:
            engine.notify()
        if core.to_scheduler and link is not None:
            messages, core.to_scheduler = core.to_scheduler, []
            if not link.send_past_loop(messages):
                core.to_scheduler = messages + core.to_scheduler
                engine.wake()
        if core.after:
            engine.wake()

    # --- What the loop's thread does --------------------------------------------------------------

    @property
    def may_begin(self) -> bool:
        """True if the last waits were alone."""
        return self._streak >= STREAK and not self.is_lent

    def begin(self) -> None:
        """Lend the reading. Not while the connection delivers."""
        link = self._engine.link
        connection = None if link is None else link.connection
        if self.may_begin and not self._engine.is_closed and connection is not None:
            self.lend(connection)
