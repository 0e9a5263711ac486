"""Conditions of jobs on record whose other job is to leave the record, or to begin anew.

The next scheduler judges a condition by how the other job has ended by then. So a condition that is
met is taken from the record before that changes: it was met once, and counts no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire.options import ENDED
from ..journal.entries import PENDING, JobChanged
from ..journal.jobs import append, journal_of, recorded
from ..moves.without_recipe import change_group
from .records import conditions_of, watched_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def drop_met(state: SchedulerState, keys: list[str]) -> None:
    """Drop the conditions on these jobs, which have ended, as far as they are met."""
    conditions = conditions_of(state)
    if not conditions:
        return
    ended = dict.fromkeys(keys)
    jobs = journal_of(state).jobs
    judged_later = watched_of(state).ended
    for task, row in conditions.items():
        options = task.group.options
        if not options.conditions or jobs.get(task.key) != PENDING:
            continue
        left = [
            [how, key]
            for how, key in options.conditions
            if key not in ended or (key in row.unmet and not _is_met(judged_later.get(key), how))
        ]
        if len(left) < len(options.conditions):
            group = task.group.in_class(task.group.task_class)
            group.options = options.changed(conditions=left)
            change_group(state, task, group)
            append(state, JobChanged(task.key, recorded(group.options)))


def _is_met(end: object, how: str) -> bool:
    """Return whether an end that is judged when all peers are back is on record, and meets it."""
    return isinstance(end, str) and how in (end, ENDED)
