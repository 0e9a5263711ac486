"""The columns of functions that `weft status` and `weft top` have in common."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from ...protocol.tables import NARROW, WIDE, Column
from .wording import mean_time, short_number


def _count(heading: str, name: str, least_width: int = 0, style: str = "") -> Column:
    def emphasis(function: Any) -> str:
        return style if function[name] else ""

    return Column(heading, lambda f: short_number(f[name]), "n", least_width, emphasis)


COUNTS: Final = (
    Column("function", itemgetter("name"), "name"),
    _count("finished", "n_finished"),
    _count("failed", "n_failed", style="red"),
    _count("unfinished", "n_unfinished"),
    _count("running", "n_processing", NARROW),
)
MEAN_TIME: Final = Column("mean time", mean_time, "n", WIDE)
