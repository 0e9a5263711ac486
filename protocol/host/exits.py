"""Exit codes of weft, and how a process ended. Pure.

The codes are those of sysexits.h, which user code rarely uses.
"""

from __future__ import annotations

import signal
from typing import Final

#: No scheduler was found, answered or came back in time (EX_UNAVAILABLE).
EXIT_NO_SCHEDULER: Final = 69
#: Weft's own code has failed in the process, because of a task or a bug (EX_SOFTWARE). A scheduler
#: ends with it as well.
EXIT_CRASHED: Final = 70
#: Another scheduler of the same cluster has taken over (EX_TEMPFAIL); `weft scheduler` only.
EXIT_TAKEN_OVER: Final = 75
#: The scheduler would refuse the same process again (EX_NOPERM).
EXIT_REFUSED: Final = 77
#: The worker's configuration is at fault (EX_CONFIG); `weft worker` ends with 2 then.
EXIT_CONFIG: Final = 78


def describe_exit(code: int | None) -> str:
    """Describe an exit code as `subprocess` has it: a negative one is a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
