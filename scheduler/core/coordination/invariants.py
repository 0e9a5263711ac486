"""The invariants of coordination objects, by name; `validate.py` checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeGuard

from ....protocol.wire.messages.coordination import DATASET, METADATA, MULTILOCK, OWN_TOPIC
from ....protocol.wire.plain import size_of
from ..invariants.checking import unless
from .kinds import KINDS
from .leases import LeaseRecord
from .marks import Mark, Place, marks_of
from .recording import recorded_of
from .records import (
    AWAY,
    Call,
    DatasetsRecord,
    EventRecord,
    Holder,
    MetadataRecord,
    ObjectRecord,
    ObjectValue,
    QueueRecord,
    TopicEvent,
    TopicRecord,
    VariableRecord,
    objects_of,
)
from .topics import topics_of
from .values import values_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def _records(state: SchedulerState) -> Iterable[ObjectRecord]:
    return objects_of(state).records.values()


def _in_lanes(state: SchedulerState) -> Iterator[tuple[ObjectRecord, str, Call]]:
    for record in _records(state):
        for name, lane in record.lanes.items():
            for call in lane:
                yield record, name, call


def _waiting(state: SchedulerState) -> Iterator[Call]:
    for calls in objects_of(state).calls.values():
        yield from calls.waiting.values()


def _holders(state: SchedulerState) -> Iterator[tuple[ObjectRecord, Holder]]:
    for record in _records(state):
        if isinstance(record, LeaseRecord):
            for holder in record.holders:
                yield record, holder


def _idle(record: ObjectRecord) -> bool:
    if record.lanes:
        return False
    return not record.users if record.is_closed else KINDS[record.kind].is_idle(record)


def _servable(record: ObjectRecord) -> list[Call]:
    """Return the calls that wait although their turn has come."""
    lanes = [list(lane) for name, lane in record.lanes.items() if name != AWAY or record.is_closed]
    kind = KINDS[record.kind]
    if record.is_closed or kind.serve is None:
        lanes = [lane[:1] for lane in lanes]
    waiting = [call for lane in lanes for call in lane]
    if record.is_closed or kind.is_ready is None:
        return waiting
    return [call for call in waiting if kind.is_ready(record, call)]


def _uses(state: SchedulerState) -> Counter[ObjectValue]:
    """Count the places of each value."""
    n: Counter[ObjectValue] = Counter()
    for record in _records(state):
        if isinstance(record, QueueRecord):
            n.update(record.items)
        elif isinstance(record, VariableRecord) and record.value is not None:
            n[record.value] += 1
        elif isinstance(record, DatasetsRecord):
            n.update(record.values.values())
        elif isinstance(record, TopicRecord) and record.name != OWN_TOPIC:
            n.update(event.value for event in record.events)
    n.update(call.value for call in _waiting(state) if call.value is not None)
    n.update(recorded_of(state).writing.values())
    for calls in objects_of(state).calls.values():
        for _, reply in calls.answered.values():
            n.update(reply.values)
    return n


def _is_topic(record: ObjectRecord) -> TypeGuard[TopicRecord]:
    return isinstance(record, TopicRecord) and record.name != OWN_TOPIC


def _topics(state: SchedulerState) -> list[TopicRecord]:
    return [record for record in _records(state) if _is_topic(record)]


def _events(state: SchedulerState) -> list[tuple[TopicRecord, TopicEvent]]:
    return [(record, event) for record in _topics(state) for event in record.events]


def _marks(state: SchedulerState) -> list[tuple[Place, Mark]]:
    found: list[tuple[Place, Mark]] = []
    left: list[tuple[Place, Mark]] = [((), marks_of(state).root)]
    while left:
        place, mark = left.pop()
        found.append((place, mark))
        left += [((*place, step), below) for step, below in mark.below.items()]
    return found[1:]


def _is_set(state: SchedulerState, place: Place) -> bool:
    """Return whether there is something at the place of a setting."""
    records = objects_of(state).records
    if place[0] == DATASET:
        return any(place[1] in r.values for r in records.values() if isinstance(r, DatasetsRecord))
    if place[0] == METADATA:
        found: object = next(
            (r.tree for r in records.values() if isinstance(r, MetadataRecord)), None
        )
        for key in place[1:]:
            found = found.get(key, KeyError) if isinstance(found, dict) else KeyError
        return found is not KeyError
    record = records.get((place[0], place[1]))
    if isinstance(record, VariableRecord):
        return record.value is not None
    return isinstance(record, EventRecord) and record.is_set


def _size(record: MetadataRecord) -> int:
    return sum(len(key) + size_of(value) for key, value in record.tree.items())


def _miscounted_keys(state: SchedulerState) -> list[object]:
    n = Counter(key for value in _uses(state) for key in value.keys)
    known = values_of(state).n_uses
    return [(key, known.get(key), n[key]) for key in {**known, **n} if known.get(key) != n[key]]


def _strange_wants(state: SchedulerState) -> list[object]:
    values = values_of(state)
    return [
        task
        for task in values.keeper.wants
        if task.key not in values.n_uses
        or state.tasks.get(task.key) is not task
        or values.keeper not in task.wanted_by
    ]


#: {what holds: what breaks it}
OBJECT_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "coordination objects are filed by kind and name": lambda s: [
        r for key, r in objects_of(s).records.items() if key != (r.kind, r.name)
    ],
    "no coordination object is idle": lambda s: [r for r in _records(s) if _idle(r)],
    "a semaphore has at most as many leases as its limit": lambda s: [
        (r, len(r.holders))
        for r in _records(s)
        if isinstance(r, LeaseRecord) and r.kind != MULTILOCK and not len(r.holders) <= r.limit
    ],
    "the due turn of a limit is a deadline": lambda s: [
        r for r in _records(s) if r.due is not None and not r.due.is_pending
    ],
    "holders are leases of clients that use the object": lambda s: [
        (r, h) for r, h in _holders(s) if h.client not in r.users
    ],
    "each lock of a MultiLock is held by a holder with an owner": lambda s: [
        (r, name)
        for r in _records(s)
        if isinstance(r, LeaseRecord)
        for name, holder in r.taken.items()
        if holder not in r.holders
    ],
    "each owner of a MultiLock holds one of its locks": lambda s: [
        (r, holder)
        for r in _records(s)
        if isinstance(r, LeaseRecord) and r.kind == MULTILOCK
        for holder in r.holders
        if holder not in r.taken.values()
    ],
    "users of coordination objects are known clients, and have it among their records": lambda s: [
        (r, c)
        for r in _records(s)
        for c in r.users
        if s.clients.get(c.client_id) is not c or r not in objects_of(s).calls[c].records
    ],
    "clients with calls are known": lambda s: [
        c for c in objects_of(s).calls if s.clients.get(c.client_id) is not c
    ],
    "records of a client have it among their users": lambda s: [
        (c, r)
        for c, calls in objects_of(s).calls.items()
        for r in calls.records
        if c not in r.users or objects_of(s).records.get((r.kind, r.name)) is not r
    ],
    "no lane of a coordination object is empty": lambda s: [
        r for r in _records(s) if not all(r.lanes.values())
    ],
    "a call in a lane waits there, and its client has it": lambda s: [
        (r, call)
        for r, lane, call in _in_lanes(s)
        if call.record is not r
        or call.lane != lane
        or objects_of(s).calls[call.client].waiting.get(call.request) is not call
    ],
    "the calls of a lane are in the order in which they came": lambda s: [
        (r, name)
        for r in _records(s)
        for name, lane in r.lanes.items()
        if name != AWAY and [c.place for c in lane] != sorted(c.place for c in lane)
    ],
    "a call that is given something waits aside while its client is away": lambda s: [
        (r, call)
        for r, lane, call in _in_lanes(s)
        if (lane == AWAY)
        != (call.client.peer is None and KINDS[r.kind].operations[call.operation].gives)
    ],
    "waits files calls in lanes by the thread or task that waits": lambda s: [
        (waiter, call)
        for waiter, call in objects_of(s).waits.items()
        if call.record is None or call.waiter != waiter
    ],
    "a call that waits is in its lane, or put off": lambda s: [
        call
        for call in _waiting(s)
        if (call in objects_of(s).deferred) == (call.record is not None)
        or (call.record is not None and call not in call.record.lanes.get(call.lane, ()))
    ],
    "a call is not both answered and waiting": lambda s: [
        number
        for calls in objects_of(s).calls.values()
        for number in calls.waiting
        if number in calls.answered
    ],
    "calls are put off only while recovering": lambda s: unless(
        s.awaits_peers or not objects_of(s).deferred, objects_of(s).deferred
    ),
    "a call put off is one that waits": lambda s: [
        call
        for call in objects_of(s).deferred
        if objects_of(s).calls[call.client].waiting.get(call.request) is not call
    ],
    "a call with a time limit that waits in a lane has a deadline": lambda s: [
        call
        for _, _, call in _in_lanes(s)
        if (call.timeout is None) != (call.deadline is None)
        or (call.deadline is not None and not call.deadline.is_pending)
    ],
    "no call waits whose turn has come": lambda s: [
        (r, call) for r in _records(s) for call in _servable(r)
    ],
    "n_uses of a value counts its places": lambda s: [
        (value, value.n_uses, n) for value, n in _uses(s).items() if value.n_uses != n
    ],
    "durable values are filed by the numbers under which they are recorded": lambda s: sorted(
        recorded_of(s).places.keys()
        ^ {value.number for value in _uses(s) if value.number}
        ^ {n for r in _records(s) if isinstance(r, MetadataRecord) for n in r.durable.values()}
        ^ {r.number for r in _records(s) if isinstance(r, QueueRecord) and r.number}
    ),
    "kept bytes are the sum over the values": lambda s: unless(
        values_of(s).nbytes == sum(value.nbytes for value in _uses(s)), values_of(s).nbytes
    ),
    "the size of the metadata is the sum over its items": lambda s: [
        (r, r.nbytes) for r in _records(s) if isinstance(r, MetadataRecord) and r.nbytes != _size(r)
    ],
    "marks are filed by the number of what is set, and by the place of what is deleted": lambda s: (
        unless(
            marks_of(s).set == {k.number: p for p, k in _marks(s) if k.client_id}
            and marks_of(s).deleted.keys()
            == {p for p, k in _marks(s) if k.number and not k.client_id},
            marks_of(s).set,
        )
    ),
    "a mark without a number has marks below it": lambda s: [
        place for place, mark in _marks(s) if not (mark.number or mark.below)
    ],
    "what has the mark of a setting is there": lambda s: [
        place for place in marks_of(s).set.values() if not _is_set(s, place)
    ],
    "events of topics are filed in the order in which they came": lambda s: unless(
        {**topics_of(s).order} == {e.place: r for r, e in _events(s)},
        topics_of(s).order,
    ),
    "the size of a topic, and of all, is the sum over the events": lambda s: (
        [
            (r, r.nbytes)
            for r in _topics(s)
            if r.nbytes != sum(event.value.nbytes for event in r.events)
        ]
        + [n for n in [topics_of(s).nbytes] if n != sum(r.nbytes for r in _topics(s))]
    ),
    "topics with events are filed by name": lambda s: unless(
        topics_of(s).records == {r.name: r for r in _topics(s) if r.events},
        topics_of(s).records,
    ),
    "n_uses of a key counts the values with it": _miscounted_keys,
    "the keeper wants only tasks of values, and they know it": _strange_wants,
}
