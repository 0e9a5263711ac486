"""The log of a recording: one line for each change of a task or a worker, for awk and people. Pure.

    #time_us category id change worker thread attempt seconds nbytes detail
    1795802400000000 worker w-0 present - - - - - nthreads=2
    1795802400250000 task inc-1 queued - - - - - alice
    1795802400251000 task inc-1 assigned w-0 - - - - -
    1795802400251500 task inc-1 running w-0 0 7 - - inc
    1795802400252500 task inc-1 finished w-0 0 7 0.001000 28 int

Each line has all columns, divided by one space; "-" stands for what is not known, or does not
apply. What divides words or lines in a name is written as in URLs, %20 for a space, and so is %.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...protocol.wire.keys import text_of
from ..insight.recording import Recorded, Recording, recording_of

COLUMNS: Final = (
    *("time_us", "category", "id", "change", "worker", "thread", "attempt", "seconds", "nbytes"),
    "detail",
)
HEADER: Final = "#" + " ".join(COLUMNS)
#: What awk would take for the end of a column or line, what a terminal would obey, and the escape.
_SPECIAL: Final = re.compile(r"[\s%\x00-\x20\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e]")
#: The order of lines of the same microsecond: a task is queued before it runs.
_ORDER: Final = {
    name: i
    for i, name in enumerate(
        (
            *("begin", "present", "joined", "back", "queued", "retried", "assigned", "kept"),
            *("running", "returned", "overdue", "finished", "raised", "paused", "noted", "lost"),
            *("failed", "cancelled", "away", "leaving", "gone", "end"),
        )
    )
}
#: Changes whose text names a worker.
_AT_WORKER: Final = frozenset(("assigned", "kept", "overdue", "returned"))

Row = tuple[int, int, str]


def transactions(records: Recorded) -> Iterator[str]:
    """Yield a log of what was recorded: a header, then one line for each change, in order of time.

    The columns are `time_us` (microseconds since 1970 by the scheduler's clock), `category`
    (task, worker, client, scheduler, recording), `id`, `change`, `worker`, `thread`, `attempt`,
    `seconds` (computed), `nbytes` (of the result) and `detail`; "-" = none. Lines have no
    newline.

    Args:
        records: a recording; or records of the task stream, of which only attempts are known.
    """
    recording = recording_of(records)
    yield HEADER
    for _, _, line in sorted([*_bounds(recording), *_of_members(recording), *_of_tasks(recording)]):
        yield line


def _row(
    time: float,
    category: str,
    name: str,
    change: str,
    worker: str = "",
    thread: int | None = None,
    attempt: int | None = None,
    seconds: float | None = None,
    nbytes: int | None = None,
    detail: str = "",
) -> Row:
    time_us = round(time * 1e6)
    words = (
        str(time_us),
        category,
        word(name),
        change,
        word(worker),
        "-" if thread is None else str(thread),
        "-" if attempt is None else str(attempt),
        "-" if seconds is None else f"{seconds:.6f}",
        "-" if nbytes is None else str(nbytes),
        word(detail),
    )
    return time_us, _ORDER.get(change, len(_ORDER)), " ".join(words)


def word(text: str) -> str:
    """Return a text as one word of a line; `urllib.parse.unquote` makes it the text again.

    An empty text is "-", so a text that is this itself is written as %2D.
    """
    if text in ("", "-"):
        return "%2D" if text else "-"
    return _SPECIAL.sub(_quoted, text)


def _quoted(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _bounds(recording: Recording) -> Iterator[Row]:
    yield _row(recording.begin, "recording", "", "begin")
    yield _row(
        recording.end, "recording", "", "end", detail="; ".join(recording.lacks()) or "complete"
    )


def _of_members(recording: Recording) -> Iterator[Row]:
    for one in recording.members:
        detail = ",".join(f"{name}={value}" for name, value in one.facts.items())
        yield _row(one.time, one.category, one.name, one.change, detail=detail)


def _of_tasks(recording: Recording) -> Iterator[Row]:
    for change in recording.changes:
        worker, detail = ("", change.by)
        if change.change in _AT_WORKER:
            worker, detail = (change.by, "")
        for key in change.keys:
            yield _row(change.time, "task", key, change.change, worker, detail=detail)
    for one in recording.timings:
        key, at = text_of(one.key), (one.worker, one.thread, one.attempt)
        yield _row(one.start, "task", key, "running", *at, detail=one.function)
        seconds = max(one.stop - one.start - one.waited, 0.0)
        if one.is_failed:
            yield _row(one.stop, "task", key, "raised", *at, seconds, detail=one.type)
        else:
            yield _row(one.stop, "task", key, "finished", *at, seconds, one.nbytes, one.type)
