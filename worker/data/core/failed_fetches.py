"""Which failed fetches are logged: the first of a holder at once, later ones with their number.

A holder out of reach may be asked again many times. The pause until its next line grows, as that of
`protocol/deaths.py`. An answer of the holder ends the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....protocol.wording import lasting

#: Seconds until a holder is named again: at first, and at most.
FIRST_PAUSE_S: Final = 5.0
MOST_PAUSE_S: Final = 60.0
#: Holders that are counted apart; that which failed first is forgotten first.
MAX_HOLDERS: Final = 1000


@dataclass(slots=True)
class _Failing:
    """The failures of a holder."""

    #: when its last line was
    logged: float
    pause_s: float = FIRST_PAUSE_S
    #: how many of these there were since
    n_more: int = 0
    n: int = 1


class FetchFailureLog:
    """The holders that failed last time."""

    def __init__(self) -> None:
        self._by_holder: dict[str, _Failing] = {}

    def on_failed(self, holder: str, reason: str, now: float) -> tuple[str, str]:
        """Count a failure; return the level and the text of a line for the log, "" = none."""
        known = self._by_holder.get(holder)
        if known is None:
            while len(self._by_holder) >= MAX_HOLDERS:
                del self._by_holder[next(iter(self._by_holder))]
            self._by_holder[holder] = _Failing(now)
            return "INFO", f"cannot fetch from {holder}: {reason}"
        known.n += 1
        known.n_more += 1
        since_s = now - known.logged
        if since_s < known.pause_s:
            return "", ""
        text = (
            f"cannot fetch from {holder}: {reason}; {known.n_more} more fetches failed in "
            f"{lasting(since_s)}, {known.n} in all"
        )
        known.logged, known.n_more = now, 0
        known.pause_s = min(2 * known.pause_s, MOST_PAUSE_S)
        return "WARNING", text

    def on_answer(self, holder: str) -> tuple[str, str]:
        """End the count; return the level and the text of a line for the log, "" = none."""
        known = self._by_holder.pop(holder, None)
        if known is None or known.n == 1:
            return "", ""
        return "INFO", f"{holder} answers again, after {known.n} failed fetches"
