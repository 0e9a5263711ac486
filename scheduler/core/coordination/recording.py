"""Durable values: the journal records what is put or set, and the next scheduler has it.

A call asks for it by the argument `durable`. The object is changed at once, and the call is
answered when the journal has recorded the value, or could not. A value is dropped from the journal
with its last use: what was taken out of a queue stays recorded until the taker has acknowledged it,
so a value may be taken twice, and is never lost.

A setting that could not be recorded holds, and is tried again until it is replaced. What it
replaces is dropped by the same entry, so an older one is never lost for a newer one that is not
recorded.

Futures in durable values are those of jobs, since the next scheduler knows no others. What a later
scheduler is given is put in its place again before any peer comes (`restoring.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.wire.messages.coordination import DURABLE, NOT_RECORDED
from ..journal.entries import ValuesDropped
from ..journal.feature import RETRY_S
from ..journal.jobs import NO_JOURNAL, append, journal_of, when_written
from .arguments import bad
from .records import Call, ObjectValue, OperationRefused

if TYPE_CHECKING:
    from ..state import SchedulerState
    from .marks import Place


class RecordedValues:
    """The values that are recorded, or being recorded."""

    __slots__ = ("places", "replaced", "writing")

    def __init__(self) -> None:
        #: {number: place}. The numbers are those of marks, so what a client states again that was
        #: replaced since does not count.
        self.places: dict[int, Place] = {}
        #: {number: the value} that is not on the disk yet
        self.writing: dict[int, ObjectValue] = {}
        #: {number: those that it replaces} of some of `writing`: they are dropped with its commit
        self.replaced: dict[int, list[int]] = {}


def recorded_of(state: SchedulerState) -> RecordedValues:
    """Return the values that are recorded."""
    return state.record(RecordedValues)


def is_asked(state: SchedulerState, call: Call) -> bool:
    """Return whether a call asks for a durable value.

    Raises:
        OperationRefused: it cannot be durable.
    """
    asked = call.arguments.get(DURABLE, False)
    if type(asked) is not bool:
        raise bad("durable= is True or False")
    if asked and not journal_of(state).is_open:
        raise OperationRefused(NOT_RECORDED, NO_JOURNAL)
    return asked


def may_be(state: SchedulerState, call: Call) -> bool:
    """Return whether what a call states again is to be durable, as far as it can be here."""
    return call.arguments.get(DURABLE) is True and journal_of(state).is_open


def check_futures(state: SchedulerState, value: ObjectValue) -> None:
    """Check the futures in a value that is to be durable.

    Raises:
        OperationRefused: one is of a call that is no job, so the next scheduler would not know it.
    """
    journal = journal_of(state)
    for key in value.keys:
        if key not in journal.jobs and not journal.is_done(key):
            raise OperationRefused(
                NOT_RECORDED,
                f"a durable value has futures of detached calls only, and {key} is not detached, "
                "or has not succeeded: submit it with detached=True",
            )


def taken_over(state: SchedulerState, numbers: Iterable[int]) -> list[int]:
    """Return what is to be dropped from the journal with these values, which hold no more.

    That is also what they were to replace, unless it is known that they have.
    """
    recorded = recorded_of(state)
    found = []
    for number in numbers:
        if recorded.places.pop(number, None) is not None:
            found += [number, *recorded.replaced.get(number, ())]
    return found


def forget(state: SchedulerState, numbers: Iterable[int]) -> None:
    """Have values dropped from the journal."""
    if dropped := taken_over(state, numbers):
        _drop(state, dropped)


def _drop(state: SchedulerState, numbers: list[int]) -> None:
    append(state, ValuesDropped(numbers))
    when_written(state, partial(_on_dropped, numbers))


def _on_dropped(numbers: list[int], state: SchedulerState, error: str) -> None:
    if error:
        state.call_after(RETRY_S, _drop, numbers)
