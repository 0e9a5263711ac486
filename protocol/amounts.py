"""The amounts that every worker announces by itself, beside the resources that its user names.

A worker offers as many *cores* as it has threads, the bytes of its limit as *memory*, and a number
of places beside its threads. A task that names cores other than 1, or memory, asks for these in the
table of its resources, so one mechanism counts all of them (`worker/core/offered.py`).

A task that names no cores has one: that is its thread, which is counted as a thread only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from .errors import ConfigError, InvalidAmount
from .wording import sized

#: Amounts of a worker and of a task: threads, and bytes.
CORES: Final = "cores"
MEMORY: Final = "memory"
#: What a task with 0 cores asks 1 of.
BESIDE: Final = "places without cores"
#: Tasks with 0 cores that one worker runs at a time.
N_BESIDE: Final = 100
#: So many tasks may share a core: each of them has a thread.
MAX_PER_CORE: Final = 20


def is_amount(value: Any) -> bool:
    """Return whether a value is a finite number >= 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def amount_text(name: str, amount: float) -> str:
    """Return an amount for display: memory in bytes with a unit, others as a number."""
    return sized(amount) if name == MEMORY else f"{amount:g}"


def lacking_text(name: str, offered: float, needed: float) -> str:
    """Return how a worker falls short of an amount."""
    offer, need = amount_text(name, offered), amount_text(name, needed)
    return f"offers {name}: {offer}, and {need} is needed"


def asked_by_cores(cores: Any) -> dict[str, float]:
    """Return what a task with so many cores asks for; {} = its thread, as any other.

    Raises:
        InvalidAmount: it is neither 0 nor a number from 1 / MAX_PER_CORE.
    """
    if not is_amount(cores) or 0 < cores < 1 / MAX_PER_CORE:
        text = f"{cores!r:.80} is neither 0 nor a number of cores from {1 / MAX_PER_CORE:g}"
        raise InvalidAmount(text, CORES)
    if cores == 0:
        return {BESIDE: 1}
    return {} if cores == 1 else {CORES: cores}


def announced(resources: Mapping[str, float], nthreads: int, memory_limit: int) -> dict[str, float]:
    """Return all that a worker offers: what its user names, and its own amounts.

    Args:
        resources: what its user names. An amount of memory of theirs replaces the limit.
        nthreads: the threads of the worker.
        memory_limit: bytes; 0 = none, and no memory is offered.

    Raises:
        ConfigError: the user names cores: these are the worker's threads.
    """
    if own := resources.keys() & {CORES, BESIDE}:
        raise ConfigError(
            f"{min(own)!r} is announced by every worker itself, from the number of its threads; "
            "use another name",
            "resources",
        )
    memory = {MEMORY: float(memory_limit)} if memory_limit else {}
    return {CORES: float(nthreads), BESIDE: float(N_BESIDE), **memory, **resources}
