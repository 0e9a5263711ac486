"""How each invariant of gangs is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.gangs.records import (
    GangRecord,
    HeldBack,
    gangs_of,
    gangs_of_tasks,
)
from weft.scheduler.core.requests.wanted_keys import want


def make_gang(b: Any, *keys: str) -> GangRecord:
    """Let tasks of a `Broken` board be a gang, whatever their states."""
    gang = gangs_of(b.state).by_name["g"] = GangRecord("g", 2)
    for rank, key in enumerate(keys):
        gang.members[rank] = b.task(key)
        gangs_of_tasks(b.state)[b.task(key)] = gang
    return gang


def hold(b: Any) -> None:
    held = HeldBack(b.w, b.task("memory"), ["exception", "memory"], 1, 1)
    make_gang(b, "memory").held_back[99] = held


def too_large(b: Any) -> None:
    gang = make_gang(b, "memory", "processing")
    gangs_of(b.state).too_large[gang] = gangs_of(b.state).waiting[gang] = None


#: {invariant: what breaks it}, of a `Broken` board
GANG_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "a gang lists the tasks that have it": lambda b: gangs_of_tasks(b.state).update(
        {b.task("memory"): GangRecord("g", 2)}
    ),
    "members are kept of gangs that live on": lambda b: want(
        gangs_of(b.state).keeper, b.task("memory")
    ),
    "a gang runs as a whole": lambda b: make_gang(b, "processing", "aside"),
    "gangs that wait have all members": lambda b: gangs_of(b.state).waiting.update(
        {make_gang(b, "memory"): None}
    ),
    "gangs that are too large do not wait for places": too_large,
    "workers are kept for a gang that waits": lambda b: gangs_of(b.state).kept.update({b.w: None}),
    "exceptions that are held back count later": hold,
    "gangs are busy while there is one": lambda b: make_gang(b, "memory"),
    "no member runs on when another has failed": lambda b: make_gang(b, "processing", "failed"),
}
