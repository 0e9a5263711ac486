"""`weft.ThreadPool`: threads that pull tasks from one queue, at a microsecond per task.

Owns the threads, the queue and the choice of the thread to wake; `future` owns the life of each
task. It never runs a task in the thread that submits it, and holds no lock while a task, an
initializer or a callback runs.

Nothing is locked on a task's way either. `submit` and a worker that runs out of work may meet, and
as in `future` each writes first and reads afterwards:

    submit:    append to `tasks`;  then look whether a worker is `idle`
    worker:    append to `idle`;   then look for `tasks`, and sleep only if there are none

so either the worker sees the task or `submit` the worker. While every thread is busy none is idle
and no one is called: a submit makes a future, appends it, and looks at two attributes. In the same
way a task is in the queue before `submit` looks whether the pool has ended, and a worker that sees
the end looks into the queue once more: what was accepted is run. One lock guards what happens a few
times in the life of a pool: a thread is started, the pool ends.
"""

from __future__ import annotations

import atexit
import contextvars
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from concurrent.futures._base import LOGGER
from concurrent.futures.thread import BrokenThreadPool
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from ...protocol.host.machine import n_cores
from .future import PoolFuture

P = ParamSpec("P")
T = TypeVar("T")


class _Worker:
    """One thread: it runs the oldest task, then the next, and sleeps when there is none."""

    __slots__ = ("bell", "crew", "future", "thread")

    def __init__(self, crew: _Crew, name: str) -> None:
        self.crew = crew
        #: The PoolFuture being run, or None. Not a local variable: a fork's child must find it.
        self.future: Any = None
        #: Locked, except between a call and the moment when the worker wakes, and until the thread
        #: begins or the thread that starts it is interrupted: the first to lock it decides.
        self.bell = threading.Lock()
        self.thread = _new_thread(self._work, name)

    def _work(self) -> None:
        if not self.bell.acquire(blocking=False):
            return  # not wanted any more
        try:
            self._run_tasks(self.crew)
        finally:
            del self.crew  # which keeps its workers, their threads are to be joined

    def _run_tasks(self, crew: _Crew) -> None:
        if crew.initializer is not None:
            try:
                crew.initializer(*crew.initargs)
            except BaseException:
                LOGGER.critical("Exception in initializer:", exc_info=True)
                crew.give_up("the initializer of a worker thread failed (its error was logged)")
                return
        take = crew.tasks.popleft
        while True:
            try:
                self.future = take()
            except IndexError:
                self.future = None  # an idle thread keeps no result alive
                if not self._rest():
                    return
                continue
            try:
                self.future.run()
            except BaseException as error:
                # Raised by a done-callback (what is an Exception is logged elsewhere), or thrown
                # into this thread from outside. Others rely on the thread, so it goes on.
                LOGGER.critical("Exception in worker", exc_info=True)
                self.future.abandon(error)

    def _rest(self) -> bool:
        """Sleep until called; return False if the pool has ended and nothing is left to do."""
        crew = self.crew
        crew.idle.append(self)
        # If another thread took this worker out of `idle` meanwhile, a call is on its way.
        if (crew.refusal is not None or crew.tasks) and self._withdraw():
            # The refusal is looked at first: what was accepted was in the queue before it.
            return crew.refusal is None or bool(crew.tasks)
        self.bell.acquire()
        self._withdraw()  # some calls are to all, see `_Crew.call_all`
        return True

    def _withdraw(self) -> bool:
        """Be idle no more; return False if this worker was not, or is just being called."""
        try:
            self.crew.idle.remove(self)
        except ValueError:
            return False
        return True

    def call(self) -> None:
        """Have this worker look into the queue once it has nothing to do. Twice is like once."""
        try:
            self.bell.release()
        except RuntimeError:  # it has not heard the last call yet
            return


def _new_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that has not started."""
    # In an empty context: a thread of a free-threaded Python would otherwise have the context of
    # the caller whose submit started it.
    run = contextvars.Context().run
    try:
        return threading.Thread(target=run, args=(work,), name=name, daemon=True)
    except RuntimeError:  # there are no daemons in an interpreter that is not the main one
        _finish_before_threads()
        return threading.Thread(target=run, args=(work,), name=name, daemon=False)


class _Crew:
    """What a pool and its threads share. They know it and not the pool, which may be collected."""

    def __init__(
        self,
        max_workers: int,
        name: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        self.max_workers = max_workers
        self.name = name
        self.initializer = initializer
        self.initargs = initargs
        #: Accepted, and taken by no worker. Some may be cancelled.
        self.tasks: deque[PoolFuture[Any]] = deque()
        #: Workers that sleep or are about to; the one that was busy last is called first.
        self.idle: list[_Worker] = []
        #: All threads are started and the pool is open: a submit need only look at `idle`.
        self.is_complete = False
        #: Why nothing is accepted any more: a type of error and its text. Never None again.
        self.refusal: tuple[type[RuntimeError], str] | None = None
        #: Every thread that was started. Only grows, under `lock`, while `refusal` is None.
        self.workers: list[_Worker] = []
        # A signal handler may submit in the midst of a submit: hence not a plain lock.
        self.lock = threading.RLock()

    def call(self) -> bool:
        """Wake or start a worker for the queue; return False if the pool has ended.

        Raises:
            RuntimeError: there is no thread, and none can be started.
        """
        while self.refusal is None:
            try:
                self.idle.pop().call()
            except IndexError:
                if self.is_complete or self._start_worker():
                    return True
            except BaseException:  # Ctrl-C, when the worker was not idle any more nor called yet
                self.call_all()
                raise
            else:
                return True
        return False

    def call_for(self, future: PoolFuture[Any]) -> None:
        """Have `future`, which is in the queue, run; or take it out again and raise why not."""
        try:
            if self.call():
                return
        except RuntimeError:
            self._take_back(future)
            raise
        # If it is not there, a worker that had not ended yet took it: accepted after all.
        if self._take_back(future):
            assert self.refusal is not None
            kind, text = self.refusal
            raise kind(text)

    def _take_back(self, future: PoolFuture[Any]) -> bool:
        try:
            self.tasks.remove(future)
        except ValueError:
            return False
        return True

    def call_all(self) -> None:
        """Have every worker look into the queue, and at `refusal`, once it has nothing to do."""
        for worker in self.workers.copy():
            worker.call()

    def _start_worker(self) -> bool:
        """Start a thread if one is needed; return False if the caller must look again."""
        with self.lock:
            if self.refusal is not None or self.idle:
                return False
            n_workers = len(self.workers)
            self.is_complete = n_workers >= self.max_workers
            if self.is_complete or not self.tasks:
                return True
            worker = _Worker(self, f"{self.name}_{n_workers}")
            try:
                self.workers.append(worker)
                worker.thread.start()
            except BaseException as error:
                if worker.bell.acquire(blocking=False) and worker in self.workers:
                    self.workers.remove(worker)
                # No more threads on this machine, or the interpreter ends: those there are will do.
                if isinstance(error, RuntimeError) and self.workers:
                    return True
                raise
            self.is_complete = n_workers + 1 >= self.max_workers
            return True

    def end(self, kind: type[RuntimeError], text: str) -> None:
        """Accept nothing more; the threads end when nothing is left to do. Call it with `lock`."""
        # In this order: when workers can see the end, no submit overlooks it.
        self.is_complete = False
        if self.refusal is None or kind is BrokenThreadPool:
            self.refusal = (kind, text)
        self.call_all()

    def join(self) -> None:
        """Wait for the threads, but for the one that calls. To be called after `end`."""
        for worker in self.workers:  # there will be no more
            if worker.thread.is_alive() and worker.thread is not threading.current_thread():
                worker.thread.join()

    def give_up(self, reason: str) -> None:
        """End as a broken pool: what has not started will not."""
        with self.lock:
            self.end(BrokenThreadPool, reason)
        for future in self.drain():
            future.abandon(BrokenThreadPool(reason))

    def drain(self) -> Iterator[PoolFuture[Any]]:
        """Take the tasks that no worker has taken, one by one."""
        while self.tasks:
            try:
                yield self.tasks.popleft()
            except IndexError:
                return

    def successor(self) -> _Crew:
        """In a fork's child: return the crew that goes on, without threads and tasks."""
        crew = _Crew(self.max_workers, self.name, self.initializer, self.initargs)
        crew.refusal = self.refusal
        # If it is a worker that forked, it ends after its task.
        self.refusal = (RuntimeError, "the pool goes on with other threads")
        for worker in self.workers:
            if worker.future is not None and worker.thread.ident != threading.get_ident():
                worker.future.disown(_not_ours())
        for future in self.drain():
            future.disown(_not_ours())
        return crew


class ThreadPool(Executor):
    """Threads of this process that run submitted calls, at a microsecond per task.

    Used as `concurrent.futures.ThreadPoolExecutor` is, and its futures work wherever those of the
    standard library do. What differs:

    - Ctrl-C ends the program: its end waits for what was submitted, but not if Ctrl-C is why it
      ends. A `with` block that Ctrl-C leaves cancels what has not started and does not wait for
      the rest.
    - It has one thread for each core that the process may use. Threads that mostly wait for disks
      or networks cost little: pass a higher `max_workers` for such tasks.
    - Cancelling a future wakes the threads that wait for it at once.
    - After a fork the child's copy of the pool starts threads of its own. What was submitted before
      belongs to the parent; in the child it fails.

    Threads are started when a task comes and no thread is idle, and end with the pool.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        """Make a pool; no thread is started yet.

        Args:
            max_workers: how many tasks run at a time, at least 1; None = the number of cores.
            thread_name_prefix: the threads are called by it and a number.
            initializer: called in each thread before its first task. If it raises, the pool is
                broken: each task that has not started, and each submit, raises `BrokenThreadPool`.
            initargs: what the initializer is called with.
        """
        if max_workers is None:
            max_workers = n_cores()
        if not isinstance(max_workers, int):
            raise TypeError(
                f"max_workers is a number of threads, an int, and {max_workers!r} is a "
                f"{type(max_workers).__name__}"
            )
        if max_workers < 1:
            raise ValueError(f"max_workers must be greater than 0, and is {max_workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"the initializer must be callable: {initializer!r}")
        #: dask and others read how many tasks run at a time where ThreadPoolExecutor has it.
        self._max_workers = max_workers
        name = thread_name_prefix or f"ThreadPool-{next(_numbers)}"
        self._crew = _Crew(max_workers, name, initializer, initargs)
        _crews.add(self._crew)
        _pools.add(self)

    @property
    def _threads(self) -> set[threading.Thread]:
        """Those that were started; under the name by which `ThreadPoolExecutor` has them."""
        return {worker.thread for worker in self._crew.workers.copy()}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> PoolFuture[T]:
        """Have a thread call `fn(*args, **kwargs)`; return the future of its result.

        Raises:
            RuntimeError: the pool was shut down.
            BrokenThreadPool: its initializer failed.
        """
        future: PoolFuture[T] = PoolFuture(functools.partial(fn, **kwargs) if kwargs else fn, args)
        crew = self._crew
        crew.tasks.append(future)
        if crew.idle or not crew.is_complete:
            crew.call_for(future)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Call `fn` for each of `zip(*iterables)`; yield the results in that order as they come.

        Closing the iterator before its end, or an error, cancels the calls that have not started.

        Args:
            fn: called with one item of each iterable.
            iterables: read at once, or as results are taken if there is a `buffersize`.
            timeout: seconds from now until each result must be there; None = for ever.
            chunksize: for other executors; threads take single calls.
            buffersize: how many results may be outstanding; None = all.

        Raises:
            concurrent.futures.TimeoutError: from the iterator, if a result was not there in time.
        """
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize is {buffersize}: it must be at least 1, or None")
        deadline = None if timeout is None else time.monotonic() + timeout
        coming = (self.submit(fn, *args) for args in zip(*iterables, strict=False))
        futures: deque[PoolFuture[T]] = deque()
        try:
            futures.extend(itertools.islice(coming, buffersize))
        except BaseException:  # an iterable's, or a refusal: nobody gets these futures
            _cancel(futures)
            raise
        return _in_order(futures, coming, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more; free the threads when all is done.

        Args:
            wait: return when all that was submitted is done and the threads have ended.
            cancel_futures: cancel what has not started.
        """
        crew = self._crew
        with crew.lock:
            crew.end(RuntimeError, "cannot schedule new futures after shutdown")
        if cancel_futures:
            _cancel(crew.drain())
        if wait:
            crew.join()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Shut down and wait for all tasks, unless interrupted by Ctrl-C."""
        if isinstance(exc_val, KeyboardInterrupt):
            self.shutdown(wait=False, cancel_futures=True)
            return
        try:
            self.shutdown(wait=True)
        except KeyboardInterrupt:
            self.shutdown(wait=False, cancel_futures=True)
            raise

    def __del__(self) -> None:
        """End the threads; what was submitted is finished first."""
        crew = self.__dict__.get("_crew")  # None if __init__ refused its arguments
        if crew is not None:  # without the lock: nobody can submit
            crew.end(RuntimeError, "the pool is gone")

    def __repr__(self) -> str:
        """Show the number of threads and of waiting calls."""
        crew = self._crew
        state = "open" if crew.refusal is None else "closed"
        return (
            f"<{type(self).__name__} {crew.name!r}: {state}, {len(crew.workers)} of "
            f"{crew.max_workers} threads started, {len(crew.tasks)} tasks in the queue>"
        )


def _in_order(
    futures: deque[PoolFuture[T]], coming: Iterator[PoolFuture[T]], deadline: float | None
) -> Iterator[T]:
    """Yield the results of `futures`, one more of `coming` begun for each. See `ThreadPool.map`."""
    try:
        while futures:
            futures.extend(itertools.islice(coming, 1))
            yield _result_of(futures, deadline)
    finally:
        _cancel(futures)


def _result_of(futures: deque[PoolFuture[T]], deadline: float | None) -> T:
    """Return the result of the first future; keep no reference to it."""
    timeout = None if deadline is None else deadline - time.monotonic()
    future = futures.popleft()
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise
    finally:
        del future  # the error's traceback refers to this frame, and the future to the error


def _cancel(futures: Iterable[PoolFuture[Any]]) -> None:
    for future in futures:
        future.cancel()


def abandon(pool: ThreadPool) -> None:
    """Close a pool whose threads are busy with unwanted tasks, without waiting for them."""
    pool.shutdown(wait=False, cancel_futures=True)
    _crews.discard(pool._crew)


class _Alive(Generic[T]):
    """Objects, for as long as they live. Any thread may call any method, finalizers too.

    Not a WeakSet: to go through one while others come and go is an error.
    """

    def __init__(self) -> None:
        #: Changed by single steps, and gone through in a copy, which is made in one step.
        self._refs: dict[weakref.ref[T], None] = {}

    def add(self, obj: T) -> None:
        refs = self._refs
        refs[weakref.ref(obj, lambda ref: refs.pop(ref, None))] = None

    def discard(self, obj: T) -> None:
        self._refs.pop(weakref.ref(obj), None)

    def __iter__(self) -> Iterator[T]:
        for ref in list(self._refs):
            obj = ref()
            if obj is not None:
                yield obj


def _finish_at_exit() -> None:
    """Wait for what was submitted, as the end of a program does for the standard library's."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        return
    for crew in _crews:
        with crew.lock:
            crew.end(RuntimeError, "cannot schedule new futures when the program ends")
        crew.join()


@functools.lru_cache(maxsize=1)
def _finish_before_threads() -> None:
    """Have `_finish_at_exit` called before the interpreter waits for its threads, not after."""
    threading._register_atexit(_finish_at_exit)  # type: ignore[attr-defined]  # as executors do


_numbers = itertools.count()
#: Those that may have something to do: their threads keep them, the pools may be gone.
_crews: _Alive[_Crew] = _Alive()
atexit.register(_finish_at_exit)
#: For the child of a fork.
_pools: _Alive[ThreadPool] = _Alive()


def _not_ours() -> BaseException:
    return BrokenThreadPool("this process was forked before the task was done; it is the parent's")


def _renew_after_fork() -> None:
    for crew in _crews:
        _crews.discard(crew)
    for pool in _pools:
        pool._crew = pool._crew.successor()
        _crews.add(pool._crew)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
