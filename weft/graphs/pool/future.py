"""`PoolFuture`: a `concurrent.futures.Future` that costs half a microsecond until it is awaited.

Owns the life of one task of a `ThreadPool` (pending, running, finished or cancelled) and its
watchers. It never chooses when or where the task runs, and calls no user's function under a lock.

The standard future makes a condition and two lists for each task and takes the lock at each step.
Most futures of a pool are never waited for one by one, so here these are made when the first thread
watches (waits, adds a callback, cancels). Then two threads may meet: the worker that runs the task,
and the one that begins to watch. Neither takes a lock; each writes first and then reads:

    worker:    _progress = FINISHED;  then look for _watched
    watcher:   set _watched;          then read _progress

So at least one of them notices the other, in either order, with or without a global interpreter
lock, provided that single attributes are read and written whole and in order. (Without it, CPython
locks the object for each store into a slot, and a list or deque for each append and pop, so a later
read is not moved before them.)

- While `_watched` is None, `_progress` is the state of the future.
- From then on `_watched.state` is, and it changes only under the lock of `_watched`, so the state
  is stable for a holder of the lock. `concurrent.futures.wait` and `as_completed` need that.
- A thread that reads the state without the lock reads `_progress` before `_watched`. In the other
  order, a future could be seen finished by one thread and, later, unfinished by another.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import (
    CANCELLED,
    CANCELLED_AND_NOTIFIED,
    FINISHED,
    LOGGER,
    PENDING,
    RUNNING,
)
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ...protocol.durations import seconds_or_none

if TYPE_CHECKING:
    from ...protocol.durations import Duration

T = TypeVar("T")

_Callback = Callable[[Future[Any]], object]

#: The only key in a future's dict of attributes that is not the user's.
_WATCHED = "_weft_watched"

#: CANCELLED alone is a state of standard futures; a PoolFuture notifies when it is cancelled.
_DONE = (CANCELLED_AND_NOTIFIED, FINISHED, CANCELLED)


def seconds_to_wait(timeout: Duration | None) -> float | None:
    """Return the seconds of a timeout. Numbers mean what they mean in the standard library.

    There, a number below zero is a time that has passed, which callers compute from a deadline.
    """
    if timeout is None or isinstance(timeout, (int, float)):
        return timeout
    return seconds_or_none(timeout, "timeout")


class _WatchedState(_thread.RLock):  # type: ignore[misc]  # CPython allows it
    """The state of a watched future, its watchers, and its lock.

    It takes the place of the `threading.Condition` of a standard future, at a fifth of its cost:
    only threads that sleep in `wait` need a condition.
    """

    __slots__ = ("_condition", "callbacks", "state", "waiters")

    def __init__(self) -> None:
        #: None until the thread that made this has read the future's `_progress`.
        self.state: str | None = None
        #: The waiters of `wait` and `as_completed` of `concurrent.futures`. The list is made when
        #: it is needed, because many small objects slow the garbage collector down.
        self.waiters: list[Any] | None = None
        self.callbacks: list[_Callback] | None = None
        self._condition: threading.Condition | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep without the lock until `notify_all`; False if that took `timeout` seconds."""
        if self._condition is None:
            self._condition = threading.Condition(self)
        return self._condition.wait(timeout)

    def notify_all(self) -> None:
        """Wake the threads in `wait`."""
        if self._condition is not None:
            self._condition.notify_all()

    def take_callbacks(self) -> list[_Callback]:
        """Return the callbacks, once, and drop them, because they often refer to the future."""
        callbacks, self.callbacks = self.callbacks, None
        return callbacks or []


class PoolFuture(Future[T]):
    """The result of a task of a `weft.ThreadPool`. It works wherever a standard future does.

    One difference: `cancel` wakes waiting threads at once, not when a worker reaches the task.
    """

    __slots__ = ("_args", "_exception", "_func", "_progress", "_result", "_watched")

    # Attributes of the standard class with these names are kept here or in `_watched`.
    _result: Any
    _exception: BaseException | None
    _func: Callable[..., T] | None
    _args: tuple[Any, ...] | None
    _progress: str
    _watched: _WatchedState | None

    def __init__(self, func: Callable[..., T], args: tuple[Any, ...]) -> None:
        # Not the standard class's __init__, which makes objects that may never be needed.
        self._func = func
        self._args = args
        self._exception = None
        self._progress = PENDING
        self._watched = None

    # --- The worker's side ------------------------------------------------------------------------

    def run(self) -> None:
        """Call the function, unless the future was cancelled. Called once, by a worker thread.

        Any exception of the function becomes the outcome. Only an exception of a done-callback that
        is no `Exception` is raised from here.
        """
        try:
            self._progress = RUNNING
            if self._watched is not None and not self._begin():
                return
            try:
                self._result = self._func(*self._args)  # type: ignore[misc]  # set until it has run
            except BaseException as error:
                self._result = None
                # Without this frame, which does not help the user.
                traceback = error.__traceback__
                self._exception = error.with_traceback(traceback and traceback.tb_next)
                del traceback
            # Before it is announced: function and arguments are dropped when the result comes.
            self._func = self._args = None
            self._progress = FINISHED
            if self._watched is not None:
                self._settle()
        finally:
            del self  # the exception's traceback refers to the function's frame, and that to this

    def _begin(self) -> bool:
        """Go from pending to running under the lock; False if the task must not run."""
        watched = self._condition
        with watched:
            if watched.state in _DONE:
                return False
            watched.state = RUNNING
            return True

    def _settle(self) -> None:
        """Notify the watchers of the outcome, unless that is done already."""
        watched = self._condition
        with watched:
            # A thread that began to watch after the outcome was set has read it, see `_watch`.
            if watched.state in _DONE:
                return
            callbacks = self._settle_locked(watched)
        self._call_back(callbacks)

    def _settle_locked(self, watched: _WatchedState) -> list[_Callback]:
        """Wake all waiting threads; return the callbacks, to be called without the lock."""
        watched.state = FINISHED
        for waiter in watched.waiters or ():
            if self._exception is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        watched.notify_all()
        return watched.take_callbacks()

    def _call_back(self, callbacks: list[_Callback]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                LOGGER.exception("exception calling callback for %r", self)

    def abandon(self, error: BaseException) -> None:
        """Take `error` as the outcome if there is none yet: no thread is going to run the task."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return  # there is one

    def disown(self, error: BaseException) -> None:
        """Take `error` as the outcome if there is none yet, and forget the watchers.

        For a fork's child, where no other thread runs yet: locks may be held by threads that exist
        only in the parent, and only the parent calls the callbacks.
        """
        if self._watched is not None and self._watched.state == CANCELLED_AND_NOTIFIED:
            return
        if self._progress is not FINISHED:
            self._result, self._exception = None, error
            self._func = self._args = None
            self._progress = FINISHED
        self._watched = None
        self.__dict__.pop(_WATCHED, None)

    # --- The watchers' side -----------------------------------------------------------------------

    def _watch(self) -> _WatchedState:
        """Begin to watch: from here on the state is in the returned object.

        Several threads may do it at once; if one is interrupted half-way, the next one completes
        the work.
        """
        # One atomic operation selects the object that is used. The dict has one, a slot does not.
        watched: _WatchedState = self.__dict__.setdefault(_WATCHED, _WatchedState())
        with watched:
            if watched.state is None:
                self._watched = watched
                watched.state = self._progress  # after the line before: see the module's docstring
        return watched

    @property
    def _condition(self) -> _WatchedState:  # type: ignore[override]  # made when it is asked for
        watched = self._watched
        if watched is None or watched.state is None:
            return self._watch()
        return watched

    @property
    def _state(self) -> str:  # type: ignore[override]
        progress = self._progress  # before _watched is read
        if self._watched is None:
            return progress
        return self._condition.state  # type: ignore[return-value]  # not None: `_watch` is through

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        watched = self._condition
        with watched:
            if watched.waiters is None:
                watched.waiters = []
            return watched.waiters

    def result(self, timeout: Duration | None = None) -> T:
        """Return the result of the task, or raise its exception.

        Args:
            timeout: time to wait, in seconds or as "30s", ...; None = for ever.

        Raises:
            concurrent.futures.TimeoutError: the task has not ended in time; it goes on.
            concurrent.futures.CancelledError: the future was cancelled.
        """
        if self._progress is FINISHED and (
            (watched := self._watched) is None or watched.state is FINISHED
        ):
            if self._exception is None:
                return self._result  # type: ignore[no-any-return]
            try:
                raise self._exception
            finally:
                del self  # the exception's traceback refers to this frame
        try:
            return super().result(seconds_to_wait(timeout))
        finally:
            del self

    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Return the task's exception, None if it returned. Waits and raises as `result` does."""
        if self._progress is FINISHED and self._watched is None:
            return self._exception
        return super().exception(seconds_to_wait(timeout))

    def done(self) -> bool:
        """Return whether the task has finished or was cancelled."""
        return self._state in _DONE

    def running(self) -> bool:
        """Return whether the task is being run."""
        return self._state == RUNNING

    def cancelled(self) -> bool:
        """Return whether the future was cancelled."""
        return self._state == CANCELLED_AND_NOTIFIED

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(self)` when the future is done: in a worker thread, or here if it is done now.

        Callbacks are called in the order in which they were added; an exception of a callback is
        logged.
        """
        if self._progress is not FINISHED or self._watched is not None:
            watched = self._condition
            with watched:
                if watched.state not in _DONE:
                    if watched.callbacks is None:
                        watched.callbacks = []
                    watched.callbacks.append(fn)
                    return
        self._call_back([fn])

    def cancel(self) -> bool:
        """Cancel the task if it has not started; return whether the future is cancelled."""
        if self._progress is FINISHED and self._watched is None:
            return False
        watched = self._condition
        with watched:
            if watched.state is not PENDING:
                return watched.state == CANCELLED_AND_NOTIFIED
            # The worker has not passed `_begin`, and will come to it, because _watched is set.
            watched.state = CANCELLED_AND_NOTIFIED
            self._func = self._args = None
            for waiter in watched.waiters or ():
                waiter.add_cancelled(self)
            watched.notify_all()
            callbacks = watched.take_callbacks()
        self._call_back(callbacks)
        return True

    # --- For executors that wrap this one ---------------------------------------------------------

    def set_running_or_notify_cancel(self) -> bool:
        """Mark a pending future as running; return False if it was cancelled."""
        watched = self._condition
        with watched:
            if watched.state == CANCELLED_AND_NOTIFIED:
                return False
            if watched.state is not PENDING:
                LOGGER.critical("future %r in unexpected state: %s", self, watched.state)
                raise RuntimeError(f"a future that is {watched.state} cannot be started")
            watched.state = RUNNING
            return True

    def set_result(self, result: T) -> None:
        """Take `result` as the outcome."""
        self._set_outcome(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Take `exception` as the outcome."""
        self._set_outcome(None, exception)

    def _set_outcome(self, result: Any, exception: BaseException | None) -> None:
        watched = self._condition
        with watched:
            if watched.state in _DONE:
                raise InvalidStateError(f"{watched.state}: {self!r}")
            self._result, self._exception = result, exception
            self._func = self._args = None
            self._progress = FINISHED
            callbacks = self._settle_locked(watched)
        self._call_back(callbacks)

    def __reduce__(self) -> NoReturn:
        """Refuse: a copy would never get the outcome."""
        raise TypeError(f"cannot pickle {type(self).__name__!r}: send the result instead")
