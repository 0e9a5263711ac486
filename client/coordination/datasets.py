"""Datasets: futures and values that are kept under a name for all clients.

A name is a text, a tuple of plain data as a key of a task, or a number. On the wire it is text, as
keys are (`protocol/wire/keys.py`), and a number is in parentheses: 8 is "(8)". So is a text that
would be taken for a number: "(8)" is "((8))".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol.errors import DatasetNotFound
from ...protocol.wire.keys import key_of, text_of
from ...protocol.wire.messages.held import DATASET
from ...protocol.wire.plain import unpack
from ..modes import as_result
from .held_object import HeldObject, check_name, nothing
from .held_values import packed, unpacked

if TYPE_CHECKING:
    from ...protocol.wire.messages import Operated
    from ..shell.engine import Engine


DatasetName: TypeAlias = "str | int | float | tuple[Any, ...]"

_NUMBER: Final = re.compile(r"(\(+)(-?[0-9][0-9a-z.+-]*|-?inf|nan)(\)+)")


def name_to_text(name: object) -> str:
    """Return the name of a dataset as text.

    Raises:
        TypeError, ValueError: it is none, empty, or too long.
    """
    if type(name) in (int, float):
        text = f"({name!r})"
    elif isinstance(name, str):
        check_name(name, "dataset")
        text = f"({name})" if _is_number(name) else text_of(name)
    elif isinstance(name, tuple):
        text = text_of(name)
    else:
        raise TypeError(
            "the name of a dataset is a str, an int, a float, or a tuple of plain data, not "
            f"{type(name).__name__}"
        )
    check_name(text, "dataset")
    return text


def name_from_text(text: str) -> DatasetName:
    """Return the name that has this text."""
    if not _is_number(text):
        return key_of(text)
    inner = text[1:-1]
    if inner[0] == "(":
        return inner
    try:
        return int(inner)
    except ValueError:
        return float(inner)


def _is_number(text: str) -> bool:
    """Return whether a text is a number in parentheses, one pair or more."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(match[1]) != len(match[3]):
        return False
    try:
        float(match[2])
    except ValueError:
        return False
    return True


class _AllDatasets(HeldObject[Any]):
    _KIND = DATASET


def _all(client: Any) -> _AllDatasets:
    return _AllDatasets("datasets", client)


def wanted(
    objects: tuple[Any, ...], name: DatasetName | None, named: dict[str, Any]
) -> dict[str, Any]:
    """Return {text of a name: dataset} of the arguments of `publish_dataset`."""
    found: dict[Any, Any] = {}
    if name is not None:
        if not objects:
            raise TypeError(f"there is nothing to publish as {name!r}: give the dataset, too")
        found[name] = objects[0] if len(objects) == 1 else objects
    elif len(objects) == 1 and type(objects[0]) is dict:
        found.update(objects[0])
    elif objects:
        raise TypeError(
            "a dataset needs a name: publish_dataset(x, name='...'), publish_dataset({'...': x}) "
            "or publish_dataset(name_of_it=x)"
        )
    found.update(named)
    if not found:
        raise TypeError("publish_dataset needs a dataset: publish_dataset(x, name='...')")
    return {name_to_text(each): dataset for each, dataset in found.items()}


def publish(client: Any, datasets: dict[str, Any], override: bool) -> None:
    """See `Client.publish_dataset`."""
    if type(override) is not bool:
        raise TypeError(f"override= is True or False, not {type(override).__name__}")
    held = _all(client)
    engine = held._engine()  # a closed client, before anything is pickled
    calls = [
        ({"dataset": name, "override": override}, *packed(engine, value))
        for name, value in datasets.items()
    ]
    if client.asynchronous:
        return as_result(_publish_async(held, calls))
    for arguments, blob, keys in calls:
        held._call("publish", nothing, arguments, values=[blob], keys=keys)
    return None


async def _publish_async(held: _AllDatasets, calls: list[Any]) -> None:
    for arguments, blob, keys in calls:
        await held._call_async("publish", nothing, arguments, values=[blob], keys=keys)


def unpublish(client: Any, name: DatasetName | Iterable[DatasetName]) -> None:
    """See `Client.unpublish_dataset`."""
    is_one = isinstance(name, (str, bytes, bytearray, tuple)) or not isinstance(name, Iterable)
    names = [*dict.fromkeys(map(name_to_text, [name] if is_one else name))]  # type: ignore[arg-type]
    if not names:
        raise ValueError("unpublish_dataset needs a name")
    return _all(client)._call("delete", nothing, {"names": names})


def list_names(client: Any) -> tuple[DatasetName, ...]:
    """See `Client.list_datasets`."""
    return _all(client)._call("list", _names)


def get(client: Any, name: DatasetName, default: tuple[Any, ...]) -> Any:
    """See `Client.get_dataset`; `default` has one item, or none."""
    text = name_to_text(name)
    held = _all(client)
    if client.asynchronous:
        return _get_async(held, text, default)
    try:
        return held._call("get", _only, {"dataset": text})
    except DatasetNotFound:
        if not default:
            raise
        return default[0]


async def _get_async(held: _AllDatasets, text: str, default: tuple[Any, ...]) -> Any:
    try:
        return await held._call_async("get", _only, {"dataset": text})
    except DatasetNotFound:
        if not default:
            raise
        return default[0]


def _names(_engine: Engine, answer: Operated) -> tuple[DatasetName, ...]:
    (blob,) = answer.values
    assert blob is not None, "the names are a blob"
    return tuple(map(name_from_text, unpack(blob)))


def _only(engine: Engine, answer: Operated) -> Any:
    return unpacked(engine, answer)[0]


class Datasets(MutableMapping[Any, Any]):
    """The datasets of a client's cluster. Each look asks the scheduler."""

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise TypeError(
                "client.datasets would block the event loop: await client.publish_dataset(...), "
                "get_dataset(...), list_datasets() or unpublish_dataset(...)"
            )
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    def __getitem__(self, name: DatasetName) -> Any:
        return get(self._client, name, ())

    def __setitem__(self, name: DatasetName, value: Any) -> None:
        publish(self._client, wanted((value,), name, {}), override=False)

    def __delitem__(self, name: DatasetName) -> None:
        unpublish(self._client, [name])

    def __iter__(self) -> Iterator[DatasetName]:
        return iter(list_names(self._client))

    def __len__(self) -> int:
        return len(list_names(self._client))

    def __contains__(self, name: object) -> bool:
        return name in list_names(self._client)
