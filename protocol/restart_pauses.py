"""The pauses before a process that ended is started again: none at first, then growing ones.

A core.
"""

from __future__ import annotations

from typing import Final

#: A process that lived this long did not die because of the way it was started.
_SOUND_AFTER_S: Final = 60.0
#: The pauses after the second death in a row, and at most.
_FIRST_PAUSE_S: Final = 0.2
_MOST_PAUSE_S: Final = 30.0
#: More doublings than it takes to reach the longest pause.
_MAX_DOUBLINGS: Final = 20


class RestartPauses:
    """The deaths in a row of one process, each soon after its start."""

    __slots__ = ("n_deaths",)

    def __init__(self) -> None:
        self.n_deaths = 0

    def died(self, lived_s: float, *, by_task: bool = False) -> float:
        """Count a death, or a start that failed; return the pause before the next start.

        Args:
            lived_s: since its start.
            by_task: the death was caused by a task, and does not predict the next one.
        """
        is_sound = by_task or lived_s > _SOUND_AFTER_S
        self.n_deaths = 1 if is_sound else self.n_deaths + 1
        if self.n_deaths == 1:
            return 0.0
        doublings = min(self.n_deaths - 2, _MAX_DOUBLINGS)
        return min(_FIRST_PAUSE_S * 2.0**doublings, _MOST_PAUSE_S)
