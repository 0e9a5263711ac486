"""Durable values that earlier schedulers have recorded are put in their places again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import DATASET, METADATA, QUEUE, VARIABLE
from ..journal.entries import JournalRead, ValueKept
from ..journal.resubmission import let_go, submit_again
from . import datasets, metadata, queues, variables
from .recording import recorded_of
from .records import ObjectValue

if TYPE_CHECKING:
    from ..events import SchedulerTick
    from ..state import SchedulerState

_RESTORE: Final[dict[str, Callable[[SchedulerState, ValueKept, ObjectValue], None]]] = {
    QUEUE: queues.restore,
    VARIABLE: variables.restore,
    DATASET: datasets.restore,
    METADATA: metadata.restore,
}


def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take the durable values that were read from the journal."""
    for report in event.journal:
        if isinstance(report, JournalRead) and report.values:
            _restore(state, report)


def _restore(state: SchedulerState, read: JournalRead) -> None:
    """Restore values, while the results of the jobs whose futures are in them are given."""
    keys = {key for kept in read.values for key in kept.keys}
    results = {key: read.results[key] for key in keys & read.results.keys()}
    for kept in read.values:
        recorded_of(state).places[kept.number] = kept.place
    submit_again(state, JournalRead(results=results), lets_go=False)
    for kept in read.values:
        value = ObjectValue(kept.blob, kept.keys)
        _RESTORE[kept.place[0]](state, kept, value)
    let_go(state, results)
