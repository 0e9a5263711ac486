"""Reports that grow while they wait: each is extended as long as it is the last in the out-box.

The shell takes the out-box whole, so the reports of many small events become one message with long
columns; the codec cuts a message that is too long.

A report costs time in three processes, and in this one it may take the interpreter from a task. So
the reports of a slot that goes on at once with a short task wait for those that follow, for some
multiple of what sending them takes (`Reporting`). A slot's reports do not wait if it rests, or
begins another client's tasks, or a task of unknown or long duration. Failures and answers do not
wait either. So no report waits that is the last for some time. The number of tasks in a report
makes no difference: a chain of very short tasks, each a chunk of its own, would wake the loop for
each few.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from ...protocol.wire.message import Message
from ...protocol.wire.messages import AttemptsFinished, ReplicasAdded
from .events import ChunkDone, WorkerEvent
from .tasks import Slot, WorkerTask

if TYPE_CHECKING:
    from .state import WorkerState

_Row = TypeVar("_Row")

#: A report may take one part in so many of the time for which reports wait. Its cost is measured
#: here; the scheduler and the client have about as much work with it, each.
WORTH: Final = 30
#: Reports wait no longer than this, seconds, and at least for the other one.
LONGEST_S: Final = 0.003
SHORTEST_S: Final = 0.0005


class Reporting:
    """Until when the messages in the out-box may wait."""

    __slots__ = ("cost_s", "is_urgent", "until")

    def __init__(self) -> None:
        #: The measured time from taking messages out of the out-box until they are written.
        self.cost_s = LONGEST_S / WORTH
        #: When the messages in the out-box are to be sent, on the clock of events; 0 = at once.
        self.until = 0.0
        #: What is in the out-box when this event has been handled must not wait.
        self.is_urgent = False

    def note_cost(self, cost_s: float) -> None:
        """Note how long the messages took that were sent last."""
        self.cost_s += (cost_s - self.cost_s) * 0.1

    @property
    def patience_s(self) -> float:
        """For how long reports wait."""
        return min(max(self.cost_s * WORTH, SHORTEST_S), LONGEST_S)


def decide_wait(state: WorkerState, n_before: int, event: WorkerEvent) -> None:
    """Decide, after an event, until when the out-box may wait; `n_before` messages did already."""
    reporting = state.reporting
    if not n_before:
        reporting.until = state.now + reporting.patience_s
    elif not reporting.until:
        reporting.is_urgent = False
        return
    if reporting.is_urgent or state.is_leaving or not _is_patient(state, n_before, event):
        reporting.until = 0.0
        reporting.is_urgent = False


def _is_patient(state: WorkerState, n_before: int, event: WorkerEvent) -> bool:
    """Return whether the messages of an event may wait, and are sent with later ones."""
    if len(state.idle) == state.n_seats:
        return False
    if event.__class__ is ChunkDone and not _goes_on(state, event):
        return False
    sent, patient = state.to_scheduler, state.features.patient
    return all(sent[i].__class__ in patient for i in range(n_before, len(sent)))


def _goes_on(state: WorkerState, event: ChunkDone) -> bool:
    """Return whether the slot will report more of the same client soon."""
    slot = state.slots[event.slot]
    if not slot.busy:
        return False
    chunk = slot.chunk
    if not chunk:
        return not event.finished  # it has begun with the last task of its chunk
    first = chunk[0]
    if event.attempts:
        reported = state.by_attempt.get(event.attempts[-1])
        if reported is None or reported.client != first.client:
            return False
    return 0.0 < first.function.estimate_us <= LONGEST_S * 1e6


def sparse(rows: Iterable[_Row], nothing: _Row) -> list[_Row]:
    """Return an optional column of a message, which is empty if each row has nothing."""
    column = list(rows)
    return column if any(row != nothing for row in column) else []


def report_finished(to_scheduler: list[Message], event: ChunkDone, slot: Slot) -> None:
    """Report values that are in the store now. The event's columns become the message's."""
    n = len(event.attempts)
    queued_us = [slot.queued_us] * n
    last = to_scheduler[-1] if to_scheduler else None
    if last.__class__ is AttemptsFinished:
        if slot.fetched_us or last.fetched_us:
            # The column is empty, or has a row for each attempt.
            last.fetched_us += [0] * (len(last.attempts) - len(last.fetched_us))
            last.fetched_us += [slot.fetched_us] * n
        last.attempts += event.attempts
        last.nbytes += event.nbytes
        last.durations_us += event.durations_us
        last.results += event.results
        last.queued_us += queued_us
        return
    to_scheduler.append(
        AttemptsFinished(
            attempts=event.attempts,
            nbytes=event.nbytes,
            durations_us=event.durations_us,
            results=event.results,
            queued_us=queued_us,
            fetched_us=[slot.fetched_us] * n if slot.fetched_us else [],
        )
    )


def report_replica(to_scheduler: list[Message], copy: WorkerTask) -> None:
    """Report that a copy is here."""
    last = to_scheduler[-1] if to_scheduler else None
    if last.__class__ is ReplicasAdded:
        last.attempts.append(copy.attempt)
        last.keys.append(copy.key)
    else:
        to_scheduler.append(ReplicasAdded(attempts=[copy.attempt], keys=[copy.key]))
