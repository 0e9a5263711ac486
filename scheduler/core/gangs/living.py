"""A gang lives as a whole: while one member is wanted or read, all are kept.

A client that has the future of one member, or a reader of it, does not know the others. So a member
that nobody needs any more is wanted by the keeper of gangs, until no member is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..moves.transitions import ACTIVE, release_unneeded
from ..records.tasks import MEMORY, SchedulerTask
from ..requests.wanted_keys import drop_functions, unwant, want
from .records import GangRecord, Gangs, gangs_of, gangs_of_tasks

if TYPE_CHECKING:
    from ..state import SchedulerState


def keep(state: SchedulerState, task: SchedulerTask) -> bool:
    """Want an unneeded task if it is a member of a gang of which another is needed."""
    gang = gangs_of_tasks(state).get(task)
    gangs = gangs_of(state)
    if gang is None or task in gangs.ending or task.state not in (*ACTIVE, MEMORY):
        return False
    needed = gangs.living_on.get(gang)
    if needed is None or not _is_needed(gangs, needed):
        needed = _find_needed(gangs, gang)
    if needed is None:
        gangs.ending.update(dict.fromkeys(gang.members.values()))  # so each is looked at once
        return False
    want(gangs.keeper, task)
    gangs.living_on[gang] = needed
    state.busy[Gangs] = None
    return True


def note_cancelled(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Keep no task that was cancelled: its gang ends."""
    of_tasks = gangs_of_tasks(state)
    gangs_of(state).ending.update((task, None) for task in tasks if task in of_tasks)


def let_go(state: SchedulerState) -> None:
    """Release the gangs of which no member is needed any more."""
    gangs = gangs_of(state)
    gangs.ending.clear()
    unneeded: list[SchedulerTask] = []
    for gang, needed in list(gangs.living_on.items()):
        if _is_needed(gangs, needed):
            continue
        other = _find_needed(gangs, gang)
        if other is not None:
            gangs.living_on[gang] = other
            continue
        del gangs.living_on[gang]
        kept = [task for task in gang.members.values() if task in gangs.keeper.wants]
        for task in kept:
            unwant(gangs.keeper, task)
        unneeded += kept
    if unneeded:
        release_unneeded(state, unneeded)
        drop_functions(state, gangs.keeper)


def _find_needed(gangs: Gangs, gang: GangRecord) -> SchedulerTask | None:
    return next((task for task in gang.members.values() if _is_needed(gangs, task)), None)


def _is_needed(gangs: Gangs, task: SchedulerTask) -> bool:
    """Return whether a client wants a task or an active one reads it."""
    return bool(task.n_waiters) or any(client is not gangs.keeper for client in task.wanted_by)
