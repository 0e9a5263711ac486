"""How each invariant of avoided workers is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from weft.scheduler.core.avoidance.moving import Moves


#: {invariant: what breaks it}, of a `Broken` board
AVOIDANCE_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "tasks that have left workers are known": lambda b: b.state.record(Moves).update(
        {copy(b.task("memory")): 1}
    ),
}
