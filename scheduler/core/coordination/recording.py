"""Durable values: the journal records what is put or set, and the next scheduler has it.

A call asks for it by the argument `durable`. The object is changed at once, and the call is
answered when the journal has recorded the value, or could not. A value is dropped from the journal
with its last use: what was taken out of a queue stays recorded until the taker has acknowledged it,
so a value may be taken twice, and is never lost.

Futures in durable values are those of jobs, since the next scheduler knows no others. What a later
scheduler is given is put in its place again before any peer comes (`restoring.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ....protocol.wire.messages.coordination import DURABLE, NOT_RECORDED
from ..journal.entries import ValueKept, ValuesDropped
from ..journal.feature import NO_JOURNAL, RETRY_S
from ..journal.jobs import append, journal_of, when_written
from .arguments import bad
from .marks import next_number
from .records import Call, ObjectValue, OperationRefused

if TYPE_CHECKING:
    from ....protocol.wire.payload import Blob
    from ..state import SchedulerState
    from .marks import Place

#: (state): takes a value back that could not be recorded
Undo = Callable[["SchedulerState"], None]


class RecordedValues:
    """The values that are recorded, or being recorded."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        #: {number: place}. The numbers are those of marks, so what a client states again that was
        #: replaced since does not count.
        self.places: dict[int, Place] = {}


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
        if key not in journal.jobs and key not in journal.done:
            raise OperationRefused(
                NOT_RECORDED,
                f"a durable value has futures of detached calls only, and {key} is not detached, "
                "or has not succeeded: submit it with detached=True",
            )


def keep(
    state: SchedulerState,
    place: Place,
    value: ObjectValue,
    info: dict[str, Any],
    call: Call | None = None,
    undo: Undo | None = None,
) -> None:
    """Have a value recorded; a call is answered when that is done."""
    value.number = record(
        state, place, value.blob, value.keys, info, partial(_on_kept, value, undo)
    )
    if call is not None:
        call.is_recording = True


def record(
    state: SchedulerState,
    place: Place,
    blob: Blob | None,
    keys: list[str],
    info: dict[str, Any],
    then: Callable[[int, SchedulerState, str], None],
) -> int:
    """Have something recorded under a new number, which is returned.

    Then `then` is called with that number, and the error, "" = there was none.
    """
    number = next_number(state)
    recorded_of(state).places[number] = place
    append(state, ValueKept(number, place, blob, keys, info))
    when_written(state, partial(then, number))
    return number


def _on_kept(
    value: ObjectValue, undo: Undo | None, number: int, state: SchedulerState, error: str
) -> None:
    if not error:
        return
    recorded_of(state).places.pop(number, None)
    value.number = 0
    if undo is not None:
        undo(state)


def retire(state: SchedulerState, value: ObjectValue) -> None:
    """Have a value dropped from the journal that was replaced or deleted, though it is read yet."""
    if value.number:
        forget(state, [value.number])
        value.number = 0


def forget(state: SchedulerState, numbers: list[int]) -> None:
    """Have values dropped from the journal."""
    places = recorded_of(state).places
    numbers = [number for number in numbers if places.pop(number, None) is not None]
    if numbers:
        _drop(state, numbers)


def _drop(state: SchedulerState, numbers: list[int]) -> None:
    append(state, ValuesDropped(numbers))
    when_written(state, partial(_on_dropped, numbers))


def _on_dropped(numbers: list[int], state: SchedulerState, error: str) -> None:
    if error:
        state.call_after(RETRY_S, _drop, numbers)
