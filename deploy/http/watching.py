"""The cluster as browsers see it: asked for once, whatever the number of browsers, and rates.

Nothing is asked while no browser looks. An answer holds for a second; that to `workers`, of one
page per 50 workers, so much longer that it takes the scheduler at most about 1 % of its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from ..overview.snapshot import ClusterRates
from .viewer import Viewer

T = TypeVar("T")

#: An answer holds for so long, and that to `workers` for so much longer per page.
HOLDS_S: Final = 1.0
HOLDS_PER_PAGE_S: Final = 0.1
#: If nobody has looked for so long, rates begin anew: the mean of that time is not the present one.
_PRESENT_S: Final = 30.0


class SharedAnswer(Generic[T]):
    """An answer that holds for a while, for all that ask meanwhile."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._task: asyncio.Future[T] | None = None
        self._ends = 0.0
        #: how long the next answer holds, seconds
        self.holds_s = HOLDS_S

    async def get(self) -> T:
        """Return the answer.

        Raises:
            TimeoutError, WeftError: there is none; that holds as long as an answer.
        """
        now = time.monotonic()
        if self._task is None or (self._task.done() and now >= self._ends):
            self._task = asyncio.ensure_future(self._ask())
            self._task.add_done_callback(self._note_end)
        return await asyncio.shield(self._task)

    def _note_end(self, task: asyncio.Future[T]) -> None:
        self._ends = time.monotonic() + self.holds_s
        if not task.cancelled():
            task.exception()  # those who asked may have gone

    async def close(self) -> None:
        """End a question that is under way."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


class ClusterWatch:
    """The latest answers of a scheduler, and the rates that follow from them."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        #: the answer to `overview`, the workers by address, and the first clients
        self.overview = SharedAnswer(self._ask_overview)
        self.workers = SharedAnswer(self._ask_workers)
        self.clients = SharedAnswer(self._ask_clients)
        self._observed_s = 0.0
        #: at the last overview
        self.rates = ClusterRates()
        #: when that was, for display
        self.as_of = ""

    async def _ask_overview(self) -> dict[str, Any]:
        info = await self._viewer.ask_all("overview")
        self.observe(info, time.monotonic())
        self.as_of = time.strftime("%H:%M:%S %Z")
        return info

    async def _ask_workers(self) -> dict[str, dict[str, Any]]:
        workers: dict[str, dict[str, Any]] = {}
        n_pages = 0
        async for page in self._viewer.ask("workers"):
            workers |= page["workers"]
            n_pages += 1
        self.workers.holds_s = HOLDS_S + HOLDS_PER_PAGE_S * n_pages
        return workers

    async def _ask_clients(self) -> list[dict[str, Any]]:
        page, _ = await self._viewer.ask_page("clients", "")
        clients: list[dict[str, Any]] = page["clients"]
        return clients

    def observe(self, info: dict[str, Any], now: float) -> None:
        """Take the rates from an overview."""
        if now - self._observed_s > _PRESENT_S:
            self.rates = ClusterRates()
        self._observed_s = now
        self.rates.observe(info, now)

    async def close(self) -> None:
        """End what is under way."""
        for answer in (self.overview, self.workers, self.clients):
            await answer.close()
