"""The last hour of a cluster, as its scheduler has sampled it. Pure.

The answers to the question `history` are taken one after the other: a reader asks for what is new
behind `cursor`. What only grows is a rate here: how much for each second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...protocol.samples import Samples

#: As in the scheduler.
MAX_SAMPLES: Final = 2400


class ClusterHistory:
    """The samples that are known."""

    def __init__(self) -> None:
        self.samples = Samples(("at_ms",), MAX_SAMPLES)
        #: of the last answer; "" = none
        self.cursor = ""
        #: makes times of the samples seconds since 1970
        self.to_unix_s = 0.0

    def take(self, info: Mapping[str, Any]) -> None:
        """Take the next answer, or page of an answer."""
        if info["is_new"]:
            self.samples = Samples([*info["columns"]], MAX_SAMPLES)
        self.samples.extend(info["columns"])
        self.cursor, self.to_unix_s = info["cursor"], info["to_unix_s"]

    def rates(self, name: str, n: int, seconds: float, *, unit: float = 1.0) -> list[float]:
        """Return the growth of a column for each second, in `n` parts of the last `seconds`."""
        ends = self._ends(name, n + 1, seconds / n)
        at = self._ends("at_ms", n + 1, seconds / n)
        found: list[float] = []
        rate = 0.0
        for i in range(len(ends) - 1, 0, -1):
            # Where there is no sample in a part, what has grown until the next one is of both.
            if at[i] > at[i - 1]:
                rate = max(ends[i] - ends[i - 1], 0) / unit / ((at[i] - at[i - 1]) / 1000)
            found.append(rate)
        return found[::-1]

    def levels(self, name: str, n: int, seconds: float) -> list[float]:
        """Return a column as it was at the end of each of `n` parts of the last `seconds`."""
        return [float(level) for level in self._ends(name, n, seconds / n)]

    @property
    def span_s(self) -> float:
        """The time between the first and the last sample, seconds."""
        at = self.samples.columns["at_ms"]
        return (at[-1] - at[0]) / 1000 if at else 0.0

    def _ends(self, name: str, n: int, step_s: float) -> list[int]:
        """Return the numbers of a column at `n` instants, so far apart, up to the last sample.

        Instants before the first sample are left out.
        """
        column, at = self.samples.columns.get(name), self.samples.columns["at_ms"]
        if not column:
            return []
        found: list[int] = []
        wanted = float(at[-1])
        i = len(at) - 1
        while len(found) < n and i >= 0:
            if at[i] <= wanted:
                found.append(column[i])
                wanted -= step_s * 1000
            else:
                i -= 1
        return found[::-1]


_LEVELS: Final = "▁▂▃▄▅▆▇█"


def spark_text(values: Sequence[float], n: int, most: float = 0.0) -> str:
    """Return a line of `n` characters for the latest values; blank where none is known.

    Args:
        values: oldest first.
        n: how many are shown.
        most: the value of the highest character, if no value is larger.
    """
    shown = values[-n:] if n > 0 else []
    top = max([*shown, most], default=0.0)
    last = len(_LEVELS) - 1
    text = "".join(_LEVELS[round(value / top * last) if top else 0] for value in shown)
    return text.rjust(max(n, 0))
