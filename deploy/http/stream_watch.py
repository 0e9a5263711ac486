"""The task stream as browsers see it: read from the scheduler once, whatever their number.

A browser asks again and again, and gets what has come since its last question. While none asks,
nothing is asked of the scheduler either, and workers stop to report times some seconds later: no
task or timer would have to end. Chunks are made once. The latest are kept, so that a browser that
comes later sees what came before.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import aclosing
from typing import Any, Final

from ...protocol.attempt_columns import AttemptColumns, answer_of
from ...protocol.ring import Ring
from .viewer import Viewer
from .watching import SharedAnswer

#: The scheduler is read at most so often, and has times recorded for so long after each reading.
READS_S: Final = 0.5
KEEP_S: Final = 10.0
#: Pages that one reading takes; what is left comes with the next one, if it is still there.
MAX_PAGES: Final = 20
#: Attempts and bytes that are kept, and bytes of one answer, about.
MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 32 << 20
MAX_ANSWER: Final = 4 << 20
#: Python refuses to read numbers of thousands of digits.
_POSITION: Final = re.compile("[0-9]{1,18}")


class StreamWatch:
    """The latest part of the task stream."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._reading = SharedAnswer(self._read)
        self._reading.holds_s = READS_S
        #: Positions of another process mean nothing here.
        self._name = os.urandom(8).hex()
        #: chunks with the numbers of their rows
        self._chunks: Ring[tuple[bytes, int]] = Ring(MAX_ROWS, MAX_BYTES)
        self._cursor = ""
        self._n_missed = 0
        #: of the attempts that run now: host, worker, address, thread, key, function, start
        self._running: list[list[Any]] = []
        #: of values that went to disk or came back since their worker has reported attempts: host,
        #: worker, address, start, stop, bytes, whether they were read
        self._disk: list[list[Any]] = []
        #: the scheduler's time when it was read last, and the time here
        self._read_at = 0.0, 0.0

    async def answer(self, after: str) -> bytes:
        """Return what has come since the answer whose `next` is `after`; "" = all that is kept.

        Raises:
            TimeoutError, WeftError: the scheduler has not answered.
        """
        await self._reading.get()
        ring = self._chunks
        name, _, position = after.partition(".")
        goes_on = name == self._name and _POSITION.fullmatch(position) is not None
        wanted = min(int(position), ring.end) if goes_on else ring.first
        chunks: list[bytes] = []
        end = start = max(wanted, ring.first)
        n_left = MAX_ANSWER
        for first, (chunk, n_rows) in ring.since(start):
            if chunks and len(chunk) > n_left:
                break
            chunks.append(chunk)
            n_left -= len(chunk)
            end = first + n_rows
        unix_s, here_s = self._read_at
        head = {
            "next": f"{self._name}.{end}",
            # False: what the browser has is from another process.
            "goes_on": goes_on,
            "is_all": end >= ring.end,
            "now": unix_s + time.monotonic() - here_s,
            # Attempts that ended while nobody read, or too fast, since this process began.
            "n_missed": self._n_missed,
            "running": self._running,
            "disk": self._disk,
            # Attempts that were forgotten here before this browser asked for them.
            "n_late": start - wanted,
        }
        return answer_of(head, chunks)

    async def _read(self) -> None:
        """Read what has come since the last time.

        If a page does not come, those before it are kept: the next reading goes on behind them.
        """
        columns = AttemptColumns()
        try:
            await self._read_into(columns)
        finally:
            if columns.keys:
                chunk, n_rows = columns.to_bytes(), len(columns.keys)
                self._chunks.append((chunk, n_rows), n_rows, len(chunk))

    async def _read_into(self, columns: AttemptColumns) -> None:
        arguments = {"after": self._cursor, "keep_s": KEEP_S}
        n_pages = 0
        async with aclosing(self._viewer.ask("task_times", arguments)) as pages:
            async for page in pages:
                self._cursor = page["cursor"]
                self._n_missed += page["n_missed"]
                self._running = page.get("running", self._running)
                self._disk = page.get("disk", self._disk)
                self._read_at = page["now_unix_s"], time.monotonic()
                for report in page["reports"]:
                    columns.add(report, page["to_unix_s"] + report["offset_s"])
                n_pages += 1
                if n_pages == MAX_PAGES:
                    break

    async def close(self) -> None:
        """End a reading that is under way."""
        await self._reading.close()
