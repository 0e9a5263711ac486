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
from ...protocol.wire.messages.coordination import DATASET, DATASETS_NAME
from ...protocol.wire.plain import unpack
from ..modes import waits
from ..shell.both_ways import result_of
from .coordination_object import (
    NO_DEFAULT,
    CoordinationObject,
    check_flag,
    check_name,
    durable_if,
    nothing,
)
from .object_values import first, packed

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


class _AllDatasets(CoordinationObject[Any]):
    _KIND = DATASET


def _all(client: Any) -> _AllDatasets:
    return _AllDatasets(DATASETS_NAME, client)


def _wanted(
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


@waits
def publish_dataset(
    client: Any,
    /,
    *objects: Any,
    name: DatasetName | None = None,
    override: bool = False,
    durable: bool = False,
    **named: Any,
) -> None:
    """Keep futures, or values with futures in them, under names that all clients may look up.

    The scheduler keeps the futures alive, whoever releases them, until the dataset is
    unpublished, or the scheduler and this client have ended. Values themselves are small (4 MiB
    at most): large data belongs in the results of tasks.

    Args:
        objects: the dataset `name`; several make a tuple. Without a name, {name: dataset}.
        name: of the dataset: a text, a number, or a tuple of plain data.
        override: replace a dataset of the same name.
        durable: the scheduler's journal records it, so it is there after a restart of the
            scheduler, also if this client has ended. Futures in it are of detached calls.
        named: further datasets.

    Raises:
        DatasetExists: there is one of this name, and `override` is False.
        TooLarge: the value is too large.
        ValueNotRecorded: it is durable, and the journal could not record it.
        SerializationError: it cannot be pickled, or a future in it was released.

    Example:
        >>> client.publish_dataset(squares=client.map(pow, [1, 2, 3], [2, 2, 2]))
        >>> client.list_datasets()                      # also in other clients
        ('squares',)
        >>> client.gather(client.get_dataset("squares"))
        [1, 4, 9]
        >>> client.unpublish_dataset("squares")
    """
    datasets = _wanted(objects, name, named)
    check_flag("override", override)
    check_flag("durable", durable)
    shared = _all(client)
    engine = shared._engine()  # a closed client, before anything is pickled
    calls = [
        (
            {"dataset": name, "override": override, **durable_if(durable)},
            *packed(engine, value),
        )
        for name, value in datasets.items()
    ]

    async def publish() -> None:
        for arguments, blob, keys in calls:
            await shared._do("publish", nothing, arguments, values=[blob], keys=keys)

    return result_of(engine, publish)


@waits
def unpublish_dataset(client: Any, name: DatasetName | Iterable[DatasetName]) -> None:
    """Withdraw a dataset, or a list of several; their futures are released.

    Raises:
        DatasetNotFound: there is none of such a name; nothing is withdrawn.
    """
    is_one = isinstance(name, (str, bytes, bytearray, tuple)) or not isinstance(name, Iterable)
    names = [*dict.fromkeys(map(name_to_text, [name] if is_one else name))]  # type: ignore[arg-type]
    if not names:
        raise ValueError("unpublish_dataset needs a name")
    return _all(client)._call("delete", nothing, {"names": names})


@waits
def list_datasets(client: Any) -> tuple[DatasetName, ...]:
    """Return the names of all datasets, in the order in which they were published."""
    return _all(client)._call("list", _names)


@waits
def get_dataset(client: Any, name: DatasetName, default: Any = NO_DEFAULT) -> Any:
    """Return a dataset; the futures in it belong to this client.

    Args:
        name: of the dataset.
        default: what is returned if there is none.

    Raises:
        DatasetNotFound: there is none of this name, and no default.

    Example:
        >>> client.get_dataset("none of this name", default=[])
        []
    """
    text = name_to_text(name)
    shared = _all(client)

    async def find() -> Any:
        try:
            return await shared._do("get", first, {"dataset": text})
        except DatasetNotFound:
            if default is NO_DEFAULT:
                raise
            return default

    return result_of(shared._engine(), find)


def _names(_engine: Engine, answer: Operated) -> tuple[DatasetName, ...]:
    (blob,) = answer.values
    assert blob is not None, "the names are a blob"
    return tuple(map(name_from_text, unpack(blob)))


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
        return self._client.get_dataset(name)

    def __setitem__(self, name: DatasetName, value: Any) -> None:
        self._client.publish_dataset(value, name=name)

    def __delitem__(self, name: DatasetName) -> None:
        self._client.unpublish_dataset([name])

    def __iter__(self) -> Iterator[DatasetName]:
        return iter(self._client.list_datasets())

    def __len__(self) -> int:
        return len(self._client.list_datasets())

    def __contains__(self, name: object) -> bool:
        return name in self._client.list_datasets()
