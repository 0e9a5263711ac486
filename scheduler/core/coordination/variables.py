"""Variables: the last value that was set; those that want it wait until there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import LATE, VARIABLE
from ..journal.entries import ValueKept
from .keeping import keep, replaced
from .marks import is_overtaken, note_deleted, note_restored, note_set, note_stated, overtaken
from .recording import check_futures, forget, is_asked, may_be
from .records import (
    Call,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    ObjectValue,
    Reply,
    VariableRecord,
    objects_of,
)
from .values import check_keys, use

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _make(call: Call) -> ObjectRecord:
    return VariableRecord(call.kind, call.name)


def _put(
    state: SchedulerState, record: VariableRecord, value: ObjectValue, is_durable: bool
) -> list[int]:
    """Set a value; return the number of the one before, if that is recorded."""
    if is_durable:
        check_futures(state, value)
    record.is_durable = is_durable
    use(state, value)
    old, record.value = record.value, value
    return [] if old is None else replaced(state, old)


def _set(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    place = (VARIABLE, record.name)
    assert call.value is not None
    old = _put(state, record, call.value, is_asked(state, call) or record.is_durable)
    reply = Reply(note_set(state, call, place))
    if record.is_durable:
        call.value.number = keep(state, place, call.value, {}, replaces=old)
        call.is_recording = True
    return reply


def restore(state: SchedulerState, kept: ValueKept, value: ObjectValue) -> None:
    """Set a value that an earlier scheduler has recorded."""
    place = VARIABLE, kept.place[1]
    record = objects_of(state).records.get(place)
    if record is None:
        record = objects_of(state).records[place] = VariableRecord(*place)
    assert isinstance(record, VariableRecord)
    value.number = kept.number
    forget(state, _put(state, record, value, is_durable=True))
    note_restored(state, place, kept.number)


def _restate(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    place = (VARIABLE, record.name)
    if is_overtaken(state, call, place):
        return overtaken(call)
    check_keys(state, call)
    assert call.value is not None
    old = _put(state, record, call.value, may_be(state, call) or record.is_durable)
    reply = note_stated(state, call, place)
    if record.is_durable:
        call.value.number = keep(state, place, call.value, {}, replaces=old)
    return reply


def _get(state: SchedulerState, record: VariableRecord, _call: Call) -> Reply | None:
    if record.value is None:
        return None
    use(state, record.value)  # by the answer
    return Reply(values=(record.value,))


def _delete(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    if record.value is not None:
        forget(state, replaced(state, record.value))
        record.value = None
    call.is_recording, record.is_durable = record.is_durable, False
    return Reply(note_deleted(state, call, (VARIABLE, record.name)))


def _drop(_record: VariableRecord, _client: ClientHandle) -> None:
    """The value stays when the client that has set it is gone."""


VARIABLES: Final = ObjectKind(
    VARIABLE,
    _make,
    {
        "set": ObjectOperation(_set, has_value=True),
        "restate": ObjectOperation(_restate, has_value=True, is_deferred=True),
        "get": ObjectOperation(_get, "get", Reply(problem=LATE), is_deferred=True),
        "delete": ObjectOperation(_delete),
    },
    _drop,
    lambda record: record.value is None,
    lambda record, _call: record.value is not None,
)
