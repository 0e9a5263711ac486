"""The cost of the sampling of stacks to a worker: CPU time of its tasks, without and with.

    python -m benchmarks.bench_profile [--seconds 1] [--pairs 16] [--threads 4] [--depth 30]

Threads compute in calls of some depth, as tasks do, in pairs of turns with a sampler and without
one. Printed are how the work per CPU second differs within a pair, and what the sampler's own
thread took of the time.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from typing import Any

from weft.worker.measuring.stack_sampling import StackSampler


def _work(depth: int) -> int:
    return _work(depth - 1) if depth else sum(i * i for i in range(2000))


def measure(seconds: float, n_threads: int, depth: int, is_sampled: bool) -> dict[str, float]:
    """Return the rounds of work per CPU second, and the part of a core that the sampler took."""
    stop = threading.Event()
    rounds = [0] * n_threads

    def run(number: int) -> None:
        while not stop.is_set():
            _work(depth)
            rounds[number] += 1

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    running = [(f"work-{thread.ident}", thread.ident or 0) for thread in threads]
    sampler = StackSampler(lambda: running)
    used = time.process_time()
    own = 0.0
    if is_sampled:
        sampler.read(60.0)
        thread = sampler._thread
        assert thread is not None
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        stop.wait(seconds)
        own = time.clock_gettime(clock)
    else:
        stop.wait(seconds)
    used = time.process_time() - used
    stop.set()
    sampler.close()
    for thread in threads:
        thread.join()
    sampler.join()
    return {"rounds per CPU second": sum(rounds) / used, "sampler": own / seconds}


def main() -> None:
    """Measure in pairs, and print."""
    parser = argparse.ArgumentParser(description="What the sampling of stacks costs a worker.")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--pairs", type=int, default=16, help="of turns with and without sampling")
    parser.add_argument("--threads", type=int, default=4, help="that run tasks")
    parser.add_argument("--depth", type=int, default=30, help="calls in each other")
    given: Any = parser.parse_args()
    changes, own = [], []
    for pair in range(given.pairs):
        found = {
            is_sampled: measure(given.seconds, given.threads, given.depth, is_sampled)
            for is_sampled in (bool(pair % 2), not pair % 2)
        }
        rates = [found[is_sampled]["rounds per CPU second"] for is_sampled in (True, False)]
        changes.append(rates[0] / rates[1] - 1)
        own.append(found[True]["sampler"])
    low, middle, high = statistics.quantiles(changes, n=4)
    print(f"work per CPU second: {middle:+.1%} if sampled (quartiles {low:+.1%}, {high:+.1%})")
    print(f"the sampler's thread: {statistics.median(own):.2%} of a core")


if __name__ == "__main__":
    main()
