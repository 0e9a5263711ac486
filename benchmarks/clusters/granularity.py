"""Workloads of tasks that compute for a given time: how short may they be?

Their functions use a processor for that time, by the clock of their thread, so a task takes as long
on a busy machine.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from ..framework.work import Sample, TooLong, check
from ..tasks import add_in, inc_in, largest_in, total_in
from .systems import N_WORKERS, System

#: Tasks per row of the stencil.
WIDTH = 16
#: The efficiency of METG(50 %), and how near to it the search ends.
TARGET, TOLERANCE = 0.5, 0.02
MAX_POINTS, MAX_STEP = 8, 4.0
#: A system that needs longer tasks than this has no figure: a point takes half a minute and more.
MAX_LENGTH_S = 0.03
FIRST_LENGTH_S = 0.001
#: The tasks that show how much of its cores the system gets, and their length.
N_LONG, LONG_S = 16, 0.02
#: Inputs per task of a random graph, at most, and how far back they are.
MAX_INPUTS, REACH = 3, 100


def run_metg(system: System, n: int) -> Sample:
    """METG(50 %) of a 1-D stencil, n tasks in rows of 16: the length of tasks, in microseconds, at
    which half of the workers' time is spent in them.

    Each task reads its left neighbour, itself and its right neighbour of the row before. This is
    Task Bench's measure (Slaughter et al., SC 2020). The workers' time is what long tasks without
    dependencies get just before, so that another process on the machine does not count.
    """
    n_steps = max(2, n // WIDTH)
    n_tasks = n_steps * WIDTH
    shares = []

    def efficiency(length_s: float) -> float:
        shares.append(N_LONG * LONG_S / N_WORKERS / time_long(system))
        share = n_tasks * length_s / N_WORKERS / time_stencil(system, n_steps, length_s)
        return share / shares[-1]

    length_s, found = find_metg(efficiency, FIRST_LENGTH_S)
    extra = {"efficiency": found, "n_points": len(shares), "share": statistics.median(shares)}
    return Sample(length_s * 1e6, n_steps, extra)


def time_long(system: System) -> float:
    """Return the seconds that long tasks without dependencies take."""
    start = time.perf_counter()
    results = system.gather([system.submit(inc_in, LONG_S, i) for i in range(N_LONG)])
    elapsed = time.perf_counter() - start
    check(sum(results), N_LONG * (N_LONG + 1) // 2)
    return elapsed


def time_stencil(system: System, n_steps: int, length_s: float) -> float:
    """Return the seconds from the first submission to the results of the last row."""
    start = time.perf_counter()
    row = [system.submit(largest_in, length_s) for _ in range(WIDTH)]
    for _ in range(n_steps - 1):
        row = [
            system.submit(largest_in, length_s, *row[max(0, i - 1) : i + 2]) for i in range(WIDTH)
        ]
    results = system.gather(row)
    elapsed = time.perf_counter() - start
    check(sum(results), n_steps * WIDTH)
    return elapsed


def find_metg(efficiency: Callable[[float], float], length_s: float) -> tuple[float, float]:
    """Return the length of tasks at which the efficiency is nearest to `TARGET`, and that.

    The time on top of each task hardly depends on its length, so each point leads to a better one.

    Raises:
        TooLong: that length is above `MAX_LENGTH_S`.
    """
    points = []
    for _ in range(MAX_POINTS):
        found = min(max(efficiency(length_s), 0.001), 0.999)
        points.append((abs(found - TARGET), length_s, found))
        if abs(found - TARGET) <= TOLERANCE:
            break
        if length_s == MAX_LENGTH_S and found < TARGET:
            raise TooLong(f"above {MAX_LENGTH_S * 1e6:.0f} us")
        # With an overhead of o, the efficiency of the length l is l / (l + o). A point in a moment
        # in which the machine did other things must not lead too far.
        step = min(max((1 / found - 1) * TARGET / (1 - TARGET), 1 / MAX_STEP), MAX_STEP)
        length_s = min(length_s * step, MAX_LENGTH_S)
    _, length_s, found = min(points)
    return length_s, found


def run_tree_in(system: System, n: int, seconds: float) -> Sample:
    """n leaves, added in pairs down to one value; each task takes so many seconds."""
    start = time.perf_counter()
    layer = [system.submit(inc_in, seconds, i) for i in range(n)]
    n_tasks = n
    while len(layer) > 1:
        pairs = zip(layer[::2], layer[1::2], strict=True)
        layer = [system.submit(add_in, seconds, a, b) for a, b in pairs]
        n_tasks += len(layer)
    (result,) = system.gather(layer)
    elapsed = time.perf_counter() - start
    return _sample(n_tasks, seconds, elapsed, check(result, n * (n + 1) // 2))


def run_random_in(system: System, n: int, seconds: float) -> Sample:
    """n tasks, each with up to three inputs among the hundred before it; each takes `seconds`."""
    rng = random.Random(n)
    inputs = [
        sorted({rng.randrange(max(0, i - REACH), i) for _ in range(rng.randint(0, MAX_INPUTS))})
        if i
        else []
        for i in range(n)
    ]
    expected: list[int] = []
    for numbers in inputs:
        expected.append((sum(expected[j] for j in numbers) + 1) % 1_000_003)
    start = time.perf_counter()
    handles: list[object] = []
    for numbers in inputs:
        handles.append(system.submit(total_in, seconds, *[handles[j] for j in numbers]))
    results = system.gather(handles)
    elapsed = time.perf_counter() - start
    return _sample(n, seconds, elapsed, check(sum(results), sum(expected)))


def _sample(n_tasks: int, seconds: float, elapsed: float, checksum: int) -> Sample:
    efficiency = n_tasks * seconds / N_WORKERS / elapsed
    return Sample(n_tasks / elapsed, checksum, {"efficiency": efficiency})
