"""Errors for arguments that should be futures and hold none, with advice on what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def is_collection(item: object) -> bool:
    """Return whether this is a collection of dask; iterating over some of these computes them."""
    return hasattr(type(item), "__dask_graph__")


def items_of(futures: Any, call: str) -> Iterable[Any]:
    """Return the iterable that is to be searched for futures.

    Raises:
        TypeError: the argument cannot hold futures.
    """
    if isinstance(futures, (str, bytes)) or is_collection(futures):
        raise no_future(futures, call)
    if not isinstance(futures, Iterable):
        raise no_future(futures, call)
    return futures


def no_future(item: object, call: str) -> TypeError:
    """Return the error, with advice, for an argument that `call` does not accept."""
    kind = type(item).__name__
    if is_collection(item):
        return TypeError(
            f"{call} takes futures, and a {kind} of dask holds none: use x.compute() for its "
            "values, or client.get(x.__dask_graph__(), keys, sync=False) for futures"
        )
    return TypeError(
        f"{call} takes futures, as submit and map return them, and iterables of these; not {kind}"
    )
