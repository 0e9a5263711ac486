"""Datasets: futures and values that are kept under a name for all clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import DatasetNotFound
from ...protocol.wire.messages.held import DATASET
from ...protocol.wire.plain import unpack
from .held_object import HeldObject, check_name, names_in
from .held_values import packed, unpacked

if TYPE_CHECKING:
    from ...protocol.wire.messages import Operated
    from ..shell.engine import Engine


class _AllDatasets(HeldObject):
    _KIND = DATASET


def _all(client: Any) -> _AllDatasets:
    return _AllDatasets("datasets", client)


def wanted(objects: tuple[Any, ...], name: str | None, named: dict[str, Any]) -> dict[str, Any]:
    """Return {name: dataset} of the arguments of `publish_dataset`."""
    found: dict[str, Any] = {}
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
    for each in found:
        check_name(each, "dataset")
    return found


def publish(client: Any, datasets: dict[str, Any], override: bool) -> Any:
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
        return _publish_async(held, calls)
    for arguments, blob, keys in calls:
        held._call("publish", _nothing, arguments, values=[blob], keys=keys)
    return None


async def _publish_async(held: _AllDatasets, calls: list[Any]) -> None:
    for arguments, blob, keys in calls:
        await held._call("publish", _nothing, arguments, values=[blob], keys=keys)


def unpublish(client: Any, name: str | Iterable[str]) -> Any:
    """See `Client.unpublish_dataset`."""
    names = [*dict.fromkeys(names_in(name, "dataset"))]
    if not names:
        raise ValueError("unpublish_dataset needs a name")
    return _all(client)._call("delete", _nothing, {"names": names})


def list_names(client: Any) -> Any:
    """See `Client.list_datasets`."""
    return _all(client)._call("list", _names)


def get(client: Any, name: str, default: tuple[Any, ...]) -> Any:
    """See `Client.get_dataset`; `default` has one item, or none."""
    check_name(name, "dataset")
    held = _all(client)
    if client.asynchronous:
        return _get_async(held, name, default)
    try:
        return held._call("get", _only, {"dataset": name})
    except DatasetNotFound:
        if not default:
            raise
        return default[0]


async def _get_async(held: _AllDatasets, name: str, default: tuple[Any, ...]) -> Any:
    try:
        return await held._call("get", _only, {"dataset": name})
    except DatasetNotFound:
        if not default:
            raise
        return default[0]


def _nothing(_engine: Engine, _answer: Operated) -> None:
    pass


def _names(_engine: Engine, answer: Operated) -> tuple[str, ...]:
    (blob,) = answer.values
    assert blob is not None, "the names are a blob"
    return tuple(unpack(blob))


def _only(engine: Engine, answer: Operated) -> Any:
    return unpacked(engine, answer)[0]


class Datasets(MutableMapping[str, Any]):
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

    def __getitem__(self, name: str) -> Any:
        return get(self._client, name, ())

    def __setitem__(self, name: str, value: Any) -> None:
        publish(self._client, wanted((value,), name, {}), override=False)

    def __delitem__(self, name: str) -> None:
        unpublish(self._client, name)

    def __iter__(self) -> Iterator[str]:
        return iter(list_names(self._client))

    def __len__(self) -> int:
        return len(list_names(self._client))

    def __contains__(self, name: object) -> bool:
        return name in list_names(self._client)
