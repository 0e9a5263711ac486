"""What categories have learned is recorded in the journal, and the next scheduler begins with it.

A category that has learned is recorded a little later, with what it has learned meanwhile. So many
tasks cost one row, and a scheduler that is killed loses what its last second has taught.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ....protocol.amounts import CORES, MEMORY
from ..journal.entries import CategoryLearned, JournalRead
from ..journal.feature import RETRY_S
from ..journal.jobs import append, journal_of, when_written
from .allotting import review
from .records import categories_of, make_category

if TYPE_CHECKING:
    from ..events import SchedulerTick
    from ..records.deadlines import Deadline
    from ..state import SchedulerState
    from .records import CategoryRecord

#: What was learned is recorded after so long.
RECORD_S: Final = 1.0
#: Categories that are recorded at a time, each with some hundred numbers at most.
MAX_RECORDED: Final = 20


class Unrecorded:
    """Categories that have learned what is not recorded."""

    __slots__ = ("names", "next_look")

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        #: to come while there are `names`
        self.next_look: Deadline | None = None


def unrecorded_of(state: SchedulerState) -> Unrecorded:
    """Return which categories have learned what is not recorded."""
    return state.record(Unrecorded)


def note_learned(state: SchedulerState, category: CategoryRecord) -> None:
    """Have a category recorded, a little later."""
    if journal_of(state).is_open and "\0" not in category.name:  # PostgreSQL has no such texts
        _record_later(state, [category.name], RECORD_S)


def _record_later(state: SchedulerState, names: list[str], delay_s: float) -> None:
    unrecorded = unrecorded_of(state)
    unrecorded.names |= dict.fromkeys(names)
    if unrecorded.next_look is None and unrecorded.names:
        unrecorded.next_look = state.call_after(delay_s, _record)


def _record(state: SchedulerState) -> None:
    """Record the first of those that have learned; one may have been forgotten meanwhile."""
    unrecorded = unrecorded_of(state)
    unrecorded.next_look = None
    names = [*islice(unrecorded.names, MAX_RECORDED)]
    for name in names:
        del unrecorded.names[name]
    by_name = categories_of(state).by_name
    if known := [by_name[name] for name in names if name in by_name]:
        append(state, *map(_learned, known))
        when_written(state, partial(_on_written, names))
    _record_later(state, [], RECORD_S)


def _learned(category: CategoryRecord) -> CategoryLearned:
    memory, cores = category.peaks[MEMORY].rows(), category.peaks[CORES].rows()
    times = category.times
    return CategoryLearned(category.name, memory, times.n_ended, times.sum_s, cores)


def _on_written(names: list[str], state: SchedulerState, error: str) -> None:
    if error:
        _record_later(state, names, RETRY_S)


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take over what an earlier scheduler has recorded."""
    for report in event.journal:
        if isinstance(report, JournalRead):
            for learned in report.learned:
                category = make_category(state, learned.name)
                category.peaks[MEMORY].restore(learned.peaks)
                category.peaks[CORES].restore(learned.cores)
                category.times.n_ended, category.times.sum_s = learned.n_ended, learned.sum_s
                review(state, category)
