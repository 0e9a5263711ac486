"""Recognises a worker whose event loop is stuck; its supervisor reports it and does not kill it.

A loop that does not run is most often no fault: a task holds the interpreter lock while it
computes. Such a task uses the processor. A worker whose loop is silent and that uses next to no
processor time may never go on: a task sleeps or waits in C code with the lock, or threads wait for
each other. These cannot be told apart from outside, so the log gets the stacks of the worker, and
the user decides.

Time is counted in looks at the worker, not by the clock: a supervisor that was itself held up has
not seen the beats of that time.
"""

from __future__ import annotations

import signal
from typing import Final

#: Of one core: threads that wait for the interpreter lock wake up often, and take a few percent.
_BUSY: Final = 0.2
#: How often the loop of a worker beats.
BEAT_S: Final = 1.0
#: Makes a worker write its stack to the file beside the record of started attempts; 0 = cannot.
STACK_SIGNAL: Final = int(getattr(signal, "SIGUSR2", 0))
STACK_SUFFIX: Final = ".stack"


class SilenceWatch:
    """The observations of one worker process. Pure: the caller passes time and measurements in."""

    def __init__(self, silent_after_s: float) -> None:
        """Report after `silent_after_s` without a beat and without work."""
        self._silent_after_s = silent_after_s
        self._n_beats = 0
        self._cpu_s = 0.0
        self._is_reported = False
        #: Seconds in which it neither beat nor worked.
        self.silent_s = 0.0

    def look(self, n_beats: int, cpu_s: float, elapsed_s: float) -> bool:
        """Take in the measurements of one look; return whether to report it, once per silence.

        Args:
            n_beats: of its loop, since it started. A loop that has not beaten yet is not judged.
            cpu_s: processor time that it has used, since it started.
            elapsed_s: since the last look.
        """
        used_s = cpu_s - self._cpu_s
        self._cpu_s = cpu_s
        if n_beats != self._n_beats or not n_beats:
            self._n_beats = n_beats
            self._is_reported = False
            self.silent_s = 0.0
        elif used_s > _BUSY * elapsed_s:
            self.silent_s = 0.0
        else:
            self.silent_s += elapsed_s
        if self._is_reported or self.silent_s < self._silent_after_s:
            return False
        self._is_reported = True
        return True
