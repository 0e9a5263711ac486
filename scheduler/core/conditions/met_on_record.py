"""Conditions of jobs on record whose other job is to leave the record, or to begin anew.

The next scheduler judges a condition by how the other job has ended by then. So a condition that is
met is taken from the record before that changes: it was met once, and counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..journal.entries import PENDING, JobChanged
from ..journal.jobs import append, journal_of, recorded
from ..moves.without_recipe import change_group
from .records import conditions_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def drop_met(state: SchedulerState, keys: Iterable[str]) -> None:
    """Drop the conditions on these jobs, which have ended, as far as they are met."""
    conditions = conditions_of(state)
    if not conditions:
        return
    ended = dict.fromkeys(keys)
    jobs = journal_of(state).jobs
    for task, row in conditions.items():
        options = task.group.options
        if not options.conditions or jobs.get(task.key) != PENDING:
            continue
        left = [one for one in options.conditions if one[1] not in ended or one[1] in row.unmet]
        if len(left) < len(options.conditions):
            group = task.group.in_class(task.group.task_class)
            group.options = options.changed(conditions=left)
            change_group(state, task, group)
            append(state, JobChanged(task.key, recorded(group.options)))
