"""Locks of which a call takes several at once, or none.

Calls are served in the order in which they came. A call that cannot be served reserves the names
that it asks for, so that later calls cannot overtake it for ever; calls for other names go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.held import ALREADY_HELD, HOLD_LOST, MULTILOCK, NOT_HELD
from .arguments import bad, count_in, names_in, text_in
from .records import (
    Blockers,
    Call,
    HeldKind,
    HeldOperation,
    HeldRecord,
    HeldRefusal,
    Holder,
    MultiLockRecord,
    Reply,
)

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_LANE: Final = "acquire"
_LATE: Final = Reply({"granted": False})


def _make(call: Call) -> HeldRecord:
    return MultiLockRecord(call.kind, call.name)


def _number_of(call: Call) -> int:
    """Return how many of its names a call asks for."""
    names = names_in(call)
    number = count_in(call, "number", 1, len(names))
    if number > len(names):
        raise bad(f"num_locks={number} is more than the {len(names)} names of this MultiLock")
    return number


def _check_acquire(_record: MultiLockRecord, call: Call) -> None:
    _number_of(call)
    text_in(call, "lease")
    text_in(call, "owner")


def _acquire(_state: SchedulerState, record: MultiLockRecord, call: Call) -> Reply | None:
    reserved = {name for other in record.lanes.get(_LANE, ()) for name in other.arguments["names"]}
    return _try(record, call, reserved)


def _try(record: MultiLockRecord, call: Call, reserved: set[str]) -> Reply | None:
    number, names = _number_of(call), call.arguments["names"]
    holder = Holder(call.client, call.arguments["lease"])
    free = [name for name in names if name not in record.holders and name not in reserved]
    if len(free) < number:
        return None
    # As many as were asked for; all of them if all were.
    taken = free[:number]
    record.holders.update(dict.fromkeys(taken, holder))
    record.owners[holder] = call.arguments["owner"]
    return Reply({"granted": True, "names": taken})


def _check_wait(record: MultiLockRecord, call: Call) -> None:
    owner, names = call.arguments["owner"], names_in(call)
    own = [
        name
        for name in names
        if (holder := record.holders.get(name)) is not None
        and holder.client is call.client
        and record.owners[holder] == owner
    ]
    if len(names) - len(own) < _number_of(call):
        raise HeldRefusal(
            ALREADY_HELD,
            f"this MultiLock would never be acquired: the thread or task that asks for it holds "
            f"lock {own[0]!r} already; release it first, or give a timeout",
        )


def _blockers(record: MultiLockRecord, call: Call) -> Blockers:
    names = names_in(call)
    holders = dict.fromkeys(record.holders[name] for name in names if name in record.holders)
    owners = [(holder.client, record.owners[holder]) for holder in holders]
    for other in record.lanes.get(_LANE, ()):
        if other is call:
            break
        if not set(names).isdisjoint(other.arguments["names"]):  # it has reserved one of them
            owners.append((other.client, other.arguments["owner"]))
    return owners, _number_of(call) == len(names)


def _serve(_state: SchedulerState, record: MultiLockRecord) -> list[tuple[Call, Reply]]:
    served: list[tuple[Call, Reply]] = []
    reserved: set[str] = set()
    for call in record.lanes.get(_LANE, ()):
        reply = _try(record, call, reserved)
        if reply is None:
            reserved.update(call.arguments["names"])
        else:
            served.append((call, reply))
    return served


def _is_ready(record: MultiLockRecord, call: Call) -> bool:
    if next(iter(record.lanes[call.lane])) is not call:
        return False  # those before it reserve names
    n_free = sum(name not in record.holders for name in call.arguments["names"])
    return bool(n_free >= call.arguments.get("number", 1))


def _give_back(record: MultiLockRecord, holder: Holder) -> bool:
    for name in [name for name, other in record.holders.items() if other == holder]:
        del record.holders[name]
    return record.owners.pop(holder, None) is not None


def _undo_acquire(
    _state: SchedulerState, record: MultiLockRecord, call: Call, _reply: Reply
) -> None:
    _give_back(record, Holder(call.client, call.arguments["lease"]))


def _release(_state: SchedulerState, record: MultiLockRecord, call: Call) -> Reply:
    if not _give_back(record, Holder(call.client, text_in(call, "lease"))):
        raise HeldRefusal(NOT_HELD, "this MultiLock is not held, so it cannot be released")
    return Reply()


def _restate(_state: SchedulerState, record: MultiLockRecord, call: Call) -> Reply:
    names = names_in(call)
    holder = Holder(call.client, text_in(call, "lease"))
    owner = text_in(call, "owner")
    taken = [name for name in names if record.holders.get(name, holder) != holder]
    if taken:
        raise HeldRefusal(
            HOLD_LOST,
            f"lock {taken[0]!r} of a MultiLock was given to another holder, because this client "
            "was away from the scheduler for longer than its lease",
        )
    record.holders.update(dict.fromkeys(names, holder))
    record.owners[holder] = owner
    return Reply()


def _drop(record: MultiLockRecord, client: ClientHandle) -> None:
    for holder in [holder for holder in record.owners if holder.client is client]:
        _give_back(record, holder)


MULTILOCKS: Final = HeldKind(
    MULTILOCK,
    _make,
    {
        "acquire": HeldOperation(
            _acquire,
            _LANE,
            _LATE,
            undo=_undo_acquire,
            check=_check_acquire,
            check_wait=_check_wait,
            is_deferred=True,
        ),
        "release": HeldOperation(_release),
        "restate": HeldOperation(_restate),
    },
    _drop,
    lambda record: not record.holders,
    _is_ready,
    blockers=_blockers,
    serve=_serve,
)
