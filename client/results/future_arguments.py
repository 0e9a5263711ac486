"""Arguments in the place of futures: collections that hold some, and errors for all others."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import TaskCancelled
from ..actors import ActorFuture
from ..future import Future
from .failures import exception_of

if TYPE_CHECKING:
    from ..shell.engine import Engine

_CONTAINERS: Final = (list, tuple, set, frozenset)


def is_collection(item: object) -> bool:
    """Return whether this is a collection of dask; iterating over some of these computes them."""
    return hasattr(type(item), "__dask_graph__")


def futures_of(o: Any, client: Any = None) -> list[Future]:
    """Return the futures in collections of dask, and in lists, tuples, sets and dicts, each once.

    Only a collection that was persisted, or made of one, has any.

    Args:
        o: a collection, a future, or containers of them. Other objects are left out.
        client: if it is given, futures that were cancelled are an error.

    Raises:
        TaskCancelled: one of them was cancelled, and `client` is given.
    """
    found: dict[Future, None] = {}
    stack = [o]
    while stack:
        item = stack.pop()
        if isinstance(item, Future):
            found[item] = None
        elif type(item) in _CONTAINERS:
            stack.extend(item)
        elif type(item) is dict:
            stack.extend(item.values())
        elif is_collection(item):
            stack.extend(item.__dask_graph__().values())
    if client is not None:
        for future in found:
            if future.cancelled():
                error = exception_of(future._state)
                assert isinstance(error, TaskCancelled)
                raise error
    return [*found][::-1]


def items_of(futures: Any, call: str) -> Iterable[Any]:
    """Return the iterable that is to be searched for futures; of a collection its futures.

    Raises:
        TypeError: the argument cannot hold futures, or is a collection that was not persisted.
    """
    if is_collection(futures):
        found = futures_of(futures)
        if not found:
            raise no_future(futures, call)
        return found
    if isinstance(futures, (str, bytes)) or not isinstance(futures, Iterable):
        raise no_future(futures, call)
    return futures


def futures_in(given: Any, call: str) -> Iterator[Future]:
    """Yield the futures in nested containers and other iterables, in their order.

    Raises:
        TypeError: there are other objects among them.
    """
    stack = [given]
    while stack:
        item = stack.pop()
        if isinstance(item, Future):
            yield item
        else:
            parts = item.values() if isinstance(item, dict) else items_of(item, call)
            stack.extend(reversed([*parts]))


def flat_futures(futures: Any, call: str) -> list[Any]:
    """Return the items of an iterable, with the futures of collections in their places.

    Raises:
        TypeError: as `items_of`.
    """
    is_one = isinstance(futures, (Future, ActorFuture))
    found = [futures] if is_one else list(items_of(futures, call))
    if {*map(type, found)} <= {Future}:
        return found
    flat: list[Any] = []
    for item in found:
        flat += items_of(item, call) if is_collection(item) else [item]
    return flat


def engine_of(futures: list[Future]) -> Engine | None:
    """Return the engine of all these futures, None for no futures.

    Raises:
        TypeError: an object in the list is not a future.
        ValueError: they belong to several clients, or one was released.
    """
    engine: Engine | None = None
    for future in futures:
        if not isinstance(future, (Future, ActorFuture)):
            raise no_future(future, "wait or as_completed")
        if future._engine is not engine:
            if engine is not None:
                raise of_two_clients(engine, future._engine)
            engine = future._engine
        if future._is_released:
            raise ValueError(f"the future of {future.key!r} was released; submit its call again")
    return engine


def of_two_clients(one: Engine, other: Engine) -> ValueError:
    """Return the error of futures that are waited for together, and cannot be."""
    return ValueError(
        f"these futures belong to different clients, {one.name} and {other.name}: wait for those "
        "of each client by themselves"
    )


def is_named(item: object) -> bool:
    """Return whether an object is a named tuple."""
    return isinstance(item, tuple) and hasattr(item, "_fields")


def is_of_an_executor(item: object) -> bool:
    """Return whether an object is a future of concurrent.futures, such as of `weft.Executor`."""
    return isinstance(item, concurrent.futures.Future)


def no_future(item: object, call: str) -> TypeError:
    """Return the error, with advice, for an argument that `call` does not accept."""
    kind = type(item).__name__
    if is_collection(item):
        return TypeError(
            f"{call} takes futures, and this {kind} of dask holds none: use x.compute() for its "
            "value, x = client.persist(x) to keep its parts on the cluster, or client.compute(x) "
            "for a future"
        )
    if kind == "ActorFuture":
        return TypeError(
            f"{call} takes futures of tasks, and this is one of a call of an actor, which only "
            "wait, as_completed and gather take: pass its result()"
        )
    if is_of_an_executor(item):
        return TypeError(
            f"{call} takes futures of a client, and this {kind} is one of an executor: use its "
            "result(), or wait and as_completed of concurrent.futures"
        )
    return TypeError(
        f"{call} takes futures, as submit and map return them, and iterables of these; not {kind}"
    )
