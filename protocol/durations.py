"""Reads the times that users give: `timeout=30`, `"30s"`, `"15 min"`, `timedelta(minutes=15)`.

Every option, argument and setting that is a length of time is read by this module, so the same
values are right everywhere, and a wrong one is always an `InvalidDuration`.

| unit | names, in upper or lower case |
|---|---|
| nanosecond, microsecond, millisecond | `ns`, `us` or `µs`, `ms`, and the full names |
| second | `s`, `sec`, `second`; also a number without a unit |
| minute | `m`, `min`, `minute` |
| hour | `h`, `hr`, `hour` |
| day, week | `d`, `day`; `w`, `week` |

Names of two or more letters that are not abbreviations of SI may have an `s` at their end.
"""

from __future__ import annotations

import math
import numbers
import re
from typing import TYPE_CHECKING, Final, TypeAlias

from .errors import InvalidDuration

if TYPE_CHECKING:
    from datetime import timedelta

#: What users may give as a length of time.
Duration: TypeAlias = "float | str | timedelta"

_SECONDS: Final = {
    "": 1.0,
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    # The micro sign and the Greek letter look alike.
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_TEXT: Final = re.compile(
    r"\s*((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z\u00b5\u03bc]*)\s*"
)


def seconds_of(value: object, setting: str, least: float = 0.0) -> float:
    """Return the seconds of a length of time.

    Args:
        value: a number of seconds, a text with a number and a unit, or a `timedelta`.
        setting: its name for the user, as in `timeout`.
        least: the smallest allowed one.

    Raises:
        InvalidDuration: it is none of these, not a number, or less than `least`.
    """
    seconds = _read(value)
    if not seconds >= least:  # NaN is not
        is_read = not math.isnan(seconds)
        why = f"less than {least:g}{' s' * (least > 0)}" if is_read else "not a time"
        # An option of the command line is a text.
        comma, other = (" or", "") if setting.startswith("--") else (",", " or a timedelta")
        raise InvalidDuration(
            f"{value!r:.80} is {why}; give seconds (30){comma} a text with a unit "
            f"('500ms', '30s', '15 min', '2h', '7 days'){other}",
            setting,
        )
    return seconds


def seconds_or_none(value: object, setting: str) -> float | None:
    """Return the seconds of a time to wait, None for no limit: for None, and for infinity.

    Raises:
        InvalidDuration: see `seconds_of`.
    """
    if value is None:
        return None
    seconds = seconds_of(value, setting)
    return None if seconds == math.inf else seconds


def _read(value: object) -> float:
    """Return the seconds, NaN for what is no length of time."""
    kind: type = type(value)
    if kind is bool:
        return math.nan
    if kind is float or kind is int:
        return _to_float(value)
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        factor = _SECONDS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            return math.nan
        seconds = float(match[1]) * factor
        # Endless waits are asked for by None; a text with this many digits is a typing error.
        return seconds if seconds < math.inf else math.nan
    if kind.__name__ == "timedelta64":  # of numpy, which calls it an integer
        return float(value / kind(1, "s"))
    total_seconds = getattr(value, "total_seconds", None)
    if callable(total_seconds):
        return _to_float(total_seconds())
    if isinstance(value, numbers.Real):
        return _to_float(value)
    return math.nan


def _to_float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an int with more than 308 digits
        return math.nan


def moment_of(value: object, name: str) -> float:
    """Return a point in time as seconds since 1970; one without a time zone is local.

    Args:
        value: a datetime, or a text of ISO 8601.
        name: of the option, for errors.

    Raises:
        TypeError, ValueError: it is none.
    """
    from datetime import datetime

    text = "it is a datetime, or a text such as '2030-12-24 18:00'"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{name}={value!r:.80} is not a time; {text}") from None
    if not isinstance(value, datetime):
        raise TypeError(f"{name}= is not {type(value).__name__}; {text}")
    return value.timestamp()
