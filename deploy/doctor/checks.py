"""The result of one check of `weft doctor`, and their list for display. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"
#: In the order of their weight.
LEVELS: Final = (OK, WARNING, FAILED)
_WIDTH: Final = 100
_INDENT: Final = " " * 24


class Finding(NamedTuple):
    """A line of the report."""

    level: str
    place: str  #: the process or machine that was looked at
    name: str
    text: str  #: what was found
    advice: str = ""  #: what to do; "" if nothing has to be done

    def to_plain(self) -> dict[str, str]:
        """Return it for programs."""
        return self._asdict()


def worst(checks: Iterable[Finding]) -> str:
    """Return the heaviest level."""
    return max((check.level for check in checks), key=LEVELS.index, default=OK)


def report(checks: list[Finding]) -> str:
    """Format checks for display: by place, in the order in which the places came."""
    lines: list[str] = []
    for place in dict.fromkeys(check.place for check in checks):
        lines.append(place)
        for check in checks:
            if check.place == place:
                lines += _wrap(f"  {check.level:8}  {check.name:11} ", check.text)
                lines += _wrap(f"{_INDENT[:-3]}-> ", check.advice) if check.advice else []
    numbers = [sum(check.level == level for check in checks) for level in LEVELS]
    lines.append(f"{numbers[0]} ok, {numbers[1]} with a warning, {numbers[2]} failed")
    return "\n".join(lines)


def _wrap(head: str, text: str) -> list[str]:
    """Break a line between words; a path, address or command of several words may be long."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(checks: list[Finding]) -> dict[str, Any]:
    """Return the whole report for programs."""
    return {"worst": worst(checks), "checks": [check.to_plain() for check in checks]}
