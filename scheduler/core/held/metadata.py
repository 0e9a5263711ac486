"""Metadata: a small tree of plain data that all clients read and write.

Its inner nodes are maps with text keys. There is one record of the whole tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.columns import MAX_KEY_CHARS
from ....protocol.wire.messages.held import TOO_LARGE
from ....protocol.wire.plain import MAX_DEPTH, MAX_PLAIN_NBYTES, pack, size_of
from .arguments import bad
from .records import (
    Call,
    HeldKind,
    HeldOperation,
    HeldRecord,
    HeldRefusal,
    HeldValue,
    MetadataRecord,
    Reply,
)

if TYPE_CHECKING:
    from ..peers import ClientHandle
    from ..state import SchedulerState

#: The largest sum over all.
MAX_NBYTES: Final = 2 << 20


def _path_in(call: Call) -> list[str]:
    path = call.arguments.get("path")
    if type(path) is not list or len(path) >= MAX_DEPTH or not set(map(type, path)) <= {str}:
        raise bad(f"path= is a list of less than {MAX_DEPTH} texts")
    if path and len(max(path, key=len)) > MAX_KEY_CHARS:
        raise bad(f"a key of metadata has at most {MAX_KEY_CHARS} characters")
    return path


def _make(call: Call) -> HeldRecord:
    return MetadataRecord(call.kind, call.name)


def _set(_state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    path, value = _path_in(call), call.arguments.get("value")
    if not path:
        raise bad("path= has at least one key")
    try:
        nbytes = size_of(value, len(path))
    except ValueError as error:
        raise bad(str(error)) from None
    if nbytes > MAX_PLAIN_NBYTES:
        raise HeldRefusal(
            TOO_LARGE,
            f"the metadata takes about {nbytes} bytes, and the limit is {MAX_PLAIN_NBYTES}; large "
            "data belongs in a dataset or in the result of a task",
        )
    parent, i = record.tree, 0
    while i < len(path) - 1 and type(parent.get(path[i])) is dict:
        parent, i = parent[path[i]], i + 1
    key = path[i]
    for step in path[:i:-1]:
        value = {step: value}
    added = size_of(value) + len(key)
    if key in parent:
        added -= size_of(parent[key]) + len(key)
    if record.nbytes + added > MAX_NBYTES:
        raise HeldRefusal(
            TOO_LARGE,
            f"the metadata of the cluster would take {record.nbytes + added} bytes, and the limit "
            f"is {MAX_NBYTES}; delete what is not needed with client.delete_metadata",
        )
    record.nbytes += added
    parent[key] = value
    return Reply()


def _get(_state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    found: Any = record.tree
    for key in _path_in(call):
        if type(found) is not dict or key not in found:
            return Reply({"found": False})
        found = found[key]
    # As a blob: a map of the tree may have more entries than one of a message.
    return Reply({"found": True}, (HeldValue(pack(found), []),))


def _delete(_state: SchedulerState, record: MetadataRecord, call: Call) -> Reply:
    path = _path_in(call)
    if not path:
        record.tree.clear()
        record.nbytes = 0
        return Reply({"found": True})
    parent: Any = record.tree
    for key in path[:-1]:
        parent = parent.get(key)
        if type(parent) is not dict:
            return Reply({"found": False})
    if path[-1] not in parent:
        return Reply({"found": False})
    record.nbytes -= size_of(parent.pop(path[-1])) + len(path[-1])
    return Reply({"found": True})


def _drop(_record: MetadataRecord, _client: ClientHandle) -> None:
    """Metadata stays when the client that has set it is gone."""


METADATA_KIND: Final = HeldKind(
    _make,
    {
        "set": HeldOperation(_set),
        "get": HeldOperation(_get, is_read=True),
        "delete": HeldOperation(_delete),
    },
    _drop,
    lambda record: not record.tree,
)
