"""The stream of the scheduler's events: the topic "scheduler", which clients read and subscribe to.

No user code runs in the scheduler's process; a program that would watch it from there subscribes
instead, in any process. Events are plain maps, each with its kind as "event". The last ones are
kept; those that wait for events are answered once for all of one moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.plain import pack
from ..invariants.checking import unless
from . import operating
from .records import ObjectValue, TopicEvent
from .topics import topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..feature import Departure
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Of a longer text only the beginning is kept. No key is longer.
MAX_TEXT_CHARS: Final = 2000


def note(state: SchedulerState, event: str, facts: dict[str, Any]) -> None:
    """Add an event, and have it sent to those that wait."""
    topics = topics_of(state)
    record = topics.own
    if not record.last:
        record.before_first = record.last = state.first_attempt
    record.last += 1
    # The epoch is the time of the start, nanoseconds since 1970.
    time = state.epoch / 1e9 + (state.now - (state.now if state.started is None else state.started))
    # Names and texts come from peers, and may be long.
    short = {k: v[:MAX_TEXT_CHARS] if type(v) is str else v for k, v in facts.items()}
    value = ObjectValue(pack({"event": event, **short}), [])
    record.events.append(TopicEvent(record.last, 0, time, value))
    if record.lanes and not topics.is_own_due:
        topics.is_own_due = True
        state.call_after(0.0, _send)


def _send(state: SchedulerState) -> None:
    topics = topics_of(state)
    topics.is_own_due = False
    if topics.own.lanes:
        operating.serve(state, topics.own)


# -- workers that are away, back or leaving --------------------------------------------------------
def on_worker_away(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a connection has ended; a worker that is back is away until its inventory came."""
    away = topics_of(state).away
    if ws.peer not in state.roles and ws.worker_id not in away:
        away[ws.worker_id] = None
        state.report("worker-away", worker=ws.name)


def on_worker_connected(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a worker that was away has a connection again."""
    away = topics_of(state).away
    if ws.worker_id in away:
        del away[ws.worker_id]
        state.report("worker-back", worker=ws.name)


def on_worker_leaving(state: SchedulerState, ws: WorkerHandle) -> None:
    """Note that a worker gets no more tasks; of one that is gone at once, its end is the event."""
    if ws.is_leaving:
        state.report("worker-leaving", worker=ws.name, reason=ws.leaving_because)


def on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    """Forget that a worker was away."""
    topics_of(state).away.pop(ws.worker_id, None)


#: {what holds: what breaks it}
EVENT_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "workers that were reported away are those without a connection": lambda s: unless(
        {*topics_of(s).away} == {w.worker_id for w in s.workers.values() if w.peer not in s.roles},
        [*topics_of(s).away],
    ),
}
