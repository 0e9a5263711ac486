"""Decides about the end of a worker process, and how the workers of a family are ended.

It does no I/O: the supervisor passes in its observations, with times, and acts.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...protocol.host.exits import describe_exit
from ...protocol.restart_pauses import RestartPauses
from ..packing import TERMINATE_FRACTION
from .exits import EXIT_CONFIG, EXIT_REFUSED

#: Exit code of the supervisor when a worker's configuration is at fault, as for wrong arguments.
_EXIT_USAGE: Final = 2


# --- The end of a worker --------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class WorkerExit:
    """The facts about a worker process that has ended.

    Attributes:
        code: its exit code, a negative one is a signal.
        lived_s: since its start.
        running: the attempts that it was executing.
        served: those whose results it was pickling or sending.
        verdict: the reason why the supervisor killed it; "" if it did not.
        crash: the reason why weft's own code failed in it; "" if it did not.
        refusal: the reason why the scheduler refused it, as far as known.
        fault: where its interpreter was when a signal like SIGSEGV ended it, as far as known.
        signal: the signal after which it left in order, although its program still needs it.
    """

    code: int
    lived_s: float
    running: list[int]
    served: list[int]
    verdict: str = ""
    crash: str = ""
    refusal: str = ""
    fault: str = ""
    signal: str = ""


@dataclass(slots=True)
class Retire:
    """The worker was asked to end, and is not started again."""


@dataclass(slots=True)
class StopFamily:
    """A new start would fail in the same way: the supervisor ends, with this exit code."""

    because: str
    exit_code: int
    #: Why the scheduler refused the worker; "" if it did not.
    refusal: str = ""


@dataclass(slots=True)
class Restart:
    """The worker died of `reason`; another one is started after `pause_s`."""

    reason: str
    pause_s: float


Outcome: TypeAlias = Retire | StopFamily | Restart


def judge(ended: WorkerExit, backoff: RestartPauses) -> Outcome:
    """Return the consequence of the end of a worker; `backoff` is of its place in the family."""
    code = ended.code
    if not ended.running:  # else the code may come from a task
        if code == 0 and not ended.signal:
            return Retire()
        if code == EXIT_CONFIG:
            return StopFamily("cannot run with its configuration", _EXIT_USAGE)
        if code == EXIT_REFUSED:
            refusal = ended.refusal or "the scheduler refused it"
            return StopFamily("was refused", EXIT_REFUSED, refusal)
    killer = ", by another process or the kernel's out-of-memory killer" if code == -9 else ""
    if code == 0 and ended.signal:
        end = f"it got {ended.signal}, from a task or another process"
    elif code < 0 and ended.fault:
        end = f"{describe_exit(code)} {ended.fault}"
    else:
        end = describe_exit(code) + killer
    reason = ended.verdict or ended.crash or end
    by_task = bool(ended.running or ended.served)
    return Restart(reason, backoff.died(ended.lived_s, by_task=by_task))


def memory_verdict(rss: int, limit: int) -> str:
    """Return why a worker of this resident size is killed; "" if it may go on. No limit is 0."""
    if not limit or rss <= TERMINATE_FRACTION * limit:
        return ""
    return f"memory limit: {rss / 1e9:.2f} of {limit / 1e9:.2f} GB, killed by the supervisor"


# --- The end of the family ------------------------------------------------------------------------


class Ending:
    """The signals that the family got, and their effect on its workers."""

    def __init__(self, grace_s: float, grace_period_s: float) -> None:
        """See `SupervisorConfig` for the two times."""
        self._grace_s = grace_s
        self._grace_period_s = grace_period_s
        self._n_signals = 0
        #: Workers may finish what they run.
        self._lets_finish = False

    def on_signal(self, number: int) -> bool:
        """Count a signal; return whether the workers are killed at once: it is the second one."""
        self._n_signals += 1
        self._lets_finish = (
            number == signal.SIGTERM and self._n_signals == 1 and self._grace_period_s > 0
        )
        return self._n_signals > 1

    def first_signal(self) -> int:
        """Return the signal to workers. SIGTERM lets those with a grace period use it."""
        is_urgent = self._grace_period_s > 0 and not self._lets_finish
        return int(signal.SIGINT if is_urgent else signal.SIGTERM)

    def patience_s(self) -> float:
        """Return how long workers may take before they are killed."""
        return self._grace_s + (self._grace_period_s if self._lets_finish else 0.0)
