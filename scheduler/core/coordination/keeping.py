"""Has the journal record values, and try those again that must not be taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..journal.entries import ValueKept
from ..journal.feature import RETRY_S
from ..journal.jobs import append, when_written
from .marks import next_number
from .recording import recorded_of, taken_over
from .values import drop, use

if TYPE_CHECKING:
    from ..state import SchedulerState
    from .marks import Place
    from .records import ObjectValue

#: (state): takes a value back that could not be recorded
Undo: TypeAlias = "Callable[[SchedulerState], None]"


def keep(
    state: SchedulerState,
    place: Place,
    value: ObjectValue,
    info: dict[str, Any],
    *,
    replaces: Iterable[int] = (),
    undo: Undo | None = None,
) -> int:
    """Have a value recorded, and others dropped with the same commit; return its number.

    If that fails, `undo` takes it back; without one it is tried again. The value is used until it
    is on the disk, so its bytes are counted.
    """
    recorded = recorded_of(state)
    number = next_number(state)
    recorded.places[number] = place
    recorded.writing[number] = value
    use(state, value)
    old = taken_over(state, replaces)
    if old:
        recorded.replaced[number] = old
    entry = ValueKept(number, place, value.blob, value.keys, info, old)
    _write(state, entry, undo)
    return number


def replaced(state: SchedulerState, value: ObjectValue) -> list[int]:
    """Take a value out of its place, though it is read yet; return its number, if it has one."""
    number, value.number = value.number, 0
    drop(state, value)
    return [number] if number else []


def _write(state: SchedulerState, entry: ValueKept, undo: Undo | None) -> None:
    append(state, entry)
    when_written(state, partial(_on_written, entry, undo))


def _on_written(entry: ValueKept, undo: Undo | None, state: SchedulerState, error: str) -> None:
    recorded = recorded_of(state)
    if error and undo is None and entry.number in recorded.places:
        state.call_after(RETRY_S, _write_again, entry)
        return
    if error and undo is not None:
        recorded.places.pop(entry.number, None)
    value = recorded.writing.pop(entry.number)
    recorded.replaced.pop(entry.number, None)
    if error and undo is not None:
        value.number = 0
        undo(state)
    drop(state, value)


def _write_again(state: SchedulerState, entry: ValueKept) -> None:
    recorded = recorded_of(state)
    if entry.number in recorded.places:
        _write(state, entry, None)
        return
    recorded.replaced.pop(entry.number, None)
    drop(state, recorded.writing.pop(entry.number))
