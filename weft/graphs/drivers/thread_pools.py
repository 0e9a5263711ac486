"""The default threads of `weft.threaded.get`, which are kept warm between calls.

Each run has a pool to itself, so that graphs of several threads do not wait for each other; a pool
that is free is used again.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from weakref import WeakSet

from ...protocol.host.forks import after_fork
from ..pool.thread_pool import ThreadPool, abandon

#: Largest number of free pools that are kept; many threads may each have run one graph.
_MAX_FREE = 2

_lock = threading.Lock()
#: Pools that no run uses.
_free: list[ThreadPool] = []
_all: WeakSet[ThreadPool] = WeakSet()


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


def is_own(executor: Executor) -> bool:
    """Return whether this is a pool that was borrowed here."""
    return isinstance(executor, ThreadPool) and executor in _all


def take(n_workers: int) -> ThreadPool:
    """Return a pool of `n_workers` threads, which the caller gives back."""
    with _lock:
        for i, pool in enumerate(_free):
            if pool._max_workers == n_workers:
                return _free.pop(i)
        pool = ThreadPool(n_workers, thread_name_prefix="weft")
        _all.add(pool)
    return pool


def give_back(pool: ThreadPool, *, is_clean: bool) -> None:
    """Return a pool to the free ones.

    Args:
        pool: the pool that `take` returned.
        is_clean: none of its threads is busy with an unwanted task.
    """
    if not is_clean:
        abandon(pool)
        return
    with _lock:
        old = _free.pop(0) if len(_free) == _MAX_FREE else None
        _free.append(pool)
    if old is not None:
        old.shutdown(wait=False)


def shutdown() -> None:
    """End the threads that no run uses; the next call starts new ones."""
    with _lock:
        pools = _free.copy()
        _free.clear()
    for pool in pools:
        pool.shutdown(wait=True)
