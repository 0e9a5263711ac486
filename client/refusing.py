"""Errors for arguments that should be futures and hold none, with advice on what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def is_collection(item: object) -> bool:
    """Whether this is a collection of dask; iterating over some of these computes them."""
    return hasattr(type(item), "__dask_graph__")


def items_of(futures: Any, call: str) -> Iterable[Any]:
    """Return what is to be iterated over for futures.

    Raises:
        TypeError: it is nothing of the kind.
    """
    if isinstance(futures, (str, bytes)) or is_collection(futures):
        raise no_future(futures, call)
    if not isinstance(futures, Iterable):
        raise no_future(futures, call)
    return futures


def no_future(item: object, call: str) -> TypeError:
    """Return the error for an argument that `call` cannot take, with advice."""
    kind = type(item).__name__
    if is_collection(item):
        return TypeError(
            f"{call} takes futures, and a {kind} of dask holds none: use x.compute() for its "
            "values, or client.get(x.__dask_graph__(), keys, sync=False) for futures"
        )
    return TypeError(
        f"{call} takes futures, as submit and map return them, and iterables of these; not {kind}"
    )
