"""The feature: running attempts are ended, and unstarted ones withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ..feature import Departure, Feature, LateQuestion, StateMetric
from ..invariants.checking import unless
from . import interrupted, interrupting, time_limits, withdrawing

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    interrupted.note_process_over(state, ws)
    withdrawing.withdrawals_of(state).pop(ws, None)


FEATURE: Final = Feature(
    name="interruption",
    records=(interrupted.Interruptions, withdrawing.Withdrawals),
    handlers={
        m.AttemptsOverdue: time_limits.on_overdue,
        m.WorkerHeldUp: time_limits.on_held_up,
        m.WithdrawKeys: withdrawing.on_withdraw,
        m.AttemptsWithdrawn: withdrawing.on_withdrawn,
    },
    orders={"restart": LateQuestion(interrupting.on_restart, Level.CLIENT)},
    metrics=(
        StateMetric(
            "attempts_interrupted_total",
            "Running attempts that were asked to end.",
            read=lambda state: interrupted.interruptions_of(state).n_interrupted,
        ),
        StateMetric(
            "attempts_timed_out_total",
            "Attempts that took longer than their timeout=.",
            read=lambda state: interrupted.interruptions_of(state).n_timed_out,
        ),
    ),
    invariants={
        "interrupted lists zombies of workers": lambda s: [
            (attempt, found)
            for attempt, found in interrupted.interruptions_of(s).items()
            if s.workers.get(found.ws.peer) is not found.ws or attempt not in found.ws.zombies
        ],
        "withdrawn attempts are of registered workers": lambda s: [
            ws
            for ws in withdrawing.withdrawals_of(s)
            if s.workers_by_id.get(ws.worker_id) is not ws
        ],
        "interruption is busy iff an attempt is interrupted": lambda s: unless(
            bool(interrupted.interruptions_of(s)) == (interrupted.Interruptions in s.busy), s.busy
        ),
    },
    running_cancelled=(interrupting.interrupt_cancelled,),
    dropped_ended=(interrupted.note_interruption_over,),
    worker_gone=(_on_worker_gone,),
)
