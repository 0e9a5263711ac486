"""Events: once set, all that wait go on, and none waits until it is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import EVENT
from .marks import is_overtaken, note_deleted, note_set, note_stated, overtaken
from .records import Call, EventRecord, ObjectKind, ObjectOperation, ObjectRecord, Reply

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_SET: Final = Reply({"set": True})
_CLEAR: Final = Reply({"set": False})


def _make(call: Call) -> ObjectRecord:
    return EventRecord(call.kind, call.name)


def _wait(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply | None:
    return _SET if record.is_set else None


def _set(state: SchedulerState, record: EventRecord, call: Call) -> Reply:
    record.is_set = True
    return Reply({**_SET.info, **note_set(state, call, (EVENT, record.name))})


def _restate(state: SchedulerState, record: EventRecord, call: Call) -> Reply:
    place = (EVENT, record.name)
    if is_overtaken(state, call, place):
        return overtaken(call)
    record.is_set = True
    return note_stated(state, call, place)


def _clear(state: SchedulerState, record: EventRecord, call: Call) -> Reply:
    record.is_set = False
    return Reply({**_CLEAR.info, **note_deleted(state, call, (EVENT, record.name))})


def _is_set(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply:
    return _SET if record.is_set else _CLEAR


def _drop(_record: EventRecord, _client: ClientHandle) -> None:
    """An event stays set when the client that has set it is gone."""


EVENTS: Final = ObjectKind(
    EVENT,
    _make,
    {
        "wait": ObjectOperation(_wait, "wait", _CLEAR, is_deferred=True),
        "set": ObjectOperation(_set),
        "restate": ObjectOperation(_restate, is_deferred=True),
        "clear": ObjectOperation(_clear),
        "is_set": ObjectOperation(_is_set, is_read=True, is_deferred=True),
    },
    _drop,
    lambda record: not record.is_set,
    lambda record, _call: record.is_set,
)
