"""How each invariant of blocked workers is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from weft.scheduler.core.blocking.failing import (
    FailureRow,
    HostFailures,
    failing_hosts_of,
)
from weft.scheduler.core.blocking.feature import WorkerBlock, blocks_of
from weft.scheduler.core.records.peers import BARRED


def end_without_a_time(b: Any) -> None:
    """Let the time of a block be over without its end."""
    one = WorkerBlock("ann", "")
    one.until = b.state.call_after(1.0, print)
    b.state.deadlines.cancel(one.until)
    blocks_of(b.state)["elsewhere"] = one


def block_all(b: Any) -> None:
    """Let blocks that no user has set bar all workers."""
    for ws in b.state.workers.values():
        one = blocks_of(b.state)[ws.name] = WorkerBlock("the scheduler", "", is_automatic=True)
        one.until = b.state.call_after(1.0, print)
        ws.closed |= BARRED


#: {invariant: what breaks it}, of a `Broken` board
BLOCKING_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "barred workers are those that are blocked": lambda b: blocks_of(b.state).update(
        {ws.name: WorkerBlock("ann", "") for ws in b.state.workers.values()}
    ),
    "a block that ends has a time that is to come": end_without_a_time,
    "a block that no user has set ends": lambda b: blocks_of(b.state).update(
        {"elsewhere": WorkerBlock("the scheduler", "", is_automatic=True)}
    ),
    "blocks that no user has set leave a worker": block_all,
    "failures of hosts are noted of few tasks, all known": lambda b: b.state.record(
        HostFailures
    ).update({copy(b.task("memory")): []}),
    "rows of failures are by host, while hosts may be blocked": lambda b: failing_hosts_of(
        b.state
    ).rows.update({"one": FailureRow("another")}),
}
