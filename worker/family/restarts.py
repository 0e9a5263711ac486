"""Decides about the end of a worker process, and how the workers of a family are ended.

A core: the supervisor passes in its observations, with times, and acts.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ...protocol.death_facts import DeathFacts
from ...protocol.deaths import OUT_OF_MEMORY
from ...protocol.host.exits import (
    EXIT_CONFIG,
    EXIT_NO_SCHEDULER,
    EXIT_REFUSED,
    describe_exit,
)
from ...protocol.reported import REQUESTED
from ...protocol.restarting import Restarting
from ..policy import TERMINATE_FRACTION

_GIB: Final = 1 << 30
_NO_OOM_KILL: Final = "its control group counts no out-of-memory kill"
#: Exit code of the supervisor when a worker's configuration is at fault, as for wrong arguments.
_EXIT_USAGE: Final = 2
#: Its exit code when no worker can start.
_EXIT_FAILED: Final = 1
#: Ends by other processes, which say nothing about the next start.
_FOREIGN: Final = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, EXIT_NO_SCHEDULER)


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
        signal: the signal after which it left in order, as far as known; the supervisor did not
            send it.
        may_leave: such a signal is the user's wish that the worker leaves: no program needs it.
        failure: the error that ended it, as far as known.
        has_joined: the scheduler had registered it.
        has_left: it has begun to end in order.
        is_oom_kill: the kernel's out-of-memory killer has ended it.
        facts: for the report of its death.
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
    may_leave: bool = False
    failure: str = ""
    has_joined: bool = False
    has_left: bool = False
    is_oom_kill: bool = False
    facts: DeathFacts = field(default_factory=DeathFacts)


@dataclass(slots=True)
class Retire:
    """The worker was asked to end, and is not started again."""


@dataclass(slots=True)
class StopFamily:
    """A new start would fail in the same way: the supervisor ends, with this exit code."""

    because: str
    exit_code: int
    #: Why the scheduler refused the worker, or none can start; "" for other causes.
    refusal: str = ""


@dataclass(slots=True)
class Restart:
    """The worker died of `reason`; another one is started after `pause_s`."""

    reason: str
    pause_s: float


Outcome: TypeAlias = Retire | StopFamily | Restart


def give_up(places: Collection[Restarting]) -> StopFamily | None:
    """Return the end of the family if no place has hope; the last one's reason is shown."""
    if not all(place.is_without_hope for place in places):
        return None
    *_, last = places
    text = (
        f"it ended {last.n_equal} times in a row before it had joined the cluster, each time for "
        f"the same reason: {last.reason}; remove its cause"
    )
    return StopFamily("cannot start", _EXIT_FAILED, text)


def judge(ended: WorkerExit, restarting: Restarting) -> Outcome:
    """Return the consequence of the end of a worker; `restarting` is of its place in the family.

    There "ready" means that the scheduler has registered a worker.
    """
    code = ended.code
    # Tasks run after a registration only.
    if ended.has_joined or ended.running or ended.served:
        restarting.was_ready = True
    if not ended.running:  # else the code may come from a task
        # Else the code may come from a plugin, or whatever else runs beside tasks.
        is_in_order = ended.has_left or not ended.has_joined
        if code == 0 and (ended.may_leave or not ended.signal) and is_in_order:
            return Retire()
        if code == EXIT_CONFIG:
            return StopFamily("cannot run with its configuration", _EXIT_USAGE)
        if code == EXIT_REFUSED:
            refusal = ended.refusal or "the scheduler refused it"
            return StopFamily("was refused", EXIT_REFUSED, refusal)
    if code == 0 and ended.signal and ended.has_left:
        return Restart(f"it left after {ended.signal}", 0.0)
    reason = ended.verdict or ended.crash or end_of(ended)
    is_foreign = bool(ended.verdict or ended.signal) or code in _FOREIGN
    by_task = bool(ended.running or ended.served)
    pause_s = restarting.died(ended.lived_s, reason, by_task=by_task, by_start=not is_foreign)
    return Restart(reason, pause_s)


def end_of(ended: WorkerExit) -> str:
    """Describe the end of a process for which its supervisor and its own code give no reason."""
    code = ended.code
    if ended.is_oom_kill:
        return OUT_OF_MEMORY
    if code == 0 and ended.signal:
        return f"it got {ended.signal}, from a task or another process"
    if code < 0 and ended.fault:
        return f"{describe_exit(code)} {ended.fault}"
    if code > 0 and ended.failure:
        return f"{describe_exit(code)}: {ended.failure}"
    if code == -signal.SIGKILL and ended.facts.n_oom_kills == 0:
        return f"{describe_exit(code)}, by another process: {_NO_OOM_KILL}"
    killer = ", by another process or the kernel's out-of-memory killer" if code == -9 else ""
    return describe_exit(code) + killer


def after_request(asked: str, ended: WorkerExit) -> str:
    """Return how a worker was lost that had been asked to leave for a reason; "" = it was not.

    It has left if it has begun to end in order, and cannot be lost if it had not joined.
    """
    if not ended.code or ended.has_left or not ended.has_joined:
        return ""
    if ended.code == -signal.SIGKILL and not ended.is_oom_kill:
        return f"{asked}; it had not left in time, and was killed"
    return f"{asked}; {ended.crash or end_of(ended)}"


def kind_of(ended: WorkerExit) -> str:
    """Return the sort of end, one of `reported.DEATHS`; `REQUESTED` = it has left, by a signal."""
    if not ended.code and ended.signal and ended.has_left:
        return REQUESTED
    if ended.verdict or ended.is_oom_kill:
        return "memory"
    if ended.crash:
        return "crash"
    return "signal" if ended.code < 0 or ended.signal else "exit"


def memory_verdict(rss: int, limit: int, terminate: float = TERMINATE_FRACTION) -> str:
    """Return why a worker of this resident size is killed; "" if it may go on. No limit is 0.

    `terminate` is the part of the limit above which it is killed, 0 = it never is.
    """
    if not limit or not terminate or rss <= terminate * limit:
        return ""
    unit, size = ("GiB", _GIB) if limit >= _GIB else ("MiB", _GIB >> 10)
    # Two decimals each: `protocol/deaths.py` counts texts that differ in such numbers as one cause.
    sizes = f"{rss / size:.2f} of {limit / size:.2f} {unit}"
    return f"memory limit: {sizes}, more than {100 * terminate:g} %, killed by the supervisor"


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
        """Count a signal; return whether the workers are killed at once: it is the second one.

        SIGTERM that comes twice within `repeats.REPEAT_S` counts once, in the spawner.
        """
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
