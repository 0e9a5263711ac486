"""A client's cluster as the host of blocks: each is one task of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...graphs.blocks.host import BlockHost, Learned
from ..core.events import Watch
from ..shell.watchers import Wanting

if TYPE_CHECKING:
    from ..client import Client


class ClientHost(BlockHost):
    """The workers of a cluster; a handle is a future.

    Args:
        client: one that blocks.
        workers: names of those that may run blocks; None = all.
    """

    keeps_values = True
    look_s = 1.0

    def __init__(self, client: Client[Any], workers: list[str] | None = None) -> None:
        super().__init__(_learned_by(client))
        self._client = client
        self._workers = workers

    def submit(
        self, call: Callable[..., Any], arguments: Sequence[Any], workers: list[str] | None = None
    ) -> Any:
        """See `BlockHost`."""
        workers = self._workers if workers is None else workers
        return self._client.submit(call, *arguments, pure=False, workers=workers)

    def when_done(self, handle: Any, call: Callable[[], object] | None = None) -> None:
        """See `BlockHost`."""
        self._client._running().post(Watch(Wanting(call), [handle._state]))

    def result(self, handle: Any) -> Any:
        """See `BlockHost`."""
        return handle.result()

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """See `BlockHost`."""
        return list(self._client.gather(list(handles)))

    def look(self, blocks: Iterable[int]) -> None:
        """See `BlockHost`: a client hears of dead workers, and says when its cluster has ended."""
        self._client._running()

    def end(self, handles: Iterable[Any]) -> None:
        """See `BlockHost`: a call whose future is forgotten is not made any more."""


_learned: weakref.WeakKeyDictionary[Any, Learned] = weakref.WeakKeyDictionary()


def _learned_by(client: Any) -> Learned:
    """Return the record of a client, which is made, and subscribes, at its first graph."""
    learned = _learned.get(client)
    if learned is None:
        learned = _learned[client] = Learned(f"weft-blocks-{client.id}")
        on_report = learned.on_report
        client.subscribe_topic(learned.topic, lambda event: on_report(event[1]))
    return learned
