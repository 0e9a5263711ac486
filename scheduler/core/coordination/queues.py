"""Queues: values leave in the order in which they came; each is taken once.

A value is gone with the client that took it. A call that waits for values, or for room, is served
in the order in which it came; one whose client is gone does not take part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import DURABLE, LATE, MAX_BATCH, OTHER_LIMIT, QUEUE
from ....protocol.wire.payload import blob_nbytes
from ..journal.entries import ValueKept
from .arguments import bad, count_in
from .keeping import keep
from .recording import check_futures, forget, is_asked
from .records import (
    Call,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    ObjectValue,
    OperationRefused,
    QueueRecord,
    Reply,
    objects_of,
)
from .values import drop, use

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_LATE: Final = Reply(problem=LATE)
#: One answer carries values up to this; what is beyond stays in the queue.
MAX_ANSWER_NBYTES: Final = 32 << 20
#: ... and `MAX_BATCH` of them, with so many futures, whose keys take so many bytes. The first value
#: is in the answer whatever it has: it came in one message, too.
MAX_ANSWER_KEYS: Final = 100_000
MAX_ANSWER_KEYS_NBYTES: Final = 8 << 20


def _make(call: Call) -> ObjectRecord:
    return QueueRecord(call.kind, call.name, count_in(call, "maxsize", 0, 0))


def _create(state: SchedulerState, record: QueueRecord, call: Call) -> Reply:
    if record.is_closed:
        record.is_closed = False
        record.maxsize = count_in(call, "maxsize", 0, 0)
    _check_size(record, call)
    _become_durable(state, record, call)
    return Reply()


def _become_durable(state: SchedulerState, record: QueueRecord, call: Call) -> None:
    """Record values from now on, and those that there are, if a call asks for that."""
    if record.is_durable or not is_asked(state, call):
        return
    for value in record.items:
        check_futures(state, value)
    record.is_durable = call.is_recording = True
    place, info = (QUEUE, record.name), {"maxsize": record.maxsize}
    record.number = keep(state, place, ObjectValue(None, []), info)
    for value in record.items:
        value.number = keep(state, place, value, {**info, "put_by": ["", 0]})


def _take_back(record: QueueRecord, value: ObjectValue, state: SchedulerState) -> None:
    """Take a value out that could not be recorded, unless a client has it already."""
    if value in record.items:
        record.items.remove(value)
        drop(state, value)


def restore(state: SchedulerState, kept: ValueKept, value: ObjectValue) -> None:
    """Append a value that an earlier scheduler has recorded, or make a queue that it had."""
    place = QUEUE, kept.place[1]
    record = objects_of(state).records.get(place)
    if record is None:
        record = objects_of(state).records[place] = QueueRecord(*place, kept.info["maxsize"])
    assert isinstance(record, QueueRecord)
    record.is_durable = True
    if "put_by" not in kept.info:
        forget(state, [record.number])
        record.number = kept.number
        return
    client_id, request = kept.info["put_by"]
    record.restored.add((client_id, request))
    use(state, value)
    value.number = kept.number
    record.items.append(value)


def _check_size(record: QueueRecord, call: Call) -> None:
    """Refuse another size; 0 = the one that it has, and one that has none yet takes this one."""
    maxsize = count_in(call, "maxsize", 0, 0)
    record.maxsize = record.maxsize or maxsize
    if maxsize and maxsize != record.maxsize:
        raise OperationRefused(
            OTHER_LIMIT,
            f"queue {record.name!r} has maxsize={record.maxsize}, and not {maxsize}: use the same "
            "number wherever it is made, or another name",
        )


def _put(state: SchedulerState, record: QueueRecord, call: Call) -> Reply | None:
    _become_durable(state, record, call)
    if (call.client.client_id, call.request) in record.restored:
        return Reply({DURABLE: True})  # it was done, and its answer is lost with that scheduler
    if record.maxsize and len(record.items) >= record.maxsize:
        return None
    assert call.value is not None
    if record.is_durable:
        check_futures(state, call.value)
    use(state, call.value)
    record.items.append(call.value)
    if record.is_durable:
        info = {"maxsize": record.maxsize, "put_by": [call.client.client_id, call.request]}
        undo = partial(_take_back, record, call.value)
        call.value.number = keep(state, (QUEUE, record.name), call.value, info, undo=undo)
        call.is_recording = True
        return Reply({DURABLE: True})
    return Reply()


def _check_get(record: QueueRecord, call: Call) -> None:
    _check_size(record, call)
    number = count_in(call, "number", 1, 1)
    if number > MAX_BATCH:
        raise bad(f"batch={number} is more than {MAX_BATCH} values at once")
    if record.maxsize and number > record.maxsize:
        raise bad(
            f"batch={number} values are never in queue {record.name!r} at once: it has "
            f"maxsize={record.maxsize}"
        )


def _get(state: SchedulerState, record: QueueRecord, call: Call) -> Reply | None:
    _check_get(record, call)  # again: it may have got a size meanwhile
    number: int = call.arguments.get("number", 1)
    if len(record.items) < number:
        return None
    return Reply(values=tuple(_taken(record, number)))


def _take_all(_state: SchedulerState, record: QueueRecord, _call: Call) -> Reply:
    """Take all values that there are now, also before calls that wait for more."""
    return Reply(values=tuple(_taken(record, min(len(record.items), MAX_BATCH))))


def _taken(record: QueueRecord, number: int) -> list[ObjectValue]:
    """Take values out; their uses go over to the answer."""
    values: list[ObjectValue] = []
    nbytes = n_keys = keys_nbytes = 0
    for _ in range(number):
        value = record.items[0]
        nbytes += 0 if value.blob is None else blob_nbytes(value.blob)
        n_keys += len(value.keys)
        keys_nbytes += value.keys_nbytes
        is_beyond = (
            nbytes > MAX_ANSWER_NBYTES
            or n_keys > MAX_ANSWER_KEYS
            or keys_nbytes > MAX_ANSWER_KEYS_NBYTES
        )
        if values and is_beyond:
            break
        values.append(record.items.popleft())
    return values


def _undo_get(state: SchedulerState, record: QueueRecord, _call: Call, reply: Reply) -> None:
    """Put values back that their client has not read."""
    for value in reversed(reply.values):
        use(state, value)
        record.items.appendleft(value)


def _count(_state: SchedulerState, record: QueueRecord, _call: Call) -> Reply:
    return Reply({"n": len(record.items)})


def _close(state: SchedulerState, record: QueueRecord, call: Call) -> Reply:
    call.is_recording, record.is_durable = record.is_durable, False
    forget(state, [record.number])
    record.number = 0
    for value in record.items:
        drop(state, value)
    record.items.clear()
    record.is_closed = True
    return Reply()


def _is_ready(record: QueueRecord, call: Call) -> bool:
    if call.operation == "put":
        return not 0 < record.maxsize <= len(record.items)
    return bool(len(record.items) >= call.arguments.get("number", 1))


def _drop(_record: QueueRecord, _client: ClientHandle) -> None:
    """Values stay when the client that has put them is gone."""


QUEUES: Final = ObjectKind(
    QUEUE,
    _make,
    {
        "create": ObjectOperation(_create, may_be_closed=True),
        "put": ObjectOperation(_put, "put", _LATE, check=_check_size, has_value=True),
        "get": ObjectOperation(_get, "get", _LATE, undo=_undo_get, check=_check_get),
        "drain": ObjectOperation(_take_all, undo=_undo_get, check=_check_size),
        "count": ObjectOperation(_count, is_read=True),
        "close": ObjectOperation(_close),
    },
    _drop,
    lambda record: not (record.items or record.users or record.is_durable),
    _is_ready,
)
