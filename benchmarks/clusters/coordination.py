"""The workloads of locks, queues and variables: pairs of calls of one client, which is alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ..framework.work import Sample, check
from .systems import System


def run_lock(system: System, n: int) -> Sample:
    """Acquire and release a lock, one by one: median in ms."""
    lock = system.shared("Lock")

    def pair(i: int) -> int:
        acquired = lock.acquire()
        lock.release()
        return i if acquired else -1

    return median_of_calls(pair, n)


def run_queue(system: System, n: int) -> Sample:
    """Put a number into a queue and get it, one by one: median in ms."""
    queue = system.shared("Queue")

    def pair(i: int) -> int:
        queue.put(i)
        return int(queue.get())

    return median_of_calls(pair, n)


def run_variable(system: System, n: int) -> Sample:
    """Set a variable and get it, one by one: median in ms."""
    variable = system.shared("Variable")

    def pair(i: int) -> int:
        variable.set(i)
        return int(variable.get())

    return median_of_calls(pair, n)


def median_of_calls(pair: Callable[[int], int], n: int) -> Sample:
    """Make n calls, which return their numbers: median in ms."""
    durations = []
    total = 0
    for i in range(n):
        start = time.perf_counter()
        total += pair(i)
        durations.append(time.perf_counter() - start)
    checksum = check(total, n * (n - 1) // 2)
    slow = sorted(durations)[int(0.99 * (n - 1))]
    return Sample(statistics.median(durations) * 1e3, checksum, {"p99_ms": slow * 1e3})
