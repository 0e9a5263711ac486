"""What a worker sends to its scheduler when it is back: all that it has, row by row.

Nothing is forgotten when the connection to the scheduler breaks. The worker goes on running, and
its reports are dropped meanwhile, because the inventory of the next session proves what they would
have reported. A kept value proves that its attempt has finished; a missing row proves that the
attempt was given back. Only a failure leaves no trace of its own, so the latest ones are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import Failure
from ...protocol.wire.messages import (
    ASSIGNED,
    DROPPED,
    NO_HASH,
    RUNNING,
    InventoryEnd,
    InventoryFailed,
    InventoryFunctions,
    InventoryKept,
    InventoryUnfinished,
)
from . import leaving
from .events import SchedulerLost, SessionOpened
from .inputs import note_missing
from .reports import sparse
from .seats import report_of
from .tasks import EXECUTING, MEMORY, MISSING, WorkerTask
from .transitions import UNFINISHED

if TYPE_CHECKING:
    from .state import WorkerState

#: Failures are kept up to this many bytes, the latest ones.
MAX_FAILURES_NBYTES: Final = 16 << 20
#: Approximate memory of a failure beside its texts and bytes.
_OVERHEAD: Final = 500


class KeptFailures:
    """The failures of attempts that raised here, until the scheduler drops them."""

    __slots__ = ("by_attempt", "nbytes")

    def __init__(self) -> None:
        #: {attempt: (key, spec hash, failure, its bytes, exceptions before it)}, the oldest first
        self.by_attempt: dict[int, tuple[str, bytes, Failure, int, int]] = {}
        #: sum of their bytes; at most MAX_FAILURES_NBYTES, or that of one failure
        self.nbytes = 0

    def keep(self, task: WorkerTask, failure: Failure) -> None:
        """Keep one more; forget the oldest ones if there are too many."""
        nbytes = _OVERHEAD + sum(len(x) for x in failure if isinstance(x, (str, bytes)))
        entry = (task.key, task.spec_hash, failure, nbytes, task.n_raised)
        self.by_attempt[task.attempt] = entry
        self.nbytes += nbytes
        while self.nbytes > MAX_FAILURES_NBYTES and len(self.by_attempt) > 1:
            self.drop(next(iter(self.by_attempt)))

    def drop(self, attempt: int) -> None:
        """Forget one, if it is kept."""
        entry = self.by_attempt.pop(attempt, None)
        if entry is not None:
            self.nbytes -= entry[3]


def on_scheduler_lost(state: WorkerState, event: SchedulerLost) -> None:
    """Keep everything and go on. Reports that were not sent are not sent any more."""
    if state.is_leaving and not state.has_left:
        leaving.on_session_lost(state)
    _clear_reports(state)
    for session_lost in state.features.session_lost:
        session_lost(state)


def on_session_opened(state: WorkerState, event: SessionOpened) -> None:
    """Send the inventory, unless this is the first session.

    It replaces all reports that wait: those were made before the session began.
    """
    _clear_reports(state)
    if state.is_leaving and not state.has_left:
        leaving.ask(state)  # first: nothing may be assigned
    for session_opening in state.features.session_opening:
        session_opening(state)
    if not event.is_first:
        _send_inventory(state)
        for session_back in state.features.session_back:
            session_back(state)


def _clear_reports(state: WorkerState) -> None:
    state.to_scheduler.clear()
    state.reporting.is_urgent = True


def _send_inventory(state: WorkerState) -> None:
    kept: list[WorkerTask] = []
    unfinished: list[WorkerTask] = list(state.cancelled.values())
    for record in state.by_key.values():
        if record.state == MEMORY:
            kept.append(record)
        elif record.state in UNFINISHED:
            unfinished.append(record)
        elif record.state == MISSING:
            # The scheduler was asked where it is, and its answer may be lost.
            note_missing(state, record)
    unfinished.sort(key=lambda record: record.attempt)
    failed = state.failures.by_attempt
    # The scheduler waits for the end of each.
    state.owed = dict.fromkeys(state.cancelled)
    send = state.to_scheduler.append
    if kept:
        send(
            InventoryKept(
                keys=[record.key for record in kept],
                attempts=[record.attempt for record in kept],
                nbytes=[record.nbytes for record in kept],
                spec_hashes=sparse((record.spec_hash for record in kept), NO_HASH),
            )
        )
    if unfinished:
        send(
            InventoryUnfinished(
                keys=[record.key for record in unfinished],
                attempts=[record.attempt for record in unfinished],
                phases=[_phase(state, record) for record in unfinished],
                spec_hashes=sparse((record.spec_hash for record in unfinished), NO_HASH),
                n_raised=sparse((record.n_raised for record in unfinished), 0),
            )
        )
    if failed:
        send(
            InventoryFailed(
                keys=[entry[0] for entry in failed.values()],
                attempts=list(failed),
                failures=[entry[2] for entry in failed.values()],
                spec_hashes=sparse((entry[1] for entry in failed.values()), NO_HASH),
                n_raised=sparse((entry[4] for entry in failed.values()), 0),
            )
        )
    functions = [id for id, function in state.functions.items() if function.blob is not None]
    if functions:
        send(InventoryFunctions(functions=functions))
    send(InventoryEnd(n_rows=len(kept) + len(unfinished) + len(failed)))
    waiting = (*state.seats.blocked.values(), *state.returning.values())
    blocked = [attempt for attempt in waiting if attempt not in state.seats.parked]
    if blocked:
        send(report_of(state, blocked))


def _phase(state: WorkerState, record: WorkerTask) -> int:
    if record.attempt in state.cancelled:
        return DROPPED
    return RUNNING if record.state == EXECUTING else ASSIGNED
