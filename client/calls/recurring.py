"""Recurring calls: `client.submit(f, cron="*/5 * * * *")`, and the future that gives their runs."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from ...protocol.durations import moment_of
from ...protocol.errors import ClientClosed, InvalidSchedule
from ...protocol.recurrence import next_ms
from ...protocol.wire.options import MISSED, OVERLAPS
from ..future import Future
from ..insight.asking import pages_of
from ..modes import Mode, OfMode, Result, waits
from ..shell.current import future_of
from .call_options import NOT_GIVEN, option_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..client import Client

#: The options of a recurring call, in the order of `submit`.
KEYWORDS: Final = ("cron", "timezone", "until", "overlap", "missed")
#: Conditions that a recurring call cannot have: its times are those of `cron=`.
_OTHER_TIMES: Final = ("after", "start_at", "start_after", "ttl", "deadline")


class RecurringFuture(Future[Result, Mode]):
    """A recurring job, which `submit` returns for a call with `cron=`.

    The job ends with its last future, like any task, unless it is detached. It never has a result:
    each of its runs has one. `cancel()` ends it, and the runs that are under way; when no time is
    left, it is cancelled with that reason.
    """

    __slots__ = ()

    def runs(self) -> Runs[Mode]:
        """Return an iterator of futures, one for each run, as they are made.

        It begins with the latest ten runs that have ended, and ends with the job. In an
        asynchronous client it is for `async for`.
        """
        return Runs(self)

    @waits
    def next_time(self) -> datetime | None:
        """Return when the next run is planned, in UTC; None = the job has ended."""
        return _run(self, self._next_time())  # type: ignore[no-any-return]

    async def _next_time(self) -> datetime | None:
        info = await self._ask(0)
        when_ms = info.get("next_ms")
        return datetime.fromtimestamp(when_ms / 1000, timezone.utc) if when_ms else None

    @waits
    def last(self) -> Future[Result, Mode] | None:
        """Return the future of the latest run; None = there was none yet, or the job has ended."""
        return _run(self, self._last())  # type: ignore[no-any-return]

    async def _last(self) -> Future[Any, Any] | None:
        runs = (await self._ask(0)).get("runs")
        return future_of(self._engine, runs[-1][0]) if runs else None

    async def _ask(self, after_ms: int, *, wait: bool = False) -> dict[str, Any]:
        question = {"key": self._state.key, "after_ms": after_ms, "wait": wait}
        (page,) = await pages_of(self._engine, "runs", question, None)
        return page


class Runs(OfMode[Mode]):
    """The runs of a recurring job, as they are made: for `for`, or for `async for`."""

    def __init__(self, job: RecurringFuture[Any, Any]) -> None:
        self._job = job
        self._after_ms = 0
        self._found: deque[tuple[str, int]] = deque()

    def __iter__(self) -> Runs[Mode]:
        return self

    def __next__(self) -> Future[Any, Any]:
        future = _run(self._job, self._next())
        if future is None:
            raise StopIteration
        return future  # type: ignore[no-any-return]

    def __aiter__(self) -> Runs[Mode]:
        return self

    async def __anext__(self) -> Future[Any, Any]:
        future = await self._next()
        if future is None:
            raise StopAsyncIteration
        return future

    async def _next(self) -> Future[Any, Any] | None:
        while not self._found:
            info = await self._job._ask(self._after_ms, wait=True)
            self._found += [(key, when_ms) for key, when_ms in info["runs"]]
            if not (self._found or info.get("is_there")):
                return None
        key, self._after_ms = self._found.popleft()
        return future_of(self._job._engine, key)


def _run(job: RecurringFuture[Any, Any], coroutine: Any) -> Any:
    client = job.client
    if client is None:
        coroutine.close()
        raise ClientClosed("the client of this recurring job is gone")
    return client._run(coroutine)


def recurring(
    func: Callable[..., Any], keywords: dict[str, Any], values: tuple[Any, ...]
) -> dict[str, Any] | None:
    """Return the option `cron` of a call, by the values of `KEYWORDS`; None = it is not recurring.

    What the function takes itself is added to its `keywords`.

    Raises:
        InvalidSchedule: the expression is wrong, the zone is not known, or the end is over.
        ValueError: `overlap=` or `missed=` is none of those, or there is no `cron=`.
    """
    cron, zone, until, overlap, missed = (
        None if value is NOT_GIVEN else option_of(func, name, value, keywords)
        for name, value in zip(KEYWORDS, values, strict=True)
    )
    if cron is None:
        for name, value in zip(KEYWORDS[1:], (zone, until, overlap, missed), strict=True):
            if value is not None:
                raise TypeError(f"{name}= belongs to cron=, which says when the call is to run")
        return None
    for name, value in (("cron", cron), ("timezone", zone)):
        if not isinstance(value, (str, type(None))):
            raise InvalidSchedule(f"a text is expected, not {type(value).__name__}", name)
    now_ms = round(time.time() * 1000)
    until_ms = 0 if until is None else round(_until(until) * 1000)
    if until_ms and until_ms <= now_ms:
        raise InvalidSchedule(f"{until!r:.80} is over", "until")
    zone = zone or "UTC"
    first_ms = next_ms(cron, zone, now_ms)
    if first_ms is None or (until_ms and first_ms > until_ms):
        raise InvalidSchedule(f"{cron!r} has no time before the end of the job", "cron")
    overlap, missed = overlap or "skip", missed or "one"
    for name, value, known in (("overlap", overlap, OVERLAPS), ("missed", missed, MISSED)):
        if value not in known:
            raise ValueError(f"{name}= is one of {', '.join(known)}, not {value!r:.80}")
    return {
        "expression": cron,
        "zone": zone,
        "since_ms": now_ms,
        "until_ms": until_ms,
        "overlap": overlap,
        "missed": missed,
    }


def _until(value: Any) -> float:
    try:
        return moment_of(value, "until")
    except (TypeError, ValueError) as error:
        raise InvalidSchedule(f"{value!r:.80} is no point in time: {error}", "until") from None


def check_times(conditions: dict[str, Any]) -> None:
    """Refuse other times of a recurring call.

    Raises:
        TypeError: there are some.
    """
    for name in _OTHER_TIMES:
        if conditions.get(name) is not None:
            raise TypeError(f"a call with cron= runs at its times: leave {name}= out")


def as_recurring(future: Future[Any, Any]) -> RecurringFuture[Any, Any]:
    """Return the future of a recurring job in the place of one of its task."""
    job = RecurringFuture[Any, Any](future._engine, future._state)
    future._is_released = True  # the new one is the handle of its state now
    return job
