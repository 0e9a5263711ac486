"""Whether and when a process that ended is started again: one policy for all supervisors.

A core: a supervisor reports each end, and gets the pause before the next start, none at first, then
growing ones. Equal ends in a row, each soon after a start and before the process was ever ready,
mean that the next start would fail as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: A process that lived this long did not die because of the way it was started.
_SOUND_AFTER_S: Final = 60.0
#: The pauses after the second death in a row, and at most.
_FIRST_PAUSE_S: Final = 0.2
_MOST_PAUSE_S: Final = 30.0
#: More doublings than it takes to reach the longest pause.
_MAX_DOUBLINGS: Final = 20
#: After so many equal ends in a row before it was ready, a process is without hope.
_N_EQUAL: Final = 3


@dataclass(slots=True)
class Restarting:
    """The ends in a row of one process, each soon after its start."""

    #: It was ready once: what ends the later ones may pass.
    was_ready: bool = False
    n_deaths: int = 0
    #: Of the last one, and how many in a row had it.
    reason: str = ""
    n_equal: int = 0

    def died(
        self, lived_s: float, reason: str = "", *, by_task: bool = False, by_start: bool = True
    ) -> float:
        """Count an end, or a start that failed; return the pause before the next start.

        Args:
            lived_s: since its start.
            reason: of its end.
            by_task: a task caused it, which does not predict the next one.
            by_start: the way in which it was started may have caused it.
        """
        is_sound = lived_s > _SOUND_AFTER_S
        is_equal = reason == self.reason
        self.n_equal = (self.n_equal * is_equal + 1) if by_start and not is_sound else 0
        self.reason = reason
        self.n_deaths = 1 if by_task or is_sound else self.n_deaths + 1
        if self.n_deaths == 1:
            return 0.0
        doublings = min(self.n_deaths - 2, _MAX_DOUBLINGS)
        return min(_FIRST_PAUSE_S * 2.0**doublings, _MOST_PAUSE_S)

    @property
    def is_without_hope(self) -> bool:
        """Whether the next start is expected to fail as well."""
        return self.n_equal >= _N_EQUAL and not self.was_ready
