"""The task stream as a client has it: pages of the scheduler's answers, made into records.

What is kept are the columns of the reports, about 200 bytes for an attempt; records of them, which
take five times as much, are made when they are asked for. At most `MAX_ROWS` attempts are kept, the
later ones are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import key_of
from ..shell.engine import Engine
from .asking import ask
from .attempt_timing import AttemptTiming

#: Attempts that one stream keeps.
MAX_ROWS: Final = 1_000_000


class StreamPages:
    """The part of the task stream that was read.

    Attributes:
        n_rows: attempts that are kept.
        n_missed: attempts that are not: the scheduler had forgotten them, or there were too many.
        has_gap: the scheduler was replaced by another one meanwhile.
        cursor: names the place up to which it was read.
        read_at: when it answered the last reading, seconds since 1970 by its clock, as all times.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_missed = 0
        self.has_gap = False
        self.read_at = 0.0
        self._reports: list[dict[str, Any]] = []
        self.cursor = ""

    async def read(self, engine: Engine, keep_s: float) -> None:
        """Read what has come since the last time, and have it recorded for `keep_s` from now.

        Raises:
            WeftError: see `ask`.
        """
        arguments = {"after": self.cursor, "keep_s": keep_s}
        is_first = True
        async for page in ask(engine, "task_stream", arguments):
            with reading("the scheduler"):
                if is_first:  # the further ones have what had ended by then
                    self.read_at = part_of(page, "now_unix_s", float)
                    is_first = False
                self._add(page)

    def skip(self) -> None:
        """Forget what was read; what comes later is read as before."""
        self._reports.clear()
        self.n_rows = self.n_missed = 0
        self.has_gap = False

    def drop_before(self, when: float) -> None:
        """Forget the reports whose attempts had all ended before this time."""
        self._reports = [
            one for one in self._reports if one["to_unix_s"] + max(one["ended_us"]) / 1e6 >= when
        ]
        self.n_rows = sum(len(one["keys"]) for one in self._reports)

    def keep_latest(self, n: int) -> None:
        """Forget the oldest reports but those of the latest attempts, about so many."""
        n_more = self.n_rows - n
        while n_more > 0 and len(self._reports) > 1:
            n_more -= len(self._reports.pop(0)["keys"])
        self.n_rows = sum(len(one["keys"]) for one in self._reports)

    def _add(self, page: dict[str, Any]) -> None:
        cursor = part_of(page, "cursor", str)
        epoch = cursor.partition(".")[0]
        self.has_gap |= bool(self.cursor) and not self.cursor.startswith(f"{epoch}.")
        self.cursor = cursor
        self.n_missed += part_of(page, "n_missed", int)
        for report in part_of(page, "reports", list):
            n = len(report["keys"])
            if self.n_rows + n > MAX_ROWS:
                self.n_missed += n
                continue
            report["to_unix_s"] = page["to_unix_s"] + report["offset_s"]
            self._reports.append(report)
            self.n_rows += n

    def timings(self) -> Iterator[AttemptTiming]:
        """Yield the attempts, report by report."""
        for report in self._reports:
            yield from _timings_in(report)


def _timings_in(report: dict[str, Any]) -> Iterator[AttemptTiming]:
    to_unix_s = report["to_unix_s"]
    worker, address, kinds = report["worker"], report["address"], report["kinds"]
    none = [0] * len(report["keys"])
    options = report.get("options") or [{}] * len(kinds)  # a scheduler may be older
    for row in zip(
        report["keys"],
        report["kind_of"],
        report["attempts"],
        report["ended_us"],
        report["durations_us"],
        report["threads"],
        report["nbytes"],
        report["types"],
        report["failed"] or none,
        report["waited_us"] or none,
        report["arrived_us"] or none,
        report["fetched_us"] or none,
        strict=True,
    ):
        key, kind, attempt, ended, duration, thread, nbytes, name, failed, waited, came, got = row
        if not key:
            continue  # the scheduler had taken it back
        function, span = kinds[kind]
        stop = to_unix_s + ended / 1e6
        yield AttemptTiming(
            key_of(key),
            function,
            tuple(span),
            worker,
            address,
            thread,
            attempt,
            bool(failed),
            name,
            nbytes,
            stop - (duration + waited) / 1e6,
            stop,
            waited / 1e6,
            (to_unix_s + came / 1e6, to_unix_s + got / 1e6) if got else None,
            options[kind],
        )
