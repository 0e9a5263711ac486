"""How each invariant of arrays is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.protocol.array_rows import ArrayRows
from weft.scheduler.core.arrays.records import Array, Arrays, arrays_of
from weft.scheduler.core.requests import wanted_keys


def make(b: Any, name: str = "memory") -> Array:
    """Let a task of a `Broken` board be an array of three rows, whatever its state."""
    b.state.busy[Arrays] = None
    array = arrays_of(b.state)[b.task(name)] = Array(name, ArrayRows([[0, 3, 1, 0]]), {})
    return array


def live(b: Any) -> Array:
    """Let it have a live row."""
    array = make(b)
    array.live[0] = None
    arrays_of(b.state).rows["memory/0"] = b.task("memory"), 0
    return array


#: {invariant: what breaks it}, of a `Broken` board
ARRAY_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "the keeper of arrays wants rows whose end is not recorded": lambda b: wanted_keys.want(
        arrays_of(b.state).keeper, b.task("memory")
    ),
    "live rows of arrays are known by their keys": lambda b: make(b).live.update({0: None}),
    "a live row of an array has not ended": lambda b: live(b).note(0, 1),
    "a live row of an array is a task": live,
    "the rows of arrays are counted by their states": lambda b: setattr(
        make(b), "n_ended", [2, 1, 0, 0, 0, 0]
    ),
    "an array that has not ended is looked at, or has rows under way": lambda b: (
        make(b, "waiting"),
        b.set("waiting", "waiting_on", {}),
    ),
    "what the journal has read of arrays is for one event": lambda b: arrays_of(
        b.state
    ).read.update({"memory": {}}),
    "arrays that may begin rows are known, and filed by their queues": lambda b: arrays_of(
        b.state
    ).open.update({"q": {b.task("memory"): None}}),
    "arrays are busy while there are some": lambda b: (make(b), b.state.busy.pop(Arrays)),
}
