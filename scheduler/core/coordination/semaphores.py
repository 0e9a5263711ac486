"""Locks and semaphores: at most `limit` leases at a time, in the order in which they are asked for.

A lease ends by `release`, or with the lease of its client's session. A client that comes back,
also to another scheduler, states the leases that it has (`restate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.held import (
    ALREADY_HELD,
    CLOSED,
    HOLD_LOST,
    LOCK,
    NOT_HELD,
    OTHER_LIMIT,
    SEMAPHORE,
)
from .arguments import count_in, text_in
from .records import (
    Blockers,
    Call,
    HeldKind,
    HeldOperation,
    HeldRecord,
    HeldRefusal,
    Holder,
    Reply,
    SemaphoreRecord,
)

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_GRANTED: Final = Reply({"granted": True})
_LATE: Final = Reply({"granted": False})


def _make(call: Call) -> HeldRecord:
    limit = 1 if call.kind == LOCK else count_in(call, "limit", 1, 1)
    return SemaphoreRecord(call.kind, call.name, limit)


def _create(_state: SchedulerState, record: SemaphoreRecord, call: Call) -> Reply:
    if record.is_closed:
        record.is_closed = False
        record.limit = count_in(call, "limit", 1, 1)
    _check_limit(record, call)
    return Reply()


def _check_limit(record: SemaphoreRecord, call: Call) -> None:
    limit = count_in(call, "limit", 1, record.limit)
    if limit != record.limit:
        raise HeldRefusal(
            OTHER_LIMIT,
            f"semaphore {record.name!r} has max_leases={record.limit}, and not {limit}: use the "
            "same number wherever it is used, or another name",
        )


def _check_acquire(record: SemaphoreRecord, call: Call) -> None:
    _check_limit(record, call)
    text_in(call, "lease")
    text_in(call, "owner")


def acquire(_state: SchedulerState, record: SemaphoreRecord, call: Call) -> Reply | None:
    """Grant a lease if there is one left."""
    if len(record.holders) >= record.limit:
        return None
    record.holders[Holder(call.client, call.arguments["lease"])] = call.arguments["owner"]
    return _GRANTED


def _check_wait(record: SemaphoreRecord, call: Call) -> None:
    """Refuse a wait without time limit of an owner for what it holds itself."""
    owner = call.arguments["owner"]
    n_own = sum(h.client is call.client and other == owner for h, other in record.holders.items())
    if n_own >= record.limit:
        what = "it" if record.limit == 1 else f"all {record.limit} of its leases"
        raise HeldRefusal(
            ALREADY_HELD,
            f"{record.kind} {record.name!r} would never be acquired: the thread or task that asks "
            f"for it holds {what} already; release it first, or give a timeout",
        )


def blockers(record: SemaphoreRecord, _call: Call) -> Blockers:
    """Return the owners of all leases, any of which may end."""
    return [(holder.client, owner) for holder, owner in record.holders.items()], False


def _undo_acquire(state: SchedulerState, record: SemaphoreRecord, call: Call, reply: Reply) -> None:
    if reply is _GRANTED:
        record.holders.pop(Holder(call.client, call.arguments["lease"]), None)


def _release(_state: SchedulerState, record: SemaphoreRecord, call: Call) -> Reply:
    if record.holders.pop(Holder(call.client, text_in(call, "lease")), None) is None:
        raise HeldRefusal(
            NOT_HELD,
            f"{record.kind} {record.name!r} is not held by this object, so it cannot release it",
        )
    return Reply()


def _restate(_state: SchedulerState, record: SemaphoreRecord, call: Call) -> Reply:
    holder = Holder(call.client, text_in(call, "lease"))
    owner = text_in(call, "owner")
    if holder not in record.holders:
        if record.is_closed or len(record.holders) >= record.limit:
            raise HeldRefusal(
                HOLD_LOST,
                f"{record.kind} {record.name!r} was given to another holder, because this client "
                "was away from the scheduler for longer than its lease",
            )
        record.holders[holder] = owner
    return Reply()


def _count(_state: SchedulerState, record: SemaphoreRecord, _call: Call) -> Reply:
    return Reply({"n": len(record.holders)})


def _close(_state: SchedulerState, record: SemaphoreRecord, _call: Call) -> Reply:
    record.holders.clear()
    record.is_closed = True
    return Reply()


def closed(record: HeldRecord) -> HeldRefusal:
    """Return the refusal of an operation on an object that was closed."""
    return HeldRefusal(
        CLOSED,
        f"{record.kind} {record.name!r} was closed; make an object of this name again to use it",
    )


def is_ready(record: SemaphoreRecord, _call: Call) -> bool:
    """Return whether there is a lease left."""
    return len(record.holders) < record.limit


def drop_leases(record: SemaphoreRecord, client: ClientHandle) -> None:
    """End the leases of a client."""
    for holder in [holder for holder in record.holders if holder.client is client]:
        del record.holders[holder]


#: The operations on leases.
LEASES: Final = {
    "acquire": HeldOperation(
        acquire,
        "acquire",
        _LATE,
        undo=_undo_acquire,
        check=_check_acquire,
        check_wait=_check_wait,
        is_deferred=True,
    ),
    "release": HeldOperation(_release),
    "restate": HeldOperation(_restate),
    "count": HeldOperation(_count, is_deferred=True, is_read=True),
}
LOCKS: Final = HeldKind(
    LOCK,
    _make,
    LEASES,
    drop_leases,
    lambda record: not record.holders,
    is_ready,
    blockers=blockers,
)
SEMAPHORES: Final = HeldKind(
    SEMAPHORE,
    _make,
    {
        **LEASES,
        "create": HeldOperation(_create, may_be_closed=True),
        "close": HeldOperation(_close, is_deferred=True),
    },
    drop_leases,
    lambda record: not record.holders and not record.users,
    is_ready,
    blockers=blockers,
)
