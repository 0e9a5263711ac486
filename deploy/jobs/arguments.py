"""The arguments of clusters whose workers come as jobs: each is checked, or chosen."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any, Final

from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import ConfigError

#: Numbers the clusters of this process that the user does not name.
_numbers = itertools.count(1)
#: What may be in names of jobs and files of all systems.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
#: `[days-]hours:minutes[:seconds]`.
_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?")


def check_text(value: Any, name: str) -> str:
    """Return a text that goes into a command or a script.

    Raises:
        TypeError: it is none.
        ConfigError: it has more than one line.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}= is a text, and {value!r} is of type {type(value).__name__}")
    if {"\n", "\0"} & {*value}:
        raise ConfigError(f"{value!r} has more than one line", name)
    return value


def texts_of(values: Any, name: str) -> list[str]:
    """Return a list of texts; one text stands for itself."""
    return [check_text(text, name) for text in ([values] if isinstance(values, str) else values)]


def choose_name(name: str | None, prefix: str) -> str:
    """Return the name; without one `prefix-<process>`, numbered from the second cluster on."""
    if name is None:
        number = next(_numbers)
        return f"{prefix}-{os.getpid()}" if number == 1 else f"{prefix}-{os.getpid()}-{number}"
    if not _NAME.fullmatch(check_text(name, "name")):
        text = f"{name!r} is no name of a job: letters, digits and -_. after a letter"
        raise ConfigError(text, "name")
    return name


def walltime_of(value: Duration) -> float:
    """Return the seconds of a time limit: a length of time, or `[days-]hours:minutes[:seconds]`."""
    if not isinstance(value, str) or ":" not in value:
        return seconds_of(value, "walltime", 1.0)
    found = _CLOCK.fullmatch(value.strip())
    if found is None:
        raise ConfigError(f"{value!r} is not hours:minutes:seconds, nor like '2h'", "walltime")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(seconds)


def lifetime_of(walltime_s: float | None, grace_s: float) -> float | None:
    """Return how long the workers of a job live, None = as long as they like.

    Raises:
        ConfigError: they have no time.
    """
    if walltime_s is None:
        return None
    if walltime_s < 3 * grace_s:
        raise ConfigError(
            f"{walltime_s:g} s leave the workers no time: they leave two grace periods of "
            f"{grace_s:g} s before the end; give a longer walltime= or a shorter grace=",
            "walltime",
        )
    return walltime_s - 2 * grace_s
