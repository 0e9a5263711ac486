"""Which of the two a call of a name of dask.distributed is for: weft, or dask.distributed itself.

In this order: the caller (dask.distributed's own code keeps its own), what is given (clients,
futures, collections), the task that the thread runs, the innermost `as_current`, and the clients
that are open; of these weft's come first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..client.shell.current import find_current, named_current
from ..client.shell.in_task import context_here
from ..protocol.errors import WeftError

_WEFT: Final = __name__.partition(".")[0]
_DASK: Final = "distributed"
_CONTAINERS: Final = (list, tuple, set, frozenset)


class Originals:
    """What dask.distributed has under names that are changed, as far as it is asked here."""

    def __init__(self, worker: Any, client: Any) -> None:
        self._get_worker: Callable[[], Any] = worker.get_worker
        self._futures_of: Callable[[Any], list[Any]] = client.futures_of
        self._current: Callable[..., Any] = client.Client.current

    def runs_task(self) -> bool:
        """Return whether the calling thread runs a task of dask.distributed."""
        try:
            self._get_worker()
        except ValueError:
            return False
        return True

    def names_client(self) -> bool:
        """Return whether an `as_current` of dask.distributed is in force."""
        try:
            self._current(allow_global=False)
        except ValueError:
            return False
        return True

    def has_futures(self, collection: Any) -> bool:
        """Return whether a collection holds futures of dask.distributed."""
        return bool(self._futures_of(collection))


#: Those of dask.distributed while its names are changed.
known_originals: Final[list[Originals]] = []


def is_for_weft(
    originals: Originals, caller: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a call is for weft.

    Args:
        originals: of dask.distributed.
        caller: the name of the calling module.
        args: of the call.
        kwargs: of the call.
    """
    if caller.partition(".")[0] == _DASK:
        return False
    owner = _owner_of(originals, (*args, *kwargs.values()))
    return owner == _WEFT if owner else is_weft_current(originals)


def is_weft_current(originals: Originals | None) -> bool:
    """Return whether a weft client is the current one, and none of dask.distributed before it."""
    if context_here() is not None:
        return True
    if originals is not None and originals.runs_task():
        return False
    if named_current() is not None:
        return True
    if originals is not None and originals.names_client():
        return False
    try:
        find_current()
    except WeftError:
        return False
    return True


def is_weft_here() -> bool:
    """Return whether a weft client is the current one, also where there is no dask.distributed."""
    return is_weft_current(next(iter(known_originals), None))


def caller_of(depth: int) -> str:
    """Return the name of the module of a calling frame."""
    name: str = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return name


def is_of_weft(value: object) -> bool:
    """Return whether the class of a value is one of weft's."""
    return _package_of(value) == _WEFT


def _package_of(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _owner_of(originals: Originals, values: Iterable[Any], depth: int = 2) -> str:
    """Return "weft" or "distributed" by the first value that belongs to one of them, else ""."""
    for value in values:
        package = _package_of(value)
        if package in (_WEFT, _DASK):
            return package
        if isinstance(value, type):
            continue
        if hasattr(value, "__dask_graph__") and originals.has_futures(value):
            return _DASK
        if depth and isinstance(value, (*_CONTAINERS, dict)):
            inner = value.values() if isinstance(value, dict) else value
            if owner := _owner_of(originals, inner, depth - 1):
                return owner
    return ""
