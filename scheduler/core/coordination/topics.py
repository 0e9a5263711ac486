"""Topics: events that clients log under a name, each with its time; the last ones are kept.

A subscription is a call that waits: it names the last event that its client has, and is answered as
soon as there are later ones, with all of them. So a client that is slow gets fewer and larger
answers, and may miss events, of which it gets the number.

The events of a topic are numbered. Numbers of a later scheduler, or of a topic that was forgotten
meanwhile, are larger, so that a client that waits does not miss the first ones.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.messages.coordination import OWN_TOPIC, TOO_LARGE, TOPIC
from .arguments import bad
from .records import (
    Call,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    OperationRefused,
    Reply,
    TopicEvent,
    TopicRecord,
    forget,
)
from .values import drop, use

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: The largest event.
MAX_EVENT_NBYTES: Final = 64 << 10
#: What one topic keeps, and all together; the oldest events are dropped first.
MAX_EVENTS: Final = 1_000
MAX_TOPIC_NBYTES: Final = 4 << 20
MAX_NBYTES: Final = 64 << 20
#: The most topics with events. A further one replaces that with the oldest event.
MAX_TOPICS: Final = 1_000
#: Seconds that are a time of an event.
_MAX_TIME_S: Final = 1e12


class Topics:
    """All events of all topics."""

    __slots__ = ("away", "is_own_due", "last", "nbytes", "order", "own", "records")

    def __init__(self) -> None:
        #: Of the scheduler, with its last events, whose bytes are not counted. It is in
        #: `Objects.records` as well while clients wait there.
        self.own = TopicRecord(TOPIC, OWN_TOPIC)
        self.own.events = deque(maxlen=MAX_EVENTS)
        #: {worker id}, in order: of those whose connection has ended and that may come back
        self.away: dict[str, None] = {}
        #: calls that wait for its events will be answered
        self.is_own_due = False
        #: {name: record} of all others with events
        self.records: dict[str, TopicRecord] = {}
        #: {number among all events: the topic of the event}, oldest first
        self.order: OrderedDict[int, TopicRecord] = OrderedDict()
        #: the last number among all events; it is at least that of each topic
        self.last = 0
        self.nbytes = 0  #: sum over the events


def topics_of(state: SchedulerState) -> Topics:
    """Return the events of all topics."""
    return state.record(Topics)


def append(state: SchedulerState, record: TopicRecord, event: TopicEvent) -> None:
    """Add an event, of which the numbers are set here; drop what is too much with it."""
    topics = topics_of(state)
    topics.last = max(topics.last, state.first_attempt) + 1
    if not record.last:
        record.before_first = record.last = topics.last - 1
    record.last += 1
    event = event._replace(number=record.last, place=topics.last)
    use(state, event.value)
    record.events.append(event)
    record.nbytes += event.value.nbytes
    topics.nbytes += event.value.nbytes
    topics.order[event.place] = record
    topics.records[record.name] = record
    while len(record.events) > MAX_EVENTS or record.nbytes > MAX_TOPIC_NBYTES:
        _drop_first(state, record)
    while topics.nbytes > MAX_NBYTES:
        _drop_first(state, next(iter(topics.order.values())))
    if len(topics.records) > MAX_TOPICS:
        oldest = next(iter(topics.order.values()))
        while oldest.events:
            _drop_first(state, oldest)


def _drop_first(state: SchedulerState, record: TopicRecord) -> None:
    topics = topics_of(state)
    event = record.events.popleft()
    record.nbytes -= event.value.nbytes
    topics.nbytes -= event.value.nbytes
    del topics.order[event.place]
    drop(state, event.value)
    if record.events:
        return
    del topics.records[record.name]
    if not record.lanes:
        forget(state, record)


def _make(call: Call) -> ObjectRecord:
    return TopicRecord(call.kind, call.name)


def _check_event(_record: TopicRecord, call: Call) -> None:
    value = call.value
    assert value is not None
    if call.name == OWN_TOPIC:
        raise bad(f"topic {OWN_TOPIC!r} is for the events of the scheduler; use another name")
    if value.keys:
        raise bad("an event has no futures in it; put them into a queue, a variable or a dataset")
    if value.nbytes > MAX_EVENT_NBYTES:
        raise OperationRefused(
            TOO_LARGE,
            f"the event takes {value.nbytes} bytes, and the limit is {MAX_EVENT_NBYTES}; large "
            "data belongs in the result of a task",
        )
    time = call.arguments.get("time")
    if type(time) is not float or not 0 <= time <= _MAX_TIME_S:
        raise bad("time= of an event is a number of seconds since 1970")


def _log(state: SchedulerState, record: TopicRecord, call: Call) -> Reply:
    assert call.value is not None
    append(state, record, TopicEvent(0, 0, call.arguments["time"], call.value))
    return Reply()


def _reply(record: TopicRecord, events: list[TopicEvent], **more: Any) -> Reply:
    info: dict[str, Any] = {
        "numbers": [event.number for event in events],
        "times": [event.time for event in events],
        **more,
    }
    if record.name == OWN_TOPIC:
        info["are_plain"] = True
    return Reply(info, tuple(event.value for event in events))


def _all(_state: SchedulerState, record: TopicRecord, _call: Call) -> Reply:
    return _reply(record, [*record.events])


def _last(state: SchedulerState, record: TopicRecord, _call: Call) -> Reply:
    last = record.last or max(topics_of(state).last, state.first_attempt)
    return Reply({"last": last})


def _names(state: SchedulerState, _record: TopicRecord, _call: Call) -> Reply:
    return Reply({"names": sorted([*topics_of(state).records, OWN_TOPIC])})


def _check_next(_record: TopicRecord, call: Call) -> None:
    after = call.arguments.get("after")
    if type(after) is not int or after < 0:
        raise bad("after= is the number of an event")


def _next(_state: SchedulerState, record: TopicRecord, call: Call) -> Reply | None:
    after: int = min(call.arguments["after"], record.last)
    if not record.events or after >= record.last:
        return None
    n = min(record.last - after, len(record.events))
    n_missed = record.last - max(after, record.before_first) - n
    events = [record.events[i] for i in range(len(record.events) - n, len(record.events))]
    return _reply(record, events, n_missed=max(n_missed, 0))


def _is_ready(record: TopicRecord, call: Call) -> bool:
    # Those that wait for the scheduler's own events get them later.
    if not record.events or record.name == OWN_TOPIC:
        return False
    return bool(call.arguments["after"] < record.last)


def _serve(state: SchedulerState, record: TopicRecord) -> list[tuple[Call, Reply]]:
    """Return the answers to all subscriptions that lack events."""
    found = []
    for call in [call for lane in record.lanes.values() for call in lane]:
        reply = _next(state, record, call)
        if reply is not None:
            found.append((call, reply))
    return found


def _drop(_record: TopicRecord, _client: ClientHandle) -> None:
    """Events stay when the client that has logged them is gone."""


TOPICS: Final = ObjectKind(
    TOPIC,
    _make,
    {
        "log": ObjectOperation(_log, check=_check_event, has_value=True),
        "all": ObjectOperation(_all, is_read=True),
        "last": ObjectOperation(_last, is_read=True),
        "names": ObjectOperation(_names, is_read=True),
        "next": ObjectOperation(_next, "next", check=_check_next, is_read=True),
    },
    _drop,
    lambda record: not record.events or record.name == OWN_TOPIC,
    _is_ready,
    serve=_serve,
)
