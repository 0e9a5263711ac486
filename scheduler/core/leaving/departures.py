"""The line about a worker that has left, and the event: what was moved, and what is lost."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ....protocol.wording import counted, placed_again, sized
from ..feature import Departure
from ..records.tasks import ERRED

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState
    from .leavers import Leaver


def report(
    state: SchedulerState, ws: WorkerHandle, departure: Departure, leaver: Leaver | None
) -> None:
    """Log that a worker has left; a warning if it had to before its results were moved."""
    n_moved, n_lost = (0, 0) if leaver is None else (leaver.n_moved, len(leaver.lost))
    state.report(
        "worker-left", worker=ws.name, reason=departure.reason, n_moved=n_moved, n_lost=n_lost
    )
    if leaver is None:  # it was stopped at once
        text = placed_again(departure.n_tasks, departure.n_results)
        state.log("info", f"worker {ws.name} has left ({departure.reason}): {text}")
        return
    parts = _losses(departure, leaver)
    if parts and leaver.request and not leaver.may_go:
        text = f"worker {ws.name} had to leave before all was moved ({departure.reason}): "
        state.log("warning", text + "; ".join(parts), "result-lost")
        return
    if n_moved:
        moved = f"{counted(n_moved, 'result')} ({sized(leaver.nbytes_moved)})"
        parts.insert(0, f"{moved} {'has' if n_moved == 1 else 'have'} moved")
    if len(parts) <= bool(n_moved):
        parts.append("nothing that is needed is lost")
    state.log("info", f"worker {ws.name} has left ({departure.reason}): {'; '.join(parts)}")


def _losses(departure: Departure, leaver: Leaver) -> list[str]:
    """Return what is lost with a worker, in words."""
    parts = []
    again = [(key, nbytes) for key, nbytes, is_for_good in leaver.lost if not is_for_good]
    for_good = [(key, nbytes) for key, nbytes, is_for_good in leaver.lost if is_for_good]
    for rows, one, many in (
        (again, "is computed again", "are computed again"),
        (for_good, "cannot be computed again", "cannot be computed again"),
    ):
        if rows:
            nbytes = sized(sum(nbytes for _, nbytes in rows))
            named = f"{rows[0][0]!r}, " if len(rows) == 1 else f"{rows[0][0]!r} for one, "
            verb = one if len(rows) == 1 else many
            parts.append(f"{counted(len(rows), 'result')} ({nbytes}), {named}{verb}")
    actors = chain(leaver.left, leaver.stuck)
    n_actors = sum(task.group.function.is_unique and task.state == ERRED for task in actors)
    if n_actors:
        parts.append(f"{counted(n_actors, 'actor')} {'has' if n_actors == 1 else 'have'} ended")
    if departure.n_tasks:
        n = departure.n_tasks
        parts.append(f"{counted(n, 'task')} {'runs' if n == 1 else 'run'} again")
    return parts
