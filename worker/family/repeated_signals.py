"""Which SIGTERM is the same request as the one before. Pure.

`kill` of a process group, a batch system or a service manager sends SIGTERM to a process and to its
parent, which passes it on: the process gets it twice within milliseconds. The second one would end
running tasks, which the user did not ask for. Ctrl-C lets no task finish, so each one counts.
"""

from __future__ import annotations

import signal
from typing import Final

#: SIGTERM that comes again within this time of the first one is the same request.
REPEAT_S: Final = 1.0


class Repeats:
    """The time of the last SIGTERM that was a request of its own."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def is_repeat(self, number: int, now_s: float) -> bool:
        """Take a signal; return whether it is the same request as an earlier one."""
        if number != signal.SIGTERM:
            return False
        if self._since_s is not None and now_s - self._since_s < REPEAT_S:
            return True
        self._since_s = now_s
        return False
