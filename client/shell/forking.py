"""Closes, in a forked child, the clients of its parent: their threads and loops are not there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine


def close_in_fork(engines: Iterable[Engine]) -> None:
    """Close inherited engines, and their clients, without a look at the parent's connections."""
    for engine in engines:
        address = engine.link.address if engine.link is not None else ""
        engine.is_closed = True
        engine.closed_text = (
            "the client belongs to the parent of this forked process; make another one here, by "
            f"weft.Client({address!r}), with security=cluster.security if that is a LocalCluster"
        )
        # No loop runs here: operations that are posted (releases, by finalizers) stay in the queue.
        engine._is_woken = True
        client = engine.client()
        if client is not None:
            client.status = "closed"
