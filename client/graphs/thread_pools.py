"""The threads that `weft.threaded.get` uses when it is given none: kept warm between calls.

Each run has a pool to itself, so that graphs asked for by several threads do not wait for each
other; a pool that is free is used again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from weakref import WeakSet

from .pool import ThreadPool

_lock = threading.Lock()
#: {number of threads: pools that nobody uses}
_free: dict[int, list[ThreadPool]] = {}
_all: WeakSet[ThreadPool] = WeakSet()


def is_own(executor: Executor) -> bool:
    """Say whether this is a pool that was borrowed here."""
    return executor in _all


@contextmanager
def borrowed(n_workers: int) -> Iterator[ThreadPool]:
    """Return a pool of `n_workers` threads, to be used in the block."""
    with _lock:
        pools = _free.get(n_workers)
        pool = pools.pop() if pools else None
        if pool is None:
            pool = ThreadPool(n_workers, thread_name_prefix="weft")
            _all.add(pool)
    try:
        yield pool
    except BaseException:
        # Its threads may be busy with what is wanted no more.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    with _lock:
        _free.setdefault(n_workers, []).append(pool)


def shutdown() -> None:
    """End the threads that no run uses; the next call starts new ones."""
    with _lock:
        pools = [pool for pools in _free.values() for pool in pools]
        _free.clear()
    for pool in pools:
        pool.shutdown(wait=True)
