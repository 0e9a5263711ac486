"""The last hour as browsers see it: read from the scheduler once, whatever their number."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import aclosing
from typing import Final

from ..overview.history import ClusterHistory
from .viewer import Viewer
from .watching import SharedAnswer

#: Python refuses to read numbers of thousands of digits.
_POSITION: Final = re.compile("[0-9]{1,18}")


class HistoryWatch:
    """The samples that this process has read; nothing is asked for while no browser looks."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._reading = SharedAnswer(self._read)
        self.history = ClusterHistory()
        #: Positions of another process mean nothing here; nor do those of another scheduler.
        self._name = os.urandom(8).hex()
        #: the scheduler's time when it was read last, and the time here
        self._read_at = 0.0, 0.0

    async def read(self) -> ClusterHistory:
        """Return the samples up to now, or up to a second ago.

        Raises:
            TimeoutError, WeftError: the scheduler has not answered.
        """
        await self._reading.get()
        return self.history

    async def answer(self, after: str) -> bytes:
        """Return what has come since the answer whose `next` is `after`, as JSON; "" = all.

        Raises:
            TimeoutError, WeftError: the scheduler has not answered.
        """
        history = await self.read()
        name, _, position = after.partition(".")
        goes_on = name == self._name and _POSITION.fullmatch(position) is not None
        columns, end = history.samples.since(int(position) if goes_on else 0)
        unix_s, here_s = self._read_at
        answer = {
            "next": f"{self._name}.{end}",
            "goes_on": goes_on,
            "now": unix_s + time.monotonic() - here_s,
            "to_unix_s": history.to_unix_s,
            "columns": columns,
        }
        return json.dumps(answer, separators=(",", ":")).encode()

    async def _read(self) -> None:
        arguments = {"after": self.history.cursor}
        async with aclosing(self._viewer.ask("history", arguments)) as pages:
            async for page in pages:
                if page["is_new"]:
                    self._name = os.urandom(8).hex()
                self.history.take(page)
                self._read_at = page["now_unix_s"], time.monotonic()

    async def close(self) -> None:
        """End a reading that is under way."""
        await self._reading.close()
