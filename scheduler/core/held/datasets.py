"""Datasets: values with futures that are kept under a name until they are withdrawn.

There is one record of all of them, so that they can be listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.held import EXISTS, TOO_LARGE, UNKNOWN_NAME
from ....protocol.wire.plain import pack
from .arguments import bad, names_in, text_in
from .records import (
    Call,
    DatasetsRecord,
    HeldKind,
    HeldOperation,
    HeldRecord,
    HeldRefusal,
    HeldValue,
    Reply,
)
from .values import drop, use

if TYPE_CHECKING:
    from ..peers import ClientHandle
    from ..state import SchedulerState

#: The most datasets of one scheduler.
MAX_DATASETS: Final = 10_000


def _make(call: Call) -> HeldRecord:
    return DatasetsRecord(call.kind, call.name)


def _publish(state: SchedulerState, record: DatasetsRecord, call: Call) -> Reply:
    name = text_in(call, "dataset")
    overrides = call.arguments.get("override", False)
    if type(overrides) is not bool:
        raise bad("override= is True or False")
    old = record.values.get(name)
    if old is not None and not overrides:
        raise HeldRefusal(
            EXISTS,
            f"there is a dataset {name!r} already; publish it with override=True, or unpublish "
            "that one first",
        )
    if old is None and len(record.values) >= MAX_DATASETS:
        raise HeldRefusal(
            TOO_LARGE,
            f"the cluster has {MAX_DATASETS} datasets, which is the limit; unpublish some first",
        )
    assert call.value is not None
    use(state, call.value)
    record.values[name] = call.value
    if old is not None:
        drop(state, old)
    return Reply()


def _unknown(name: str) -> HeldRefusal:
    return HeldRefusal(
        UNKNOWN_NAME,
        f"there is no dataset {name!r}; client.list_datasets() returns the names. A scheduler that "
        "was started again has none: publish it again",
    )


def _get(state: SchedulerState, record: DatasetsRecord, call: Call) -> Reply:
    name = text_in(call, "dataset")
    value = record.values.get(name)
    if value is None:
        raise _unknown(name)
    use(state, value)  # by the answer
    return Reply(values=(value,))


def _withdraw(state: SchedulerState, record: DatasetsRecord, call: Call) -> Reply:
    names = names_in(call)
    for name in names:
        if name not in record.values:
            raise _unknown(name)
    for name in names:
        drop(state, record.values.pop(name))
    return Reply()


def _list(_state: SchedulerState, record: DatasetsRecord, _call: Call) -> Reply:
    # As a blob: so many names may be longer than a message.
    return Reply(values=(HeldValue(pack([*record.values]), []),))


def _drop(_record: DatasetsRecord, _client: ClientHandle) -> None:
    """Datasets stay when the client that has published them is gone."""


DATASETS: Final = HeldKind(
    _make,
    {
        "publish": HeldOperation(_publish, has_value=True),
        "get": HeldOperation(_get),
        "delete": HeldOperation(_withdraw),
        "list": HeldOperation(_list, is_read=True),
    },
    _drop,
    lambda record: not record.values,
)
