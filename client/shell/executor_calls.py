"""The calls of one executor: real `concurrent.futures.Future`s that follow the states of tasks.

Completions come in batches. The loop hands a batch of states to the thread of callbacks, which
unpickles the results and completes the futures: users' done-callbacks cannot block the loop. The
rows of `map` have no futures; its iterator reads their states.

Nothing here refers to the executor, which may be collected while its calls go on. What keeps the
calls is the engine: each pending state refers to its watcher, and that to all the rest.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import InitializerFailed, WeftError
from ...protocol.host.blocking import blocked
from ...protocol.host.forks import after_fork
from ...protocol.values.serialize import loads
from ..core.events import Confirm, Watch, Withdraw
from ..core.tasks import NO_VALUE, FutureState, Watcher
from ..future import Future, load
from ..insight.asking import pages_of
from ..results.failures import exception_of
from .both_ways import result_of
from .in_task import is_in_task
from .interruptible import SLICE_S
from .watchers import StartWaiter, ThreadWaiter

if TYPE_CHECKING:
    from .engine import Caller, Engine

#: Programs that look for the messages of executors look here.
logger: Final = logging.getLogger("concurrent.futures")

#: A call whose beginning is not known after this long is left to run.
_WITHDRAW_S: Final = 5.0
#: Keys in one message.
_N_WITHDRAWN: Final = 10_000
_REASON: Final = "its future was cancelled"

#: Of executors that are open, or have calls that are not done: the program waits for these.
_open: weakref.WeakSet[Calls] = weakref.WeakSet()
#: No executor takes calls any more.
_is_ending = False


class Calls(Watcher):
    """The pending calls of one executor, and their end."""

    def __init__(self, engine: Engine, owner: Any, owns_client: bool) -> None:
        super().__init__(wants_data=True)
        self.engine = engine
        #: The client that is closed with the executor, if it was made for it.
        self._owner = owner if owns_client else None
        #: {state: (future, handle)} of calls that are not done. The handle keeps the key wanted.
        self._pending: dict[FutureState, tuple[ExecutorFuture, Future]] = {}
        #: {rows: None} of maps that are not done.
        self._maps: dict[Rows, None] = {}
        self._idle = threading.Condition()
        #: Held while the executor's own client is closed.
        self._closing = threading.Lock()
        #: Why no call is accepted any more; "" before that.
        self.refusal = ""
        #: Why each call fails; "" if they do not.
        self.broken = ""
        _open.add(self)
        # Now, because no thread can be started when the program ends.
        engine.loop.call_soon_threadsafe(engine.call_back, _nothing, None)

    # --- Calls of users ---------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise RuntimeError if no call is accepted any more."""
        if self.broken:
            raise futures.BrokenExecutor(self.broken)
        if self.refusal or _is_ending:
            raise RuntimeError(
                self.refusal or "cannot schedule new futures after interpreter shutdown"
            )

    def follow(self, handle: Future) -> ExecutorFuture:
        """Return a future that will have the result of a submitted call."""
        state = handle._state
        future = ExecutorFuture(self, state)
        if caller := self.engine.caller_here():
            future.caller = caller
        self._pending[state] = future, handle
        self.engine.post(Watch(self, [state]))
        return future

    def follow_rows(self, rows: Rows, handles: list[Future]) -> None:
        """Let `rows` wait for these tasks."""
        self._maps[rows] = None
        self.engine.post(Watch(rows, [handle._state for handle in handles]))

    def withdraw(self, chosen: list[FutureState]) -> None:
        """Cancel those of these calls that have not begun, and return when that is known."""
        engine = self.engine
        for i in range(0, len(chosen), _N_WITHDRAWN):
            states = chosen[i : i + _N_WITHDRAWN]
            # Before that the scheduler has placed them, so what can begin at once has begun.
            placed = ThreadWaiter(1, wants_data=False)
            engine.wait(placed, Confirm(placed), _WITHDRAW_S)
            waiter = StartWaiter(len(states), wants_data=False)
            engine.wait(waiter, Withdraw(waiter, states, _REASON), _WITHDRAW_S)
            for state in states:
                if state.status == "cancelled":
                    self._complete(state)
                elif state.status == "pending" and (entry := self._pending.get(state)):
                    entry[0].begin()

    def cancel_all(self) -> None:
        """Cancel all calls that have not begun."""
        states = list(self._pending)
        for rows in list(self._maps):
            states += rows.unfinished()
        self.withdraw(states)

    def note_broken(self, error: InitializerFailed) -> None:
        """Take no more calls, and log why, as the pools of the standard library do."""
        if not self.broken:
            self.broken = str(error)
            logger.critical("Exception in initializer: %s", error)

    def wait(self) -> None:
        """Wait until no call is left."""
        with blocked(), self._idle:
            while (self._pending or self._maps) and not self.engine.loop.is_closed():
                # In slices: whoever closes the loop notifies nobody.
                self._idle.wait(SLICE_S)

    def end(self, *, wait: bool) -> None:
        """Take no more calls; close the executor's own client after the last one."""
        self.refusal = self.refusal or "cannot schedule new futures after shutdown"
        if wait:
            self._end_at_last()
        else:
            # By the loop, because a finalizer must take no lock, as the start of a thread does.
            with contextlib.suppress(RuntimeError):  # it is closed
                self.engine.loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        if not _is_ending:  # else the program waits in `_finish_open`
            threading.Thread(target=self._end_at_last, name="weft-executor", daemon=True).start()

    def _end_at_last(self) -> None:
        self.wait()
        with self._closing:
            if self._owner is not None:
                self._owner.close()
                self._owner = None
        _open.discard(self)

    # --- The loop's thread ------------------------------------------------------------------------

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.engine.call_back(self._complete_all, items)

    def rows_done(self, rows: Rows) -> None:
        """Note that no row of a map is pending."""
        self._maps.pop(rows, None)
        self._note_idle()

    # --- The thread of callbacks ------------------------------------------------------------------

    def _complete_all(self, states: list[FutureState]) -> None:
        for state in states:
            self._complete(state)
        self._note_idle()

    def _note_idle(self) -> None:
        if not (self._pending or self._maps):
            with self._idle:
                self._idle.notify_all()

    def _complete(self, state: FutureState) -> None:
        entry = self._pending.pop(state, None)
        if entry is None:  # another thread has done it
            return
        caller = entry[0].caller
        if caller is None:
            self._finish(state, *entry)
        else:  # callbacks of a task's future may submit as the task does
            with self.engine.acting_for(caller):
                self._finish(state, *entry)

    def _finish(self, state: FutureState, future: ExecutorFuture, handle: Future) -> None:
        failure = state.failure
        try:
            if failure is None:
                try:
                    result = take(state, self.engine)
                except BaseException as error:  # SystemExit, if unpickling calls sys.exit
                    future.set_exception(error)
                else:
                    future.set_result(result)
            elif failure[0] == "cancelled" and futures.Future.cancel(future):
                future.set_running_or_notify_cancel()
            else:
                reason = exception_of(state)
                if isinstance(reason, InitializerFailed):
                    self.note_broken(reason)
                future.set_exception(reason)
        except futures.InvalidStateError:
            return  # the user has completed it
        finally:
            future.forget()
            del handle


class ExecutorFuture(futures.Future[Any]):
    """The future of a call on a cluster, as `Executor.submit` returns it."""

    #: The task that has submitted the call; None outside of tasks.
    caller: Caller | None = None

    def __init__(self, calls: Calls, state: FutureState) -> None:
        super().__init__()
        self._calls: Calls | None = calls
        self._task: FutureState | None = state
        if is_in_task():
            self._waiters: list[Any] = _Waiters()

    def cancel(self) -> bool:
        """Cancel the call if it has not begun, and return whether it is cancelled.

        The scheduler and the worker are asked, which takes about a round trip. If they do not
        answer in five seconds, the call is left to run.
        """
        calls, state = self._calls, self._task
        if calls is None or state is None or self.done() or super().running():
            return self.cancelled()
        calls.withdraw([state])
        return self.cancelled()

    def running(self) -> bool:
        """Return whether the call is with a worker; if that is not known, the scheduler is asked.

        A worker has the next calls for some 30 ms beside those that it runs: these can still be
        cancelled.
        """
        calls, state = self._calls, self._task
        if super().running():
            return True
        if calls is None or state is None or self.done():
            return False
        try:
            pages = result_of(
                calls.engine,
                lambda: pages_of(calls.engine, "states", {"keys": [state.key]}, _WITHDRAW_S),
                asynchronous=False,
            )
            return any(page["processing"] for page in pages)
        except WeftError:  # there is no answer now
            return False

    def result(self, timeout: float | None = None) -> Any:
        """See `concurrent.futures.Future`; in a task, this waits without its thread."""
        with contextlib.nullcontext() if self.done() else blocked():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `result`."""
        with contextlib.nullcontext() if self.done() else blocked():
            return super().exception(timeout)

    def begin(self) -> None:
        """Note that the call has begun."""
        with self._condition:
            if self._state == "PENDING":
                self._state = "RUNNING"

    def forget(self) -> None:
        """Keep no reference to the task, which is over."""
        self._calls = self._task = None


class _Waiters(list[Any]):
    """The callers of `wait` and `as_completed` of the standard library, on threads of tasks.

    Each brings an event that it waits for. It gets another one, before anything can set the first.
    """

    def append(self, waiter: Any) -> None:
        """Note a caller."""
        if type(waiter.event) is threading.Event:
            waiter.event = _EventForTasks()
        super().append(waiter)


class _EventForTasks(threading.Event):
    """An event for which a task waits without its thread."""

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Event`."""
        with blocked():
            return super().wait(timeout)


class Rows(Watcher):
    """The rows of one `map` that were submitted and not yielded yet."""

    __slots__ = ("__weakref__", "_calls", "_event", "_is_dropped", "_n_left", "handles")

    def __init__(self, calls: Calls) -> None:
        super().__init__(wants_data=True)
        self._calls = calls
        self._event = threading.Event()
        #: No result will be read any more.
        self._is_dropped = False
        #: Of tasks that are not done. Changed by the loop's thread, and by `add` under the lock.
        self._n_left = 0
        #: In the order of the rows.
        self.handles: deque[Future] = deque()

    def add(self, handles: list[Future]) -> None:
        """Add submitted rows, if there are any."""
        if not handles:
            return
        with self._calls.engine.lock:
            self._n_left += len(handles)
        self.handles += handles
        self._calls.follow_rows(self, handles)

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._n_left -= len(items)
        self._event.set()
        if self._n_left <= 0:
            if self._is_dropped:
                self.handles.clear()
            self._calls.rows_done(self)

    def unfinished(self) -> list[FutureState]:
        """Return the states of rows that are not done."""
        return [h._state for h in list(self.handles) if h._state.status == "pending"]

    def next_result(self, wait: Callable[[threading.Event], None]) -> Any:
        """Wait for the first row that was not yielded; return its result and forget it."""
        state = self.handles[0]._state
        while state.blob is None and state.value is NO_VALUE and state.failure is None:
            self._event.clear()
            if state.blob is None and state.value is NO_VALUE and state.failure is None:
                self._calls.engine.check_may_block()
                with blocked():
                    wait(self._event)
        del self.handles[0]
        if state.failure is not None:
            if state.failure[0] == "cancelled":
                raise futures.CancelledError
            error = exception_of(state)
            if isinstance(error, InitializerFailed):
                self._calls.note_broken(error)
            raise error
        return take(state, self._calls.engine)

    def drop(self) -> None:
        """Cancel what has not begun, and forget the results. Takes no lock: a finalizer calls it.

        What has begun is waited for by `Calls.wait`, so its handles stay until its end.
        """
        self._is_dropped = True
        left = [handle for handle in list(self.handles) if handle._state.status == "pending"]
        self.handles = deque(left)
        if left:
            states = [handle._state for handle in left]
            unheard = StartWaiter(len(left), wants_data=False)
            self._calls.engine.post(Withdraw(unheard, states, _REASON))


def take(state: FutureState, engine: Engine) -> Any:
    """Return the result of a finished state that no other future reads, and keep no reference."""
    blob = state.blob
    if blob is None:
        return load(state, engine)
    try:
        return loads(blob)
    except MemoryError:
        raise
    except Exception:
        return load(state, engine)  # which fails too, as a failure of the task


def _nothing(_: object) -> None:
    """Start the thread of callbacks."""


def _finish_open() -> None:
    """Wait for the calls of all executors, because the program ends."""
    global _is_ending  # noqa: PLW0603 - it is read by each submit
    _is_ending = True
    for calls in list(_open):
        calls.end(wait=True)


@after_fork
def _forget_open() -> None:
    """Wait for no call of the parent in a forked child, where none of them is done."""
    _open.clear()


# The functions of `threading` run before those of `atexit`, which close the clients.
threading._register_atexit(_finish_open)  # type: ignore[attr-defined]
