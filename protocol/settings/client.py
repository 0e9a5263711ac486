"""Settings of `weft.Client`, section `[client]`. An argument of the same name comes first."""

from __future__ import annotations

from typing import Final

from .kinds import Size, TimeSpan
from .setting import Setting

TIMEOUT: Final = Setting(
    "client.timeout",
    TimeSpan(),
    10.0,
    "Time to wait for the scheduler, also for one that is being started.",
    has_option=False,
)
RECONNECT_TIMEOUT: Final = Setting(
    "client.reconnect-timeout",
    TimeSpan(),
    60.0,
    "Time to reconnect after the scheduler was lost, before all pending futures fail.",
    has_option=False,
)
RECOVERY_MEMORY: Final = Setting(
    "client.recovery-memory",
    Size(),
    256 << 20,
    "Memory that a client may use to submit tasks again to a scheduler that was started again; "
    "what is beyond goes into a temporary file.",
    has_option=False,
)
