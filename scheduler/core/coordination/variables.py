"""Variables: the last value that was set; those that want it wait until there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import LATE, VARIABLE
from .marks import is_overtaken, note_deleted, note_set, note_stated, overtaken
from .records import Call, ObjectKind, ObjectOperation, ObjectRecord, Reply, VariableRecord
from .values import check_keys, drop, use

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _make(call: Call) -> ObjectRecord:
    return VariableRecord(call.kind, call.name)


def _put(state: SchedulerState, record: VariableRecord, call: Call) -> None:
    assert call.value is not None
    use(state, call.value)
    if record.value is not None:
        drop(state, record.value)
    record.value = call.value


def _set(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    _put(state, record, call)
    return Reply(note_set(state, call, (VARIABLE, record.name)))


def _restate(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    place = (VARIABLE, record.name)
    if is_overtaken(state, call, place):
        return overtaken(call)
    check_keys(state, call)
    _put(state, record, call)
    return note_stated(state, call, place)


def _get(state: SchedulerState, record: VariableRecord, _call: Call) -> Reply | None:
    if record.value is None:
        return None
    use(state, record.value)  # by the answer
    return Reply(values=(record.value,))


def _delete(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    if record.value is not None:
        drop(state, record.value)
        record.value = None
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
