"""Functions of futures that take more than those of weft do."""

from __future__ import annotations

from typing import Any

from ..client import Future, futures_of
from ..client import wait as wait_for
from ..client.actors import ActorFuture

_FUTURES = (Future, ActorFuture)


def wait(fs: Any, timeout: Any = None, return_when: str = "ALL_COMPLETED") -> Any:
    """Do what `weft.wait` does, also for collections and nested containers with futures."""
    if isinstance(fs, (list, tuple, set)) and all(isinstance(item, _FUTURES) for item in fs):
        found: Any = fs
    else:
        found = fs if isinstance(fs, _FUTURES) else futures_of(fs)
    return wait_for(found, timeout, return_when)  # type: ignore[call-overload]
