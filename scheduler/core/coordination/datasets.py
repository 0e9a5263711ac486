"""Datasets: values with futures that are kept under a name until they are withdrawn.

There is one record of all of them, so that they can be listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import (
    DATASET,
    DATASETS_NAME,
    EXISTS,
    SUPERSEDED,
    TOO_LARGE,
    UNKNOWN_NAME,
)
from ....protocol.wire.plain import pack
from ..journal.entries import ValueKept
from .arguments import bad, names_in, text_in
from .keeping import keep, replaced
from .marks import is_overtaken, note_deleted, note_restored, note_set, note_stated, overtaken
from .recording import check_futures, forget, is_asked, may_be
from .records import (
    Call,
    DatasetsRecord,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    ObjectValue,
    OperationRefused,
    Reply,
    objects_of,
)
from .values import check_keys, use

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: The most datasets of one scheduler.
MAX_DATASETS: Final = 10_000


def _make(call: Call) -> ObjectRecord:
    return DatasetsRecord(call.kind, call.name)


def _publish(state: SchedulerState, record: DatasetsRecord, call: Call) -> Reply:
    name = text_in(call, "dataset")
    overrides = call.arguments.get("override", False)
    if type(overrides) is not bool:
        raise bad("override= is True or False")
    if name in record.values and not overrides:
        raise OperationRefused(
            EXISTS,
            f"there is a dataset {name!r} already; publish it with override=True, or unpublish "
            "that one first",
        )
    is_durable = is_asked(state, call)
    assert call.value is not None
    if is_durable:
        check_futures(state, call.value)
    old = _put(state, record, call.value, name)
    reply = Reply(note_set(state, call, (DATASET, name)))
    _record(state, name, call.value, old, is_durable)
    call.is_recording = bool(old) or is_durable
    return reply


def _record(
    state: SchedulerState, name: str, value: ObjectValue, old: list[int], is_durable: bool
) -> None:
    if is_durable:
        value.number = keep(state, (DATASET, name), value, {}, replaces=old)
    else:
        forget(state, old)


def restore(state: SchedulerState, kept: ValueKept, value: ObjectValue) -> None:
    """Publish a dataset that an earlier scheduler has recorded."""
    place = DATASET, DATASETS_NAME
    record = objects_of(state).records.get(place)
    if record is None:
        record = objects_of(state).records[place] = DatasetsRecord(*place)
    assert isinstance(record, DatasetsRecord)
    value.number = kept.number
    forget(state, _put(state, record, value, kept.place[1]))
    note_restored(state, kept.place, kept.number)


def _put(state: SchedulerState, record: DatasetsRecord, value: ObjectValue, name: str) -> list[int]:
    """Publish a dataset; return the number of the one before, if that is recorded."""
    old = record.values.get(name)
    if old is None and len(record.values) >= MAX_DATASETS:
        raise OperationRefused(
            TOO_LARGE,
            f"the cluster has {MAX_DATASETS} datasets, which is the limit; unpublish some first",
        )
    use(state, value)
    record.values[name] = value
    return [] if old is None else replaced(state, old)


def _restate(state: SchedulerState, record: DatasetsRecord, call: Call) -> Reply:
    name = text_in(call, "dataset")
    place = (DATASET, name)
    if is_overtaken(state, call, place):
        return overtaken(call)
    check_keys(state, call)
    assert call.value is not None
    if may_be(state, call):
        check_futures(state, call.value)
    old = _put(state, record, call.value, name)
    reply = note_stated(state, call, place)
    _record(state, name, call.value, old, may_be(state, call))
    return reply


def _unknown(name: str) -> OperationRefused:
    return OperationRefused(
        UNKNOWN_NAME,
        f"there is no dataset {name!r}; client.list_datasets() returns the names. A scheduler that "
        "was started again has those whose publishers are still there",
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
    superseded: list[int] = []
    call.is_recording = any(record.values[name].number for name in names)
    for name in names:
        forget(state, replaced(state, record.values.pop(name)))
        superseded += note_deleted(state, call, (DATASET, name)).get(SUPERSEDED, ())
    return Reply({SUPERSEDED: superseded} if superseded else {})


def _list(_state: SchedulerState, record: DatasetsRecord, _call: Call) -> Reply:
    # As a blob: so many names may be longer than a message.
    return Reply(values=(ObjectValue(pack([*record.values]), []),))


def _drop(_record: DatasetsRecord, _client: ClientHandle) -> None:
    """Datasets stay when the client that has published them is gone."""


DATASETS: Final = ObjectKind(
    DATASET,
    _make,
    {
        "publish": ObjectOperation(_publish, has_value=True, is_deferred=True),
        "restate": ObjectOperation(_restate, has_value=True, is_deferred=True),
        "get": ObjectOperation(_get, is_deferred=True),
        "delete": ObjectOperation(_withdraw, is_deferred=True),
        "list": ObjectOperation(_list, is_read=True, is_deferred=True),
    },
    _drop,
    lambda record: not record.values,
)
