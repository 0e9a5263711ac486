"""Metadata: a small tree of plain data that all clients read and write.

Its inner nodes are maps with text keys. There is one record of the whole tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.columns import MAX_KEY_CHARS
from ....protocol.wire.messages.coordination import METADATA, METADATA_NAME, TOO_LARGE
from ....protocol.wire.plain import MAX_DEPTH, MAX_PLAIN_NBYTES, pack, size_of, unpack
from ..journal.entries import ValueKept
from .arguments import bad
from .keeping import keep
from .marks import (
    is_overtaken,
    later_below,
    note_deleted,
    note_restored,
    note_set,
    note_stated,
    overtaken,
)
from .recording import forget, is_asked, may_be
from .records import (
    Call,
    MetadataRecord,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    ObjectValue,
    OperationRefused,
    Reply,
    objects_of,
)

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: Changes below a durable path that are recorded by themselves.
MAX_BELOW: Final = 64
#: The largest sum over all.
MAX_NBYTES: Final = 2 << 20


def _path_in(call: Call) -> list[str]:
    path = call.arguments.get("path")
    if type(path) is not list or len(path) >= MAX_DEPTH or not set(map(type, path)) <= {str}:
        raise bad(f"path= is a list of less than {MAX_DEPTH} texts")
    if path and len(max(path, key=len)) > MAX_KEY_CHARS:
        raise bad(f"a key of metadata has at most {MAX_KEY_CHARS} characters")
    return path


def _make(call: Call) -> ObjectRecord:
    return MetadataRecord(call.kind, call.name)


def _set(state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    is_durable = is_asked(state, call)
    path = _put(record, call)
    reply = Reply(note_set(state, call, (METADATA, *path)))
    call.is_recording = _record(state, record, tuple(path), is_durable)
    return reply


def _record(
    state: SchedulerState, record: MetadataRecord, path: tuple[str, ...], is_durable: bool
) -> bool:
    """Record what has changed at a path; return whether something is being recorded.

    All below a durable path is durable. What is set there is recorded by itself, and what is
    deleted as well; after some of these the whole is recorded anew.
    """
    durable = record.durable
    steps = range(1, len(path) + 1)
    above = next((path[:n] for n in steps if path[:n] in durable), path if is_durable else None)
    if above is not None and sum(at[: len(above)] == above for at in durable) > MAX_BELOW:
        path = above
    old = [durable.pop(at) for at in [at for at in durable if at[: len(path)] == path]]
    found = _found(record, path)
    if above is not None and (found is not None or path != above):
        value = ObjectValue(None if found is None else pack(found[0]), [])
        durable[path] = keep(state, (METADATA, *path), value, {}, replaces=old)
        return True
    forget(state, old)
    return bool(old)


def restore(state: SchedulerState, kept: ValueKept, value: ObjectValue) -> None:
    """Set what an earlier scheduler has recorded."""
    place = METADATA, METADATA_NAME
    record = objects_of(state).records.get(place)
    if record is None:
        record = objects_of(state).records[place] = MetadataRecord(*place)
    assert isinstance(record, MetadataRecord)
    path = kept.place[1:]
    if value.blob is None:
        _remove(record, path)
    else:
        assert isinstance(value.blob, bytes)
        _place(record, path, unpack(value.blob))
    forget(state, [record.durable.pop(at) for at in [*record.durable] if at[: len(path)] == path])
    record.durable[path] = kept.number
    note_restored(state, kept.place, kept.number, is_set=value.blob is not None)


def _restate(state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    place = (METADATA, *_path_in(call))
    if is_overtaken(state, call, place):
        return overtaken(call)
    later = [(at[1:], is_deleted) for at, is_deleted in later_below(state, call, place)]
    kept = [(path, None if is_deleted else _found(record, path)) for path, is_deleted in later]
    _put(record, call)
    for path, found in kept:
        if found is None:
            _remove(record, path)
        else:
            _place(record, path, found[0])
    reply = note_stated(state, call, place)
    _record(state, record, place[1:], may_be(state, call))
    return reply


def _put(record: MetadataRecord, call: Call) -> list[str]:
    """Set what a call carries; return its path.

    Raises:
        OperationRefused: it is not plain, or too large.
    """
    path, value = _path_in(call), call.arguments.get("value")
    if not path:
        raise bad("path= has at least one key")
    try:
        nbytes = size_of(value, len(path))
    except ValueError as error:
        raise bad(str(error)) from None
    if nbytes > MAX_PLAIN_NBYTES:
        raise OperationRefused(
            TOO_LARGE,
            f"the metadata takes about {nbytes} bytes, and the limit is {MAX_PLAIN_NBYTES}; large "
            "data belongs in a dataset or in the result of a task",
        )
    _place(record, path, value, MAX_NBYTES)
    return path


def _place(
    record: MetadataRecord, path: Sequence[str], value: Any, limit_nbytes: int | None = None
) -> None:
    parent, i = record.tree, 0
    while i < len(path) - 1 and type(parent.get(path[i])) is dict:
        parent, i = parent[path[i]], i + 1
    key = path[i]
    for step in path[:i:-1]:
        value = {step: value}
    added = size_of(value) + len(key)
    if key in parent:
        added -= size_of(parent[key]) + len(key)
    if limit_nbytes is not None and record.nbytes + added > limit_nbytes:
        raise OperationRefused(
            TOO_LARGE,
            f"the metadata of the cluster would take {record.nbytes + added} bytes, and the limit "
            f"is {limit_nbytes}; delete what is not needed with client.delete_metadata",
        )
    record.nbytes += added
    parent[key] = value


def _found(record: MetadataRecord, path: Sequence[str]) -> tuple[Any] | None:
    """Return what is at a path, in a tuple; None = there is nothing."""
    found: Any = record.tree
    for key in path:
        if type(found) is not dict or key not in found:
            return None
        found = found[key]
    return (found,)


def _get(_state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    found = _found(record, _path_in(call))
    if found is None:
        return Reply({"found": False})
    # As a blob: a map of the tree may have more entries than one of a message.
    return Reply({"found": True}, (ObjectValue(pack(found[0]), []),))


def _delete(state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    path = _path_in(call)
    if not path:
        record.tree.clear()
        record.nbytes = 0
        call.is_recording = bool(record.durable)
        forget(state, [*record.durable.values()])
        record.durable.clear()
    elif not _remove(record, path):
        return Reply({"found": False})
    else:
        call.is_recording = _record(state, record, tuple(path), is_durable=False)
    return Reply({"found": True, **note_deleted(state, call, (METADATA, *path))})


def _remove(record: MetadataRecord, path: Sequence[str]) -> bool:
    """Remove what is at a path; return whether there was something."""
    parent = _found(record, path[:-1])
    if parent is None or type(parent[0]) is not dict or path[-1] not in parent[0]:
        return False
    record.nbytes -= size_of(parent[0].pop(path[-1])) + len(path[-1])
    return True


def _drop(_record: MetadataRecord, _client: ClientHandle) -> None:
    """Metadata stays when the client that has set it is gone."""


METADATA_KIND: Final = ObjectKind(
    METADATA,
    _make,
    {
        "set": ObjectOperation(_set),
        "restate": ObjectOperation(_restate, is_deferred=True),
        "get": ObjectOperation(_get, is_read=True, is_deferred=True),
        "delete": ObjectOperation(_delete, is_deferred=True),
    },
    _drop,
    lambda record: not record.tree,
)
