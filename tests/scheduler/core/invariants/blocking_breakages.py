"""How each invariant of blocked workers is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.blocking.feature import WorkerBlock, blocks_of


def end_without_a_time(b: Any) -> None:
    """Let the time of a block be over without its end."""
    one = WorkerBlock("ann", "")
    one.until = b.state.call_after(1.0, print)
    b.state.deadlines.cancel(one.until)
    blocks_of(b.state)["elsewhere"] = one


#: {invariant: what breaks it}, of a `Broken` board
BLOCKING_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "barred workers are those that are blocked": lambda b: blocks_of(b.state).update(
        {ws.name: WorkerBlock("ann", "") for ws in b.state.workers.values()}
    ),
    "a block that ends has a time that is to come": end_without_a_time,
}
