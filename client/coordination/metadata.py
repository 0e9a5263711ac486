"""Metadata: small plain data, in a tree that all clients read and write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import TooLarge
from ...protocol.wire.messages.coordination import METADATA, METADATA_NAME
from ...protocol.wire.plain import MAX_DEPTH, MAX_PLAIN_NBYTES, size_of, unpack
from ..modes import waits
from .coordination_object import (
    NO_DEFAULT,
    CoordinationObject,
    check_flag,
    check_name,
    check_text,
    durable_if,
    names_in,
    nothing,
)

if TYPE_CHECKING:
    from ...protocol.wire.messages import Operated
    from ..shell.engine import Engine

#: Numbers as the wire has them.
_LEAST_INT: Final = -(1 << 63)
_LARGEST_INT: Final = (1 << 64) - 1


class _AllMetadata(CoordinationObject[Any]):
    _KIND = METADATA


@waits
def set_metadata(
    client: Any, key: str | Iterable[str], value: Any, *, durable: bool = False
) -> None:
    """Set metadata: small plain data in a tree that all clients read and write.

    Args:
        key: a name, or a path of names in the tree. What is missing of it is made, and a value
            that is no dict and stands in its way is replaced.
        value: None, a bool, number, text, bytes, or lists and dicts of these with texts as
            keys. A tuple becomes a list.
        durable: the scheduler's journal records it, so it is there after a restart of the
            scheduler, also if this client has ended. So is all that is set below it later.

    Raises:
        ValueNotRecorded: it is durable, and the journal could not record it.
        TypeError: it is something else.
        TooLarge: it takes more than 64 KiB, or all metadata more than 2 MiB.

    Example:
        >>> client.set_metadata(["run 7", "state"], "warming up")
        >>> client.get_metadata("run 7")
        {'state': 'warming up'}
    """
    check_flag("durable", durable)
    path = _path(key)
    if not path:
        raise ValueError("set_metadata needs a key; an empty path has no place for a value")
    plain = _plain(value, len(path))
    nbytes = size_of(plain, len(path))
    if nbytes > MAX_PLAIN_NBYTES:
        raise TooLarge(
            f"the metadata takes about {nbytes} bytes, and the limit is {MAX_PLAIN_NBYTES}; large "
            "data belongs in a dataset or in the result of a task"
        )
    arguments = {"path": path, "value": plain, **durable_if(durable)}
    return _AllMetadata(METADATA_NAME, client)._call("set", nothing, arguments)


@waits
def get_metadata(client: Any, keys: str | Iterable[str], default: Any = NO_DEFAULT) -> Any:
    """Return metadata.

    Args:
        keys: a name, or a path of names; an empty path stands for the whole tree.
        default: what is returned if there is none.

    Raises:
        KeyError: there is none, and no default.
    """
    path = _path(keys)

    def found(_engine: Engine, answer: Operated) -> Any:
        if answer.info.get("found"):
            (blob,) = answer.values
            assert blob is not None, "what was found is a blob"
            return unpack(blob)
        if not path:
            return {}
        if default is NO_DEFAULT:
            raise KeyError(keys)
        return default

    return _AllMetadata(METADATA_NAME, client)._call("get", found, {"path": path})


@waits
def delete_metadata(client: Any, keys: str | Iterable[str]) -> None:
    """Delete metadata with all that is below it.

    Args:
        keys: a name, or a path of names; an empty path stands for the whole tree.

    Raises:
        KeyError: there is none.
    """
    path = _path(keys)

    def deleted(_engine: Engine, answer: Operated) -> None:
        if not answer.info.get("found"):
            raise KeyError(keys)

    return _AllMetadata(METADATA_NAME, client)._call("delete", deleted, {"path": path})


def _path(key: str | Iterable[str]) -> list[str]:
    path = names_in(key, "key of metadata")
    if len(path) >= MAX_DEPTH:
        raise ValueError(f"a path of metadata has less than {MAX_DEPTH} names, not {len(path)}")
    return path


def _plain(value: Any, depth: int) -> Any:
    """Return a copy of plain data.

    Raises:
        TypeError, ValueError: it is not plain, or nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"metadata is nested in at most {MAX_DEPTH} dicts and lists")
    if isinstance(value, str):
        check_text(value, "a text in metadata")
        return value
    if value is None or isinstance(value, (bool, float, bytes)):
        return value
    if isinstance(value, int):
        if not _LEAST_INT <= value <= _LARGEST_INT:
            raise ValueError("an int in metadata has at most 64 bits; write larger ones as a str")
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        for key in value:
            check_name(key, "key of metadata")
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    raise TypeError(
        f"metadata is plain data (None, bool, int, float, str, bytes, lists and dicts), not "
        f"{type(value).__name__}: use publish_dataset or a weft.Variable for other objects"
    )
