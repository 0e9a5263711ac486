"""Events: once set, all that wait go on, and none waits until it is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .records import Call, EventRecord, HeldKind, HeldOperation, HeldRecord, Reply

if TYPE_CHECKING:
    from ..peers import ClientHandle
    from ..state import SchedulerState

_SET: Final = Reply({"set": True})
_CLEAR: Final = Reply({"set": False})


def _make(call: Call) -> HeldRecord:
    return EventRecord(call.kind, call.name)


def _wait(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply | None:
    return _SET if record.is_set else None


def _set(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply:
    record.is_set = True
    return _SET


def _clear(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply:
    record.is_set = False
    return _CLEAR


def _is_set(_state: SchedulerState, record: EventRecord, _call: Call) -> Reply:
    return _SET if record.is_set else _CLEAR


def _drop(_record: EventRecord, _client: ClientHandle) -> None:
    """An event stays set when the client that has set it is gone."""


EVENTS: Final = HeldKind(
    _make,
    {
        "wait": HeldOperation(_wait, "wait", _CLEAR),
        "set": HeldOperation(_set),
        "clear": HeldOperation(_clear),
        "is_set": HeldOperation(_is_set, is_read=True),
    },
    _drop,
    lambda record: not record.is_set,
)
