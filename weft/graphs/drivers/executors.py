"""Recognises executors: whether their tasks share this memory, and how many run at once."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ...protocol.errors import WrongExecutor
from ...protocol.host.machine import n_cores
from ..cluster_client import ClusterClient
from ..pool.thread_pool import ThreadPool

T = TypeVar("T")


class SynchronousExecutor(Executor):
    """Runs each call in `submit`, in the calling thread; for debugging.

    The future that `submit` returns is done. An exception of the call is set on the future, except
    KeyboardInterrupt and SystemExit, which are raised.
    """

    _max_workers = 1
    _is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call `fn(*args, **kwargs)` and return a future that is done."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:
            future.set_exception(exc)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls."""
        self._is_shut_down = True


class ExecutorKind(Enum):
    """The place where an executor runs its calls."""

    #: In the thread that submits them.
    INLINE = auto()
    #: In other threads of this process and interpreter, which share its objects.
    SHARED = auto()
    #: In other processes or interpreters: calls and results are pickled.
    SEPARATE = auto()


class MultiprocessingPool(Executor):
    """A `multiprocessing.pool.Pool` or `ThreadPool`, as an executor. Its owner closes it."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        is_shared = isinstance(pool, sys.modules["multiprocessing.pool"].ThreadPool)
        self.kind = ExecutorKind.SHARED if is_shared else ExecutorKind.SEPARATE
        self._max_workers = pool._processes

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Let the pool call `fn(*args, **kwargs)`."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # the pool cannot cancel a call
        self.pool.apply_async(fn, args, kwargs, future.set_result, future.set_exception)
        return future


def is_client(given: object) -> bool:
    """Return whether this is a client of a cluster, and usable as an executor.

    Raises:
        WrongExecutor: it is a client that has to be awaited.
    """
    if not isinstance(given, ClusterClient):
        return False
    if given.asynchronous:
        raise WrongExecutor("this client is asynchronous: use `await client.get(graph, keys)`")
    return True


def as_executor(given: object) -> Executor:
    """Return the given object as an executor.

    Raises:
        WrongExecutor: it cannot be used as an executor.
    """
    if isinstance(given, Executor):
        return given
    pools = sys.modules.get("multiprocessing.pool")
    if pools is not None and isinstance(given, pools.Pool):
        return MultiprocessingPool(given)
    if isinstance(given, type) and issubclass(given, Executor):
        text = f"{given.__name__} is a class: give an instance, {given.__name__}(...)"
    else:
        text = f"{given!r} is no concurrent.futures.Executor, multiprocessing pool or weft.Client"
        if isinstance(given, int):
            text += "; for a number of workers, use num_workers="
    raise WrongExecutor(text)


#: {executor: the place where it was found to run its calls}
_kinds: WeakKeyDictionary[Executor, ExecutorKind] = WeakKeyDictionary()


def kind_of(executor: Executor) -> ExecutorKind:
    """Return where an executor runs its calls; an unknown one gets a call that finds that out."""
    if type(executor) in (ThreadPool, ThreadPoolExecutor):
        return ExecutorKind.SHARED
    processes = sys.modules.get("concurrent.futures.process")
    if processes is not None and isinstance(executor, processes.ProcessPoolExecutor):
        return ExecutorKind.SEPARATE
    if isinstance(executor, MultiprocessingPool):
        return executor.kind
    with contextlib.suppress(TypeError):  # it has no hash
        kind = _kinds.get(executor)
        if kind is not None:
            return kind
    try:
        is_original, thread_id = executor.submit(_Token.look, _Token()).result()
    except Exception as exc:
        text = f"{executor!r} cannot run tasks: {type(exc).__name__}: {exc}"
        raise WrongExecutor(text) from exc
    if not is_original:
        kind = ExecutorKind.SEPARATE
    else:
        kind = ExecutorKind.INLINE if thread_id == threading.get_ident() else ExecutorKind.SHARED
    with contextlib.suppress(TypeError):
        _kinds[executor] = kind
    return kind


def is_same(one: Executor, other: Executor) -> bool:
    """Return whether two executors run their calls in the same place."""
    if isinstance(one, MultiprocessingPool) and isinstance(other, MultiprocessingPool):
        return one.pool is other.pool
    return one is other


def take_back(executor: Executor, futures: Collection[Future[Any]]) -> None:
    """Cancel calls that have not begun, so that they do not wait in the executor's queue.

    Calls are not cancelled if the executor may be one that does not mark the futures of running
    calls: setting the result of a cancelled future would raise, and end the executor's thread. Such
    calls return at once when they begin.
    """
    if isinstance(executor, (ThreadPool, ThreadPoolExecutor)) or any(
        future.running() for future in futures
    ):
        for future in futures:
            future.cancel()


class _Token:
    """An object that records whether it was pickled on its way."""

    def __init__(self, is_original: bool = True) -> None:
        self._is_original = is_original

    def __reduce__(self) -> tuple[Any, ...]:
        return _Token, (False,)

    def look(self) -> tuple[bool, int]:
        return self._is_original, threading.get_ident()


def n_workers_of(executor: Executor | None) -> int:
    """Return how many calls an executor runs at once, as far as it can be known."""
    n_workers = getattr(executor, "_max_workers", None)
    if isinstance(n_workers, int) and n_workers > 0:
        return n_workers
    return n_cores()
