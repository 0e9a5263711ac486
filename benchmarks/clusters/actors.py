"""The workloads of actors: calls of one object on a worker, by one client that is alone."""

from __future__ import annotations

import time

from ..framework.work import Sample, check
from ..tasks import Counter
from .coordination import median_of_calls
from .systems import System


def run_actor_calls(system: System, n: int) -> Sample:
    """Call a method and wait for its result, one by one: median in ms."""
    counter = system.actor(Counter)
    check(counter.call(), 1)
    return median_of_calls(lambda i: counter.call() - 2, n)


def run_actor_batch(system: System, n: int) -> Sample:
    """Call a method n times, then wait for all results."""
    counter = system.actor(Counter)
    check(counter.call(), 1)
    start = time.perf_counter()
    results = counter.calls(n)
    end = time.perf_counter()
    return Sample(n / (end - start), check(sum(results), n * (n + 3) // 2))
