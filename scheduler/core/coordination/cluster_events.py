"""The stream of the scheduler's events: the topic "scheduler", which clients read and subscribe to.

No user code runs in the scheduler's process; a program that would watch it from there subscribes
instead, in any process. Events are plain maps, each with its kind as "event". The last ones are
kept; those that wait for events are answered once for all of one moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.plain import pack
from . import operating
from .records import ObjectValue, TopicEvent
from .topics import topics_of

if TYPE_CHECKING:
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
