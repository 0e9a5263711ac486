"""`weft.ThreadPool`: threads that pull tasks from one queue, at a microsecond per task.

Owns the threads, the queue and the choice of the thread to wake; `future` owns the life of each
task. It never runs a task in the thread that submits it, and holds no lock while a task, an
initializer or a callback runs.

Submitting and running a task take no lock either. `submit` and a worker that runs out of work may
meet, and as in `future` each writes first and reads afterwards:

    submit:    append to `tasks`;  then check whether a worker is `idle`
    worker:    append to `idle`;   then check `tasks`, and sleep only if there are none

so either the worker finds the task or `submit` finds the worker. While every thread is busy, none
is idle and none is woken: a submit makes a future, appends it, and reads two attributes. In the
same way a task is in the queue before `submit` checks whether the pool has ended, and a worker that
finds that it has ended checks the queue once more, so accepted tasks are run. One lock guards rare
events: the start of a thread, and the end of the pool.
"""

from __future__ import annotations

import atexit
import contextvars
import functools
import itertools
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
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ...protocol.host.forks import after_fork
from ...protocol.host.machine import n_cores
from .future import PoolFuture, seconds_to_wait

if TYPE_CHECKING:
    from ...protocol.durations import Duration

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
                # Raised by a done-callback (an Exception is logged elsewhere), or thrown into this
                # thread from outside. Other tasks rely on the thread, so it goes on.
                LOGGER.critical("Exception in worker", exc_info=True)
                self.future.abandon(error)

    def _rest(self) -> bool:
        """Sleep until called; return False if the pool has ended and no task is left."""
        crew = self.crew
        crew.idle.append(self)
        # If another thread took this worker out of `idle` meanwhile, a call is on its way.
        if (crew.refusal is not None or crew.tasks) and self._withdraw():
            # The refusal is read first, because accepted tasks were in the queue before it.
            return crew.refusal is None or bool(crew.tasks)
        self.bell.acquire()
        self._withdraw()  # some calls are to all, see `_Crew.call_all`
        return True

    def _withdraw(self) -> bool:
        """Stop being idle; return False if this worker was not idle, or is just being called."""
        try:
            self.crew.idle.remove(self)
        except ValueError:
            return False
        return True

    def call(self) -> None:
        """Let this worker check the queue when it is idle. Two calls have the effect of one."""
        try:
            self.bell.release()
        except RuntimeError:  # it has not handled the last call yet
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
    """The state of a pool that its threads refer to, so that the pool itself can be collected."""

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
        #: All threads are started and the pool is open: a submit need only read `idle`.
        self.is_complete = False
        #: Why no task is accepted any more: a type of error and its text. Never None again.
        self.refusal: tuple[type[RuntimeError], str] | None = None
        #: Every thread that was started. Only grows, under `lock`, while `refusal` is None.
        self.workers: list[_Worker] = []
        # Reentrant, because a signal handler may submit during a submit.
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
        """Let a queued future be run, or take it out of the queue and raise the reason."""
        try:
            if self.call():
                return
        except RuntimeError:
            self._take_back(future)
            raise
        # If it is not there, a worker that had not ended yet took it, so it is accepted.
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
        """Let every worker check the queue, and `refusal`, when it is idle."""
        for worker in self.workers.copy():
            worker.call()

    def _start_worker(self) -> bool:
        """Start a thread if one is needed; return False if the caller must check again."""
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
                # No more threads on this machine, or the interpreter ends: use the existing ones.
                if isinstance(error, RuntimeError) and self.workers:
                    return True
                raise
            self.is_complete = n_workers + 1 >= self.max_workers
            return True

    def end(self, kind: type[RuntimeError], text: str) -> None:
        """Accept no more tasks; the threads end when none is left. Call it with `lock`."""
        # In this order: once workers can read the end, each submit reads it, too.
        self.is_complete = False
        if self.refusal is None or kind is BrokenThreadPool:
            self.refusal = (kind, text)
        self.call_all()

    def join(self) -> None:
        """Wait for the threads, except the calling one. To be called after `end`."""
        for worker in self.workers:  # there will be no more
            if worker.thread.is_alive() and worker.thread is not threading.current_thread():
                worker.thread.join()

    def give_up(self, reason: str) -> None:
        """End as a broken pool: no further task is started."""
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
        """In a fork's child: return a new crew, without threads and tasks."""
        crew = _Crew(self.max_workers, self.name, self.initializer, self.initargs)
        crew.refusal = self.refusal
        # If a worker has forked, its copy ends after its task.
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
    standard library do. The differences:

    - Ctrl-C ends the program: its end waits for submitted tasks, unless Ctrl-C is the reason. A
      `with` block that Ctrl-C leaves cancels tasks that have not started and does not wait for the
      others.
    - It has one thread for each core that the process may use. Threads that mostly wait for disks
      or networks cost little: pass a higher `max_workers` for such tasks.
    - Cancelling a future wakes the threads that wait for it at once.
    - After a fork the child's copy of the pool starts threads of its own. Tasks that were submitted
      before belong to the parent; in the child their futures fail.

    Threads are started when a task comes and no thread is idle, and end with the pool.

    Example:
        >>> with weft.ThreadPool(2) as pool:
        ...     list(pool.map(abs, [-1, -2]))
        [1, 2]
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
            max_workers: number of tasks that run at a time, at least 1; None = the number of cores.
            thread_name_prefix: prefix of the names of the threads.
            initializer: called in each thread before its first task. If it raises, the pool is
                broken: each task that has not started, and each submit, raises `BrokenThreadPool`.
            initargs: the arguments of the initializer.
        """
        if max_workers is None:
            max_workers = n_cores()
        if not isinstance(max_workers, int):
            raise TypeError(
                f"max_workers is a number of threads, an int, but {max_workers!r} is a "
                f"{type(max_workers).__name__}"
            )
        if max_workers < 1:
            raise ValueError(f"max_workers must be greater than 0, and is {max_workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"the initializer must be callable: {initializer!r}")
        #: dask and others read this attribute, as ThreadPoolExecutor has it.
        self._max_workers = max_workers
        name = thread_name_prefix or f"ThreadPool-{next(_numbers)}"
        self._crew = _Crew(max_workers, name, initializer, initargs)
        _crews.add(self._crew)
        _pools.add(self)

    @property
    def _threads(self) -> set[threading.Thread]:
        """The threads that were started, under the name that `ThreadPoolExecutor` uses."""
        return {worker.thread for worker in self._crew.workers.copy()}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> PoolFuture[T]:
        """Let a thread call `fn(*args, **kwargs)`; return the future of its result.

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
        timeout: Duration | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Call `fn` for each of `zip(*iterables)`; yield the results in that order as they come.

        Closing the iterator before its end, or an error, cancels the calls that have not started.

        Args:
            fn: called with one item of each iterable.
            iterables: read at once, or as results are taken if there is a `buffersize`.
            timeout: time from now until each result must be ready, in seconds or as "30s", ...;
                None = for ever.
            chunksize: for other executors; threads take single calls.
            buffersize: largest number of outstanding results; None = all.

        Raises:
            concurrent.futures.TimeoutError: from the iterator, if a result was not ready in time.
        """
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize is {buffersize}: it must be at least 1, or None")
        timeout_s = seconds_to_wait(timeout)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        coming = (self.submit(fn, *args) for args in zip(*iterables, strict=False))
        futures: deque[PoolFuture[T]] = deque()
        try:
            futures.extend(itertools.islice(coming, buffersize))
        except BaseException:  # of an iterable, or a refusal: these futures are not returned
            _cancel(futures)
            raise
        return _in_order(futures, coming, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; end the threads when all are done.

        Args:
            wait: return when all submitted tasks are done and the threads have ended.
            cancel_futures: cancel tasks that have not started.
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
        """End the threads, after all submitted tasks."""
        crew = self.__dict__.get("_crew")  # None if __init__ refused its arguments
        if crew is not None:  # without the lock, because no thread can submit
            crew.end(RuntimeError, "the pool was deleted")

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
    """A set of weak references. Any thread may call any method, finalizers too.

    Not a WeakSet, because iterating over one while objects are added and collected is an error.
    """

    def __init__(self) -> None:
        #: Changed by atomic operations, and iterated over in a copy, which is made by one as well.
        self._refs: set[weakref.ref[T]] = set()

    def add(self, obj: T) -> None:
        # The finalizer is a function in C, because Ctrl-C in one in Python would be lost.
        self._refs.add(weakref.ref(obj, self._refs.discard))

    def discard(self, obj: T) -> None:
        self._refs.discard(weakref.ref(obj))

    def __iter__(self) -> Iterator[T]:
        for ref in list(self._refs):
            obj = ref()
            if obj is not None:
                yield obj


def _finish_at_exit() -> None:
    """Wait for submitted tasks, as the end of a program does for the standard library's pools."""
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
#: Crews that may have tasks left: their threads keep them alive, even without the pools.
_crews: _Alive[_Crew] = _Alive()
atexit.register(_finish_at_exit)
#: All pools, for the child of a fork.
_pools: _Alive[ThreadPool] = _Alive()


def _not_ours() -> BaseException:
    return BrokenThreadPool("this process was forked before the task was done; it is the parent's")


@after_fork
def _renew_after_fork() -> None:
    for crew in _crews:
        _crews.discard(crew)
    for pool in _pools:
        pool._crew = pool._crew.successor()
        _crews.add(pool._crew)
