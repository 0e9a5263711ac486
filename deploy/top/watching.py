"""Reads the overview and the workers of a cluster again and again, over lost connections.

A shell. Each step asks for one overview, one page of workers, and what is new of the last hour,
whatever the number of workers, so that watching costs the scheduler about as little on 1 000
workers as on 10.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from ...protocol.errors import CommError, ConfigError, ProtocolError, QuestionFailed
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.finding import NoSchedulerFound
from ..http.viewer import Viewer
from ..overview.snapshot import Snapshot

_TIMEOUT_S: Final = 5.0


class OverviewReader:
    """The connection of one program that watches.

    Args:
        find: returns the connection file; called before each attempt to connect.
        clock: the time of rates, in seconds.
        reads_workers: whether workers and the last hour are asked for as well.
    """

    def __init__(
        self,
        find: Callable[[], ConnectionFile],
        clock: Callable[[], float],
        *,
        reads_workers: bool = True,
    ) -> None:
        self.snapshot = Snapshot()
        self.viewer: Viewer | None = None
        self._find = find
        self._clock = clock
        self._reads_workers = reads_workers
        self._page = ""
        #: The workers of the pages of this pass.
        self._seen: dict[str, dict[str, Any]] = {}

    async def step(self) -> Snapshot:
        """Ask for the next overview and page; an error is a part of the snapshot.

        Raises:
            WeftError: at the first step, the configuration is at fault, the token is not accepted,
                or the scheduler does not know these questions: waiting would not help.
        """
        try:
            await self._step()
        except (CommError, TimeoutError, ConfigError) as error:
            self.close()
            is_absent = isinstance(error, NoSchedulerFound) and not error.is_answered
            if not self.snapshot.overview and isinstance(error, ConfigError) and not is_absent:
                raise
            self.snapshot.down = str(error) or "the scheduler does not answer"
        except ProtocolError as error:
            self.close()
            if not self.snapshot.overview:
                raise
            self.snapshot.down = str(error)
        return self.snapshot

    async def _step(self) -> None:
        if self.viewer is None or self.viewer.closed.done():
            found = self._find()
            self.snapshot.address = found.addresses[0]
            viewer = Viewer(_TIMEOUT_S)
            await viewer.open(found.addresses[0], found.to_security(), _TIMEOUT_S)
            self.viewer = viewer
            self._page, self._seen = "", {}
        questions = [self._ask_overview(self.viewer)]
        if self._reads_workers:
            questions += [self._ask_workers(self.viewer), self._ask_history(self.viewer)]
        # All leave at once: questions that come together wake the scheduler once.
        await asyncio.gather(*questions)

    async def _ask_overview(self, viewer: Viewer) -> None:
        overview, _ = await viewer.ask_page("overview", "")
        self.snapshot.take(overview, self._clock())

    async def _ask_workers(self, viewer: Viewer) -> None:
        page, next_page = await viewer.ask_page("workers", self._page)
        self._take_page(page["workers"], next_page)

    async def _ask_history(self, viewer: Viewer) -> None:
        """Ask for what is new of the last hour, of a scheduler that keeps it."""
        history = self.snapshot.history
        with contextlib.suppress(QuestionFailed):
            # A page is named by the place up to which the last one was read.
            numbers, _ = await viewer.ask_page("history", history.cursor)
            history.take(numbers)

    def _take_page(self, workers: dict[str, dict[str, Any]], next_page: str) -> None:
        """Take a page of workers; those that no page of a whole pass has named are gone."""
        self._page = next_page
        self._seen |= workers
        self.snapshot.workers |= workers
        if not next_page:
            self.snapshot.workers, self._seen = self._seen, {}

    def close(self) -> None:
        """Close the connection."""
        if self.viewer is not None:
            self.viewer.close()
            self.viewer = None
