"""The garbage collector in a worker's process: full collections wait until the worker is idle.

A full collection visits the record of each value that the worker holds and stops the whole process
for about 0.2 s at 500 000 values, several times while they arrive. The young generations are
collected as usual, so only cycles that survived two collections wait: for a pause in the work, or
for `FULL_EVERY` collections of the middle generation, ten times Python's own limit.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Final

#: Collections of the middle generation after which Python makes a full one even during work.
FULL_EVERY: Final = 100
#: Collections of the middle generation after which a resting worker makes a full one.
REST_EVERY: Final = 10
#: A worker is idle when at this many looks in succession ...
LOOKS: Final = 3
LOOK_S: Final = 1.0
#: ... its process had used no more CPU time since the look before, seconds.
REST_CPU_S: Final = 0.02


def hold_back() -> None:
    """Let Python make full collections ten times less often."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_EVERY)


async def collect_at_rest() -> None:
    """Make a full collection whenever one is due and the process is idle. Cancel it to end it."""
    rest = Rest()
    while True:
        await asyncio.sleep(LOOK_S)
        # A task may have disabled the collector.
        if rest.look(time.process_time()) and gc.isenabled() and gc.get_count()[2] > REST_EVERY:
            gc.collect()


class Rest:
    """Decides whether a process has used next to no CPU time for some looks."""

    def __init__(self) -> None:
        self._cpu_s = 0.0
        self._n_looks = 0

    def look(self, cpu_s: float) -> bool:
        """Record the CPU time that the process has used; return whether it is idle."""
        self._n_looks = self._n_looks + 1 if cpu_s - self._cpu_s <= REST_CPU_S else 0
        self._cpu_s = cpu_s
        return self._n_looks >= LOOKS
