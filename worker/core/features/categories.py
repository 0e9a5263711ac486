"""What attempts use, and the report of those that use more than their category gave them.

The shell looks now and then how much memory its process takes, as long as some attempts here are
measured: so others cost nothing. What the process takes beyond the least that was seen is that of
an attempt, if no other ran with it. A program has processes of its own, and `worker/commands`
notes what these use. Of other attempts that took some time, the thread of their slot notes what
it has used (`AttemptUsed`), as they end. The scheduler decides what becomes of an attempt that uses
too much. It is sent the report again, now and then and in each session, until it has dropped the
attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.columns import MAX_SIZE
from ....protocol.wire.messages import (
    OWN_PROCESS,
    SHARED,
    AssignTasks,
    AttemptsExceeded,
    AttemptsMeasured,
)
from ..events import ChunkDone, WorkerAction, WorkerEvent
from ..feature import WorkerFeature
from ..tasks import EXECUTING, AttemptUsage, Slot, usage_of
from ..transitions import UNFINISHED

if TYPE_CHECKING:
    from ..state import WorkerState

_NAME: Final = "categories"
#: An attempt that uses too much is reported again after this time, seconds.
REPORT_AGAIN_S: Final = 5.0


@dataclass(slots=True)
class MemorySeen(WorkerEvent):
    """The process takes so much memory, beside values, and these attempts run, measured or not.

    What uses too much as it ends (`is_over`) is not reported: its result is there.
    """

    nbytes: int
    running: Sequence[int]
    is_over: bool = False


@dataclass(slots=True)
class AttemptUsed(WorkerEvent):
    """An attempt has ended in its slot, whose thread has used that for it.

    The peak is the one of the process. The report of its end follows.
    """

    attempt: int
    cpu_us: int
    read_nbytes: int
    written_nbytes: int
    process_peak_nbytes: int


@dataclass(slots=True)
class WatchMemory(WorkerAction):
    """Look now and then how much memory the process takes, while any attempt is measured."""


class MeasuredAttempts(dict[int, AttemptUsage]):
    """{attempt: what it may use, and has used} of all unfinished tasks that are measured."""

    def __init__(self) -> None:
        super().__init__()
        #: the least that the process was seen to take beside values; 0 = it was never looked at
        self.least_nbytes = 0


def _note(state: WorkerState, message: AssignTasks) -> None:
    """Note what attempts that are assigned may use."""
    measured = state.record(MeasuredAttempts)
    state.after.append(WatchMemory())
    for attempt, nbytes in zip(message.attempts, message.allotted_nbytes, strict=True):
        task = state.by_attempt.get(attempt)
        if nbytes and task is not None and task.state in UNFINISHED:
            task.usage = measured.setdefault(attempt, AttemptUsage(nbytes))
    state.set_busy(_NAME, bool(measured))


def _on_memory_seen(state: WorkerState, event: MemorySeen) -> None:
    """Note what measured attempts use; report those that use too much."""
    measured = state.record(MeasuredAttempts)
    if event.nbytes and not 0 < measured.least_nbytes <= event.nbytes:
        measured.least_nbytes = event.nbytes
    exceeded: list[int] = []
    for attempt in event.running:
        usage = measured.get(attempt)
        if usage is None:
            continue
        if usage.kind != OWN_PROCESS:
            if len(event.running) > 1:
                usage.kind = SHARED  # from now on it is not known what is whose
                continue
            if usage.kind != SHARED and event.nbytes:
                used = max(event.nbytes - measured.least_nbytes, 1)
                usage.peak_nbytes = max(usage.peak_nbytes, used)
        is_too_much = usage.kind != SHARED and usage.peak_nbytes > usage.limit_nbytes
        if is_too_much and not event.is_over and usage.report_at <= state.now:
            usage.report_at = state.now + REPORT_AGAIN_S
            exceeded.append(attempt)
    if exceeded:
        used_nbytes = [min(measured[attempt].peak_nbytes, MAX_SIZE) for attempt in exceeded]
        state.to_scheduler.append(AttemptsExceeded(attempts=exceeded, used_nbytes=used_nbytes))


def _on_used(state: WorkerState, event: AttemptUsed) -> None:
    """Note what an attempt has used that has just ended."""
    measured = state.record(MeasuredAttempts)
    task = state.by_attempt.get(event.attempt)
    if task is None or task.state != EXECUTING:
        return  # it was dropped
    usage = measured.get(event.attempt)
    if usage is None:
        usage = measured[event.attempt] = usage_of(task)
        if usage.kind != OWN_PROCESS:
            usage.kind = SHARED
        state.set_busy(_NAME, True)
    if usage.kind == OWN_PROCESS:
        return
    if usage.kind == SHARED:
        usage.peak_nbytes = event.process_peak_nbytes
    usage.cpu_us = event.cpu_us
    usage.read_nbytes, usage.written_nbytes = event.read_nbytes, event.written_nbytes


def _report(state: WorkerState, event: ChunkDone, slot: Slot) -> None:
    """Report what attempts have used, before their ends are reported."""
    measured = state.record(MeasuredAttempts)
    ended = zip(event.attempts, event.durations_us, strict=True)
    failed = zip(event.failed_attempts, event.failed_durations_us, strict=True)
    rows = [(attempt, us, measured[attempt]) for attempt, us in ended if attempt in measured]
    n_with_results = len(rows)
    rows += [(attempt, us, measured[attempt]) for attempt, us in failed if attempt in measured]
    n_failed = len(rows) - n_with_results
    if rows:
        state.to_scheduler.append(
            AttemptsMeasured(
                attempts=[attempt for attempt, _, _ in rows],
                wall_us=[wall_us for _, wall_us, _ in rows],
                cpu_us=[usage.cpu_us for _, _, usage in rows],
                peaks_nbytes=[min(usage.peak_nbytes, MAX_SIZE) for _, _, usage in rows],
                read_nbytes=[usage.read_nbytes for _, _, usage in rows],
                written_nbytes=[usage.written_nbytes for _, _, usage in rows],
                kinds=[usage.kind for _, _, usage in rows],
                failed=[0] * n_with_results + [1] * n_failed if n_failed else [],
            )
        )


def _report_again(state: WorkerState) -> None:
    """Begin a session: what was reported in the last one may be lost."""
    for usage in state.record(MeasuredAttempts).values():
        usage.report_at = 0.0


def _drop(state: WorkerState, attempts: Sequence[int]) -> None:
    """Forget attempts that have ended."""
    measured = state.record(MeasuredAttempts)
    for attempt in attempts:
        measured.pop(attempt, None)
    state.set_busy(_NAME, bool(measured))


FEATURE: Final = WorkerFeature(
    name=_NAME,
    records=(MeasuredAttempts,),
    events={MemorySeen: _on_memory_seen, AttemptUsed: _on_used},
    invariants={
        "measured attempts are unfinished, and those that have used memory run": lambda state: (
            attempt
            for attempt, usage in state.record(MeasuredAttempts).items()
            if attempt not in state.by_attempt
            or state.by_attempt[attempt].state not in UNFINISHED
            or (usage.peak_nbytes and state.by_attempt[attempt].state != EXECUTING)
        ),
    },
    columns=(("allotted_nbytes", _note),),
    chunk_done=((_NAME, _report),),
    attempts_ended=((_NAME, _drop),),
    session_opening=(_report_again,),
)
