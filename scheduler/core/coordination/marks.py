"""Marks: which client has set what, and in which order, so that it can be stated again.

What is set has a *place*: a variable, an event, a dataset, a path of metadata. Each setting has a
number, which is larger than all before it, also than those of earlier schedulers, and its answer
carries it. The client remembers what it has set, and states it to a later scheduler, which knows
nothing of it (`client/core/remembered.py`). Of those that are stated for one place the one with the
largest number counts, in whatever order they come, and what was set or deleted at this scheduler
counts before all of them.

A client is sent the numbers of its settings that do not hold any more because the place was set or
deleted again. When it is back after a lost connection it asks for them. It cannot ask for a number
that it has not read: an answer that is sent again does not carry one that does not hold any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ....protocol.wire import messages as m
from ....protocol.wire.messages.coordination import SUPERSEDED
from .arguments import bad
from .records import Call, Reply

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: The kind, and the name of the object or dataset, or the path of the metadata.
Place: TypeAlias = "tuple[str, ...]"

#: The most places that were deleted and are remembered, so that older settings do not come back.
MAX_DELETED: Final = 10_000
#: The most numbers in one message.
MAX_NUMBERS: Final = 10_000


class Mark:
    """The latest setting or deletion of a place, and the marks of the places below it."""

    __slots__ = ("below", "client_id", "number")

    def __init__(self, number: int = 0, client_id: str = "") -> None:
        self.number = number  #: 0 = there was none
        self.client_id = client_id  #: that has set it; "" = it was deleted
        self.below: dict[str, Mark] = {}


class Marks:
    """The marks of all places."""

    __slots__ = ("deleted", "last", "root", "set")

    def __init__(self) -> None:
        self.root = Mark()
        self.last = 0  #: the last number that was given
        #: {number: place} of all settings that hold
        self.set: dict[int, Place] = {}
        #: {place: None} that were deleted, the oldest first
        self.deleted: dict[Place, None] = {}


def marks_of(state: SchedulerState) -> Marks:
    """Return the marks of all places."""
    return state.record(Marks)


def note_set(state: SchedulerState, call: Call, place: Place) -> dict[str, Any]:
    """Note that a call sets a place; return what its answer says of that."""
    marks = marks_of(state)
    number = next_number(state)
    old = [mark for _, mark in _take_out(marks, place)]
    _put(marks, place, Mark(number, call.client.client_id))
    return {"number": number, **_notify(state, old, call.client)}


def note_deleted(state: SchedulerState, call: Call, place: Place) -> dict[str, Any]:
    """Note that a call deletes what is at a place and below it; return the same."""
    marks = marks_of(state)
    old = [mark for _, mark in _take_out(marks, place)]
    _put(marks, place, Mark(next_number(state)))
    if len(marks.deleted) > MAX_DELETED:
        _forget_deleted(marks, next(iter(marks.deleted)))
    return _notify(state, old, call.client)


def is_overtaken(state: SchedulerState, call: Call, place: Place) -> bool:
    """Return whether a place has a later setting or deletion than the one that a call states.

    Raises:
        OperationRefused: no scheduler has given such a number.
    """
    number = call.arguments.get("number")
    if type(number) is not int or not 0 < number < state.first_attempt:
        raise bad("number= is that of a setting at an earlier scheduler")
    if marks_of(state).set.get(number, place) != place:
        raise bad(f"number={number} is that of another setting")
    mark = marks_of(state).root
    for step in place:
        if step not in mark.below:
            return False
        mark = mark.below[step]
        if mark.number > number:
            return True
    return False


def overtaken(call: Call) -> Reply:
    """Return the answer to the statement of a setting that does not count."""
    return Reply({SUPERSEDED: [call.arguments["number"]]})


def later_below(state: SchedulerState, call: Call, place: Place) -> list[tuple[Place, bool]]:
    """Return what below a place is later than the setting that a call states, and what is deleted.

    In the order of the numbers; True = it is deleted.
    """
    mark = marks_of(state).root
    for step in place:
        if step not in mark.below:
            return []
        mark = mark.below[step]
    later = [(at, one) for at, one in _all(mark, place) if one.number > call.arguments["number"]]
    later.sort(key=lambda pair: pair[1].number)
    return [(at, not one.client_id) for at, one in later]


def note_stated(state: SchedulerState, call: Call, place: Place) -> Reply:
    """Note that the setting that a call states counts, and what is later below it; answer it."""
    marks, number = marks_of(state), call.arguments["number"]
    old = _take_out(marks, place)
    _put(marks, place, Mark(number, call.client.client_id))
    over = []
    for at, mark in old:
        if mark.number > number:
            _put(marks, at, mark)
        elif mark.number < number:
            over.append(mark)
    return Reply(_notify(state, over, call.client))


def send_superseded(state: SchedulerState, client: ClientHandle, numbers: object) -> None:
    """Send a client that is back those of its settings that do not hold any more."""
    if type(numbers) is list:
        known = marks_of(state).set
        _send(state, client, [n for n in numbers if type(n) is int and n not in known])


def without_superseded(state: SchedulerState, reply: Reply) -> Reply:
    """Return an answer that is sent again: without its number if that does not hold any more."""
    number = reply.info.get("number")
    if number is None or number in marks_of(state).set:
        return reply
    return reply._replace(info={k: v for k, v in reply.info.items() if k != "number"})


def next_number(state: SchedulerState) -> int:
    """Return a number that is larger than all before, also than those of earlier schedulers."""
    marks = marks_of(state)
    marks.last = max(marks.last, state.first_attempt) + 1
    return marks.last


def note_restored(state: SchedulerState, place: Place, number: int, *, is_set: bool = True) -> None:
    """Note that a place has what an earlier scheduler has recorded under a number, or nothing.

    It counts as set by the journal, which is no client, and is told of nothing.
    """
    marks = marks_of(state)
    marks.last = max(marks.last, number)
    _take_out(marks, place)
    _put(marks, place, Mark(number, "the journal" if is_set else ""))


def _all(mark: Mark, place: Place) -> Iterator[tuple[Place, Mark]]:
    """Go through the marks at a place and below it."""
    left = [(place, mark)]
    while left:
        place, mark = left.pop()
        if mark.number:
            yield place, mark
        left += [((*place, step), below) for step, below in mark.below.items()]


def _take_out(marks: Marks, place: Place) -> list[tuple[Place, Mark]]:
    """Remove the marks at a place and below it, and return them. Another one is put there."""
    parent = marks.root
    for step in place[:-1]:
        parent = parent.below.setdefault(step, Mark())
    top = parent.below.pop(place[-1], None)
    if top is None:
        return []
    found = [*_all(top, place)]
    for at, mark in found:
        mark.below = {}
        marks.set.pop(mark.number, None)
        marks.deleted.pop(at, None)
    return found


def _put(marks: Marks, place: Place, mark: Mark) -> None:
    parent = marks.root
    for step in place[:-1]:
        parent = parent.below.setdefault(step, Mark())
    old = parent.below.get(place[-1])
    if old is not None:  # what is below was put first
        mark.below = old.below
    parent.below[place[-1]] = mark
    if mark.client_id:
        marks.set[mark.number] = place
    else:
        marks.deleted[place] = None


def _forget_deleted(marks: Marks, place: Place) -> None:
    del marks.deleted[place]
    path = [marks.root]
    for step in place:
        path.append(path[-1].below[step])
    path[-1].number = 0
    while len(path) > 1 and not (path[-1].number or path[-1].below):
        path.pop()
        del path[-1].below[place[len(path) - 1]]


def _notify(state: SchedulerState, marks: list[Mark], caller: ClientHandle) -> dict[str, Any]:
    """Send clients which of their settings do not hold any more; return those of the caller."""
    numbers: dict[str, list[int]] = {}
    for mark in marks:
        if mark.client_id:
            numbers.setdefault(mark.client_id, []).append(mark.number)
    own = numbers.pop(caller.client_id, [])
    for client_id, others in numbers.items():
        client = state.clients.get(client_id)
        if client is not None:
            _send(state, client, others)
    if len(own) > MAX_NUMBERS:
        _send(state, caller, own[MAX_NUMBERS:])
    return {SUPERSEDED: own[:MAX_NUMBERS]} if own else {}


def _send(state: SchedulerState, client: ClientHandle, numbers: list[int]) -> None:
    for i in range(0, len(numbers), MAX_NUMBERS):
        info = {SUPERSEDED: numbers[i : i + MAX_NUMBERS]}
        state.send_client(client, m.Operated(request=0, info=info))
