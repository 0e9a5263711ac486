"""Whether a worker takes tasks: the one predicate, and its reason in words.

`WorkerHandle.closed` is 0 while a worker takes tasks, else the sum of the reasons why it does not.
Placement, assignment, copies, the number of desired workers and explanations all ask that. It is
one attribute, so that the hot lanes need no more. `close` and `reopen` change it, and keep what
follows from it: a worker that takes nothing is not idle, not loaded, and not open in its classes.

One that leaves is in no class either (`membership`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wording import sized
from ..records.peers import AWAY, FULL, LEAVING, PAUSED, TAKES_NOTHING, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Workers that a text names.
MAX_NAMED: Final = 3


def close(state: SchedulerState, ws: WorkerHandle, reason: int) -> None:
    """Give a worker nothing more for this reason; of one that is full, only the usual lanes."""
    ws.closed |= reason
    state.idle.pop(ws, None)
    if reason & TAKES_NOTHING:
        state.loaded.pop(ws, None)
        state.takers.pop(ws, None)
    for task_class in ws.classes:
        task_class.open.pop(ws, None)
        task_class.partly.pop(ws, None)


def reopen(state: SchedulerState, ws: WorkerHandle, reason: int) -> None:
    """Give a worker tasks again as far as this reason goes: the next pass finds its room."""
    ws.closed &= ~reason
    state.touched[ws] = None


def why_not(state: SchedulerState, ws: WorkerHandle) -> str:
    """Return why a worker takes no tasks, "" if it does. The gravest reason counts."""
    closed = ws.closed
    if closed & LEAVING:
        return "it is leaving"
    if closed & AWAY:
        if ws.peer not in state.roles:
            return "its connection is lost; it may come back"
        if ws.inventory is not None:
            return "it is back, and reports what it has"
        return "it sets up plugins"
    if closed & PAUSED:
        return f"paused: {memory_text(ws)}"
    if closed & FULL:
        used = f"{sized(ws.used_nbytes)} of {sized(ws.memory_limit)}"
        return f"full: it uses {used}, so it gets only what adds nothing to that"
    return ""


def memory_text(ws: WorkerHandle) -> str:
    """Return what fills the memory of a worker, as it last reported it.

    `81 % of 4 GiB, 2.1 GiB of results, 0.9 GiB spilled, 0.3 GiB not by results`
    """
    resident, managed = ws.resident_nbytes, ws.managed_nbytes
    parts = []
    if ws.memory_limit:
        parts.append(f"{resident / ws.memory_limit:.0%} of {sized(ws.memory_limit)}")
    else:
        parts.append(sized(resident))
    parts.append(f"{sized(managed)} of results")
    if ws.spilled_nbytes:
        parts.append(f"{sized(ws.spilled_nbytes)} spilled")
    if resident > managed:
        parts.append(f"{sized(resident - managed)} not by results")
    return ", ".join(parts)


def usage_text(workers: Iterable[WorkerHandle]) -> str:
    """Return what the first of some workers use: `w0 uses 330 of 400 MiB, w1 ...`."""
    workers = list(workers)
    parts = [
        f"{ws.name} uses {sized(ws.used_nbytes)} of {sized(ws.memory_limit)}"
        for ws in workers[:MAX_NAMED]
    ]
    if len(workers) > MAX_NAMED:
        parts.append(f"and {len(workers) - MAX_NAMED} more")
    return ", ".join(parts)
