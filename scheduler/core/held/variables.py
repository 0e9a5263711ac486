"""Variables: the last value that was set; those that want it wait until there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.held import LATE
from .records import Call, HeldKind, HeldOperation, HeldRecord, Reply, VariableRecord
from .values import drop, use

if TYPE_CHECKING:
    from ..peers import ClientHandle
    from ..state import SchedulerState


def _make(call: Call) -> HeldRecord:
    return VariableRecord(call.kind, call.name)


def _set(state: SchedulerState, record: VariableRecord, call: Call) -> Reply:
    assert call.value is not None
    use(state, call.value)
    if record.value is not None:
        drop(state, record.value)
    record.value = call.value
    return Reply()


def _get(state: SchedulerState, record: VariableRecord, _call: Call) -> Reply | None:
    if record.value is None:
        return None
    use(state, record.value)  # by the answer
    return Reply(values=(record.value,))


def _delete(state: SchedulerState, record: VariableRecord, _call: Call) -> Reply:
    if record.value is not None:
        drop(state, record.value)
        record.value = None
    return Reply()


def _drop(_record: VariableRecord, _client: ClientHandle) -> None:
    """The value stays when the client that has set it is gone."""


VARIABLES: Final = HeldKind(
    _make,
    {
        "set": HeldOperation(_set, has_value=True),
        "get": HeldOperation(_get, "get", Reply(problem=LATE)),
        "delete": HeldOperation(_delete),
    },
    _drop,
    lambda record: record.value is None,
)
