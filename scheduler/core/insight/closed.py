"""Why a worker takes no tasks, in words (`moves/taking.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wording import sized
from ..blocking.feature import block_of
from ..leaving.describing import describe
from ..memory.usage import managed_nbytes, spilled_nbytes, used_nbytes
from ..records.peers import AWAY, BARRED, FULL, KEPT, LEAVING, PAUSED, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState


def why_not(state: SchedulerState, ws: WorkerHandle) -> str:
    """Return why a worker takes no tasks, "" if it does. The gravest reason counts."""
    closed = ws.closed
    if closed & LEAVING:
        return describe(state, ws)
    if closed & AWAY:
        if ws.peer not in state.roles:
            return "its connection is lost; it may come back"
        if ws.inventory is not None:
            return "it is back, and reports what it has"
        return "it sets up plugins"
    if closed & PAUSED:
        return f"paused: {memory_text(ws)}{_advice(ws)}"
    if closed & BARRED:
        block = block_of(state, ws)
        return "" if block is None else block.describe()
    if closed & KEPT:
        return "it is kept for tasks of a gang, which begin together"
    if closed & FULL:
        used = f"{sized(used_nbytes(ws))} of {sized(ws.memory_limit)}"
        return f"full: it uses {used}, so it gets only what adds nothing to that"
    return ""


def _advice(ws: WorkerHandle) -> str:
    """Return what helps a paused worker, if its memory is not that of results or its disk slow."""
    if ws.resident_nbytes - managed_nbytes(ws) <= managed_nbytes(ws):
        # Results that are released, written to disk or moved make room.
        if ws.status is None or not ws.status.spilling_nbytes:
            return ""
        return (
            "; it takes tasks again when enough is on disk, which is sooner in a folder on a "
            "faster one (--local-directory)"
        )
    return (
        "; most of it is not of results, so it stays paused until its tasks give that back: look "
        "for what they keep (caches, globals, libraries), or replace the process "
        "(client.restart_workers)"
    )


def memory_text(ws: WorkerHandle) -> str:
    """Return what fills the memory of a worker, as it last reported it.

    `81 % of 4 GiB, 2.1 GiB of results, 0.9 GiB spilled, 0.3 GiB not by results`
    """
    resident, managed = ws.resident_nbytes, managed_nbytes(ws)
    parts = []
    if ws.memory_limit:
        parts.append(f"{resident / ws.memory_limit:.0%} of {sized(ws.memory_limit)}")
    else:
        parts.append(sized(resident))
    parts.append(f"{sized(managed)} of results")
    if spilled_nbytes(ws):
        parts.append(f"{sized(spilled_nbytes(ws))} spilled")
    if ws.status is not None and ws.status.spilling_nbytes:
        parts.append(f"{sized(ws.status.spilling_nbytes)} being written to disk")
        if ws.status.spill_bytes_per_s:
            parts[-1] += f" at {sized(ws.status.spill_bytes_per_s)}/s per file"
    if resident > managed:
        parts.append(f"{sized(resident - managed)} not by results")
    return ", ".join(parts)
