"""The latest log records of this process, kept for `weft logs` and `client.get_worker_logs`.

A ring is a handler of `logging`: it has what the process logs, of weft's own loggers and of users'
code, at the levels that the process logs at. It is bounded in bytes, and costs a few microseconds
per record.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Final

from ..ring import Ring

if TYPE_CHECKING:
    from .log_tail import LogTail

#: Bytes of the records that a process keeps, about.
MAX_NBYTES: Final = 1 << 20
#: A longer text is cut.
MAX_TEXT_CHARS: Final = 16 << 10
#: Bytes that a record takes beside its texts.
_RECORD_BYTES: Final = 200
#: Records, and characters of their texts, in one page of an answer.
_PAGE_RECORDS: Final = 200
_PAGE_CHARS: Final = 64 << 10

_LEVELS: Final = {
    name: getattr(logging, name)
    for name in ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}

#: A record: seconds since 1970, level, logger, text.
Row = tuple[float, str, str, str]


class LogRing(logging.Handler):
    """Keeps the latest records, and writes them to a file as well that outlives the process."""

    def __init__(self, max_nbytes: int = MAX_NBYTES, tail: LogTail | None = None) -> None:
        super().__init__()
        self._tail = tail
        self._ring: Ring[Row] = Ring(max_size=max_nbytes)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and drop the oldest ones beyond the limit. The handler's lock is held."""
        try:
            text = record.getMessage()
        except Exception as error:  # of user code: a wrong number of arguments, a failing __str__
            text = f"{record.msg!r} (its arguments cannot be formatted: {type(error).__name__})"
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if self._tail is not None:
            self._tail.write(record, text)
        if len(text) > MAX_TEXT_CHARS:
            text = f"{text[:MAX_TEXT_CHARS]} [...]"
        row = (record.created, record.levelname, record.name, text)
        self._ring.append(row, size=_RECORD_BYTES + len(record.name) + len(text))

    def page(
        self, n: int | None, page: str, *, since: int = 0, least: int = 0
    ) -> tuple[dict[str, Any], str]:
        """Return a page of the last `n` records (None = of all), oldest first.

        Records are numbered as they come. `end` of an answer is the number of the next one to come,
        for `since=` of the next question; `n_missed` records since then are dropped already.

        Args:
            n: how many.
            page: "", or the name of the next page.
            since: only records from this number on.
            least: only records of this level, a number of `logging`, or a higher one.

        Raises:
            ValueError: `page` is not the name of a page.
        """
        self.acquire()
        try:
            rows, n_gone = [*self._ring], self._ring.first
        finally:
            self.release()
        if page:
            first, end = (int(part) - n_gone for part in page.split("-"))
        else:
            end = len(rows)
            first = max(0, since - n_gone)
            left = len(rows) if n is None else n
            i = end
            while i > first and left > 0:
                i -= 1
                left -= _number_of(rows[i][1]) >= least
            first = i
        info: dict[str, Any] = {"records": [], "end": n_gone + end}
        if since and since < n_gone:
            info["n_missed"] = n_gone - since
        chars = 0
        for i in range(max(first, 0), max(end, 0)):
            row = rows[i]
            if _number_of(row[1]) < least:
                continue
            if len(info["records"]) >= _PAGE_RECORDS or chars > _PAGE_CHARS:
                return info, f"{n_gone + i}-{n_gone + end}"
            info["records"].append(list(row))
            chars += len(row[3])
        return info, ""


def _number_of(level: str) -> int:
    """Return the number of a level; one that has no name of its own is shown."""
    number = logging.getLevelName(level)
    return number if isinstance(number, int) else logging.CRITICAL


_ring: LogRing | None = None


def keep_latest(tail: LogTail | None = None) -> None:
    """Keep the records of this process from now on. For processes that are weft's own.

    A forked process begins with an empty ring. With a `tail` the last ones survive its SIGKILL.
    """
    global _ring  # noqa: PLW0603 - as the root logger, which it belongs to
    root = logging.getLogger()
    if _ring is not None:
        root.removeHandler(_ring)
    _ring = LogRing(tail=tail)
    root.addHandler(_ring)


def latest() -> LogRing | None:
    """Return the ring of this process; None if the process is not weft's own."""
    return _ring


def page_of_latest(arguments: dict[str, Any], page: str) -> tuple[dict[str, Any], str]:
    """Answer the question `logs` for this process.

    Raises:
        ValueError: an argument or the page is not valid.
    """
    n = arguments.get("n")
    if n is not None and (type(n) is not int or n < 0):
        raise ValueError("n= is a whole number >= 0")
    since = arguments.get("since", 0)
    if type(since) is not int or since < 0:
        raise ValueError("since= is a whole number >= 0")
    level = arguments.get("level", "NOTSET")
    if type(level) is not str or level not in _LEVELS:
        raise ValueError(f"level= is one of {', '.join(_LEVELS)}")
    if _ring is None:
        return {"records": [], "end": 0}, ""
    return _ring.page(n, page, since=since, least=_LEVELS[level])
