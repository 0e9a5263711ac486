"""Recurring calls: `client.submit(f, cron="*/5 * * * *")`, and the future that gives their runs."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from ...protocol.durations import moment_of
from ...protocol.errors import InvalidSchedule
from ...protocol.recurrence import upcoming_ms
from ...protocol.wire.options import MISSED, OVERLAPS
from ..future import Future
from ..insight.asking import pages_of
from ..modes import Mode, OfMode, Result, waits
from ..shell.both_ways import result_of
from ..shell.current import future_of
from ..shell.short_tracebacks import short_tracebacks
from .call_options import NOT_GIVEN, option_of

if TYPE_CHECKING:
    from collections.abc import Callable


#: The options of a recurring call, in the order of `submit`.
KEYWORDS: Final = ("cron", "timezone", "until", "overlap", "missed")
#: Conditions that a recurring call cannot have: its times are those of `cron=`.
_OTHER_TIMES: Final = ("after", "start_at", "start_after", "ttl", "deadline")


class RecurringFuture(Future[Result, Mode]):
    """A recurring job, which `submit` returns for a call with `cron=`.

    The job ends with its last future, like any task, unless it is detached. It never has a result:
    each of its runs has one. `cancel()` ends it, and the runs that are under way; when no time is
    left, it is cancelled with that reason, and `runs` has the latest for as long as it is held.
    """

    __slots__ = ()

    def runs(self) -> Runs[Mode]:
        """Return an iterator of futures, one for each run, as they are made.

        It begins with the latest ten runs that have ended, and ends behind the last one of the
        job. In an asynchronous client it is for `async for`.

        Raises:
            QuestionFailed: a thousand others wait for the next run; while it goes on.
        """
        return Runs(self)

    @waits
    def next_time(self) -> datetime | None:
        """Return when the next run is planned, in UTC; None = the job has ended."""
        return result_of(self._engine, self._next_time)

    async def _next_time(self) -> datetime | None:
        info = await self._ask(0)
        when_ms = info.get("next_ms")
        return datetime.fromtimestamp(when_ms / 1000, timezone.utc) if when_ms else None

    @waits
    def last(self) -> Future[Result, Mode] | None:
        """Return the future of the latest run; None = there was none yet, or the job has ended."""
        return result_of(self._engine, self._last)

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
        engine = self._job._engine
        if engine.is_asynchronous and engine.is_own_thread:
            raise RuntimeError(
                "`for` would block the event loop that the runs need: use `async for`"
            )
        return self

    def __next__(self) -> Future[Any, Any]:
        with short_tracebacks:
            future = result_of(self._job._engine, self._next, asynchronous=False)
        if future is None:
            raise StopIteration
        return future

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


def recurring(
    func: Callable[..., Any], keywords: dict[str, Any], values: tuple[Any, ...]
) -> dict[str, Any] | None:
    """Return the option `cron` of a call, by the values of `KEYWORDS`; None = it is not recurring.

    What the function takes itself is added to its `keywords`.

    Raises:
        InvalidSchedule: the expression, the zone, the end or a policy is wrong.
        TypeError: there are such options, and no `cron=`.
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
    return read_times(cron, zone, until, overlap, missed)


def read_times(cron: Any, zone: Any, until: Any, overlap: Any, missed: Any) -> dict[str, Any]:
    """Return the option `cron` by its parts; None = as without it.

    Raises:
        InvalidSchedule: one of them is wrong.
    """
    for name, value in (("cron", cron), ("timezone", zone)):
        if not isinstance(value, (str, type(None))):
            raise InvalidSchedule(f"a text is expected, not {type(value).__name__}", name)
    now_ms = round(time.time() * 1000)
    until_ms = 0 if until is None else round(_until(until) * 1000)
    if until_ms and until_ms <= now_ms:
        raise InvalidSchedule(f"{until!r:.80} is over", "until")
    overlap, missed = overlap or "skip", missed or "one"
    for name, value, known in (("overlap", overlap, OVERLAPS), ("missed", missed, MISSED)):
        if value not in known:
            raise InvalidSchedule(f"it is one of {', '.join(known)}, not {value!r:.80}", name)
    found = {
        "expression": cron,
        "zone": zone or "UTC",
        "since_ms": now_ms,
        "until_ms": until_ms,
        "overlap": overlap,
        "missed": missed,
    }
    if upcoming_ms(found, now_ms) is None:
        raise InvalidSchedule(f"{cron!r} has no time before the end of the job", "cron")
    return found


def _until(value: Any) -> float:
    try:
        return moment_of(value, "until")
    except (TypeError, ValueError) as error:
        raise InvalidSchedule(f"{value!r:.80} is no point in time: {error}", "until") from None


def check_others(conditions: dict[str, Any], persist_to: object) -> None:
    """Refuse other times of a recurring call, and one file for the results of all runs.

    Raises:
        TypeError: there are some.
    """
    for name in _OTHER_TIMES:
        if conditions.get(name) is not None:
            raise TypeError(f"a call with cron= runs at its times: leave {name}= out")
    if persist_to is not None:
        raise TypeError(
            "persist_to= has equal calls read one result, and all runs of a call with cron= are "
            "equal: leave it out, and have the function write its files"
        )


def as_recurring(future: Future[Any, Any]) -> RecurringFuture[Any, Any]:
    """Return the future of a recurring job in the place of a plain one."""
    job = RecurringFuture[Any, Any](future._engine, future._state)
    future._is_released = True  # the new one is the handle of its state now
    return job
