"""The times of a recurring job: a pure function of its expression, its time zone and a time.

`cronsim` reads the expressions, as the cron of Debian does: five fields, or six with seconds first.
Where a clock is put forward, a job of a fixed time in the hour that is left out runs at its end.
Where it is put back, such a job runs once. What runs each hour, or more often, goes by time passed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .errors import InvalidSchedule

#: {short name: the expression}
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MAX_CHARS: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@functools.lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo | timezone:
    if name == "UTC":  # known without a table of zones
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        text = f"no time zone {name!r:.80} is known here; zones are named as in 'Europe/Berlin'"
        raise InvalidSchedule(text, "timezone") from error


def next_ms(expression: str, zone: str, after_ms: int) -> int | None:
    """Return the first time after another one, in ms since 1970; None = none in 50 years.

    Raises:
        InvalidSchedule: the expression is wrong, or the zone is not known.
    """
    if len(expression) > _MAX_CHARS:
        raise InvalidSchedule(f"an expression has at most {_MAX_CHARS} characters", "cron")
    fields = ALIASES.get(expression.strip().lower(), expression)
    tz = _zone(zone)
    try:
        after = _EPOCH + timedelta(milliseconds=after_ms)
        times = CronSim(fields, after.astimezone(tz))
        # Where a clock is put back, the first of the two equal times may be over.
        found = next(time for time in times if time.astimezone(timezone.utc) > after)
    except CronSimError as error:
        text = (
            f"{expression!r}: {str(error)[:1].lower()}{str(error)[1:]}; five fields are expected "
            f"(minute, hour, day, month, weekday), or six with seconds first, or one of "
            f"{', '.join(ALIASES)}"
        )
        raise InvalidSchedule(text, "cron") from None
    except (StopIteration, OverflowError):
        return None
    return (found - _EPOCH) // timedelta(milliseconds=1)


def utc_of(time_ms: int) -> str:
    """Return a time as keys of runs and texts have it, such as 2030-12-24T17:05:00+00:00."""
    return datetime.fromtimestamp(time_ms // 1000, timezone.utc).isoformat()


def ms_of(text: str) -> int | None:
    """Return the time that `utc_of` has made such a text of; None = it has made none."""
    try:
        time_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return time_ms if utc_of(time_ms) == text else None


def upcoming_ms(cron: Mapping[str, Any], after_ms: int) -> int | None:
    """Return the first time of a job after another one, by its option `cron`; None = there is none.

    Raises:
        InvalidSchedule: see `next_ms`.
    """
    time_ms = next_ms(cron["expression"], cron["zone"], after_ms)
    until_ms = cron["until_ms"]
    return None if time_ms is None or (until_ms and time_ms > until_ms) else time_ms


def schedule_of(cron: Mapping[str, Any]) -> str:
    """Return the option `cron` of a job as a text; without how far the job is."""
    return f"cron {sorted((name, value) for name, value in cron.items() if name != 'since_ms')}"


def due_ms(
    expression: str, zone: str, since_ms: int, last_ms: int, late_ms: int, missed: str, limit: int
) -> tuple[list[int], int]:
    """Return the times of runs that are to be made now, and up to which time none is left.

    A time that is not after `late_ms` was missed. Of those all are made, or the latest, or none. At
    most `limit` times are returned; then the others are left.

    Args:
        expression: of the job.
        zone: its time zone.
        since_ms: times up to this one have been dealt with.
        last_ms: the present time, or the end of the job if that is over.
        late_ms: how old a time may be and is made in any case; at most `last_ms`.
        missed: one of `MISSED` of `wire/options`.
        limit: the most times.
    """
    times: list[int] = []
    begin_ms = since_ms
    if missed != "all" and since_ms < late_ms:
        if missed == "one" and (latest_ms := _latest_ms(expression, zone, since_ms, late_ms)):
            times.append(latest_ms)
        begin_ms = late_ms
    while (time_ms := next_ms(expression, zone, begin_ms)) is not None and time_ms <= last_ms:
        if len(times) >= limit:
            return times, begin_ms
        times.append(time_ms)
        begin_ms = time_ms
    return times, max(last_ms, since_ms)


def _latest_ms(expression: str, zone: str, since_ms: int, until_ms: int) -> int | None:
    """Return the latest time after `since_ms` that is not after `until_ms`.

    Steps back from the end double until there is one within them; then the step is halved. So it
    takes about as many calls as the length of the step has digits, however many times are in it.
    """
    back_ms = 60_000
    while True:
        begin_ms = max(until_ms - back_ms, since_ms)
        found = next_ms(expression, zone, begin_ms)
        if found is not None and found <= until_ms:
            break
        if begin_ms <= since_ms:
            return None
        back_ms *= 2
    none_after_ms = until_ms
    while found < none_after_ms:
        middle_ms = (found + none_after_ms) // 2
        later_ms = next_ms(expression, zone, middle_ms)
        if later_ms is not None and later_ms <= until_ms:
            found = later_ms
        else:
            none_after_ms = middle_ms
    return found
