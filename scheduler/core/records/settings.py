"""What is configured of the kernel. Features have settings of their own, in their records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """The settings of a scheduler, times in seconds."""

    #: the wants of a client outlive its connection by this
    client_lease_s: float = 60.0
    heartbeat_s: float = 2.0
    #: a worker whose connection has ended has this long to come back; 0 = none
    away_s: float = 5.0
    #: a task under which more workers than this died is erred
    allowed_deaths: int = 3
    #: clients are notified of tasks that no worker may run after this
    unrunnable_after_s: float = 3.0
    #: functions that no task uses and that are kept
    max_idle_functions: int = 64


DEFAULTS: Final = KernelSettings()
