"""What the kernel of a worker does not know: one module for each feature.

The order is that in which the hooks of one event are called. No feature needs what another one has
done, so it is that of the alphabet.
"""

from __future__ import annotations

from typing import Final

from ..feature import WorkerFeature
from . import (
    actor_waits,
    categories,
    desired_copies,
    gangs,
    memory,
    output,
    promises,
    puts,
    timeouts,
    times,
    traces,
)

__all__ = ["FEATURES"]

FEATURES: Final[tuple[WorkerFeature, ...]] = (
    actor_waits.FEATURE,
    categories.FEATURE,
    desired_copies.FEATURE,
    gangs.FEATURE,
    memory.FEATURE,
    output.FEATURE,
    promises.FEATURE,
    puts.FEATURE,
    timeouts.FEATURE,
    times.FEATURE,
    traces.FEATURE,
)
