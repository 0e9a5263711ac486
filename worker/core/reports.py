"""Reports that grow while they wait: each is extended as long as it is the last in the out-box.

The shell takes the out-box whole, so the reports of many small events become one message with long
columns; the codec cuts a message that is too long.
"""

from __future__ import annotations

from ...protocol.wire.message import Message
from ...protocol.wire.messages import AttemptsFinished, ReplicasAdded
from .events import ChunkDone
from .tasks import Slot, WorkerTask


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
