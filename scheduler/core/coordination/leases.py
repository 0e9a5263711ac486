"""Leases: locks, semaphores, limits, and locks that are taken several at a time.

A lease is granted when there is room for it, and ends by `release`, or with the lease of its
client's session. A client that comes back, also to another scheduler, states the leases that it
has (`restate`). The kinds differ in what room is:

- At most `limit` leases at a time; a lock is a semaphore whose limit is 1.
- A limit has a rate as well. The latest grants are remembered, as many as the rate permits in a
  second (in more than that, if it is below 1): the next one comes when the oldest of them is a
  second old. So no second has more, wherever it begins, and a burst after a pause is no larger
  either. A rate such as 2.5 is rounded down, since no other grants would fit each second.
- A call for several locks takes so many of the names that it states, or none. One that cannot be
  served reserves its names, so that later calls cannot overtake it for ever; calls for other names
  go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import (
    ALREADY_HELD,
    HOLD_LOST,
    LIMIT,
    LOCK,
    MAX_RATE,
    MIN_RATE,
    MULTILOCK,
    NOT_HELD,
    OTHER_LIMIT,
    SEMAPHORE,
)
from .arguments import bad, count_in, names_in, text_in
from .records import (
    Blockers,
    Call,
    Holder,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    OperationRefused,
    Reply,
    objects_of,
)

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_LANE: Final = "acquire"
_LATE: Final = Reply({"granted": False})
#: A turn is due so much later, seconds: deadlines come early by rounding errors.
_MARGIN_S: Final = 2e-6


class LeaseRecord(ObjectRecord):
    """A lock, semaphore or limit; or all locks that are taken several at a time, which are one."""

    __slots__ = ("grants", "holders", "limit", "per_s", "taken")

    def __init__(self, kind: str, name: str, limit: int, per_s: float | None = None) -> None:
        super().__init__(kind, name)
        self.limit = limit  #: > 0
        self.per_s = per_s  #: None = this kind has no rate; 0 = any rate
        #: when the latest leases were granted, in waking time; at most as many as the rate permits
        self.grants: deque[float] = deque(maxlen=max(1, int(per_s or 0)))
        #: {holder: its owner}, the thread or task that must not wait for itself; at most `limit`,
        #: except of several locks
        self.holders: dict[Holder, str] = {}
        #: {name of one of several locks: its holder}; their holders are all and only `holders`
        self.taken: dict[str, Holder] = {}

    @property
    def has_room(self) -> bool:
        """True if there is a lease left."""
        return len(self.holders) < self.limit

    def pause_s(self, now: float) -> float:
        """Return for how long the rate permits no further lease, seconds."""
        n = self.grants.maxlen
        assert n is not None, "it is bounded"
        if not self.per_s or len(self.grants) < n:
            return 0.0
        # A rate below 1 has a longer window. A shorter one would let two of them into one second.
        return max(self.grants[0] + max(1.0, 1.0 / self.per_s) - now, 0.0)


# -- arguments -------------------------------------------------------------------------------------
def _make(call: Call) -> ObjectRecord:
    limit = 1 if call.kind in (LOCK, MULTILOCK) else count_in(call, "limit", 1, 1)
    rate = _rate_in(call) if call.kind == LIMIT else None
    return LeaseRecord(call.kind, call.name, limit, rate)


def _rate_in(call: Call) -> float:
    """Return the rate that a call states, 0 = none."""
    rate = call.arguments.get("per_s", 0)
    if rate == 0 and type(rate) in (int, float):
        return 0.0
    if type(rate) not in (int, float) or not MIN_RATE <= rate <= MAX_RATE:
        raise bad(f"per_s= is from {MIN_RATE:g} to {MAX_RATE:g}, not {str(rate)[:40]!r}")
    return float(rate)


def _number_of(call: Call) -> int:
    """Return how many of its names a call asks for."""
    names = names_in(call)
    number = count_in(call, "number", 1, len(names))
    if number > len(names):
        raise bad(f"num_locks={number} is more than the {len(names)} names of this MultiLock")
    return number


def _holder_in(call: Call) -> Holder:
    return Holder(call.client, text_in(call, "lease"))


def _check_limit(record: LeaseRecord, call: Call) -> None:
    limit = count_in(call, "limit", 1, record.limit)
    text = ""
    if record.per_s is not None:
        rate = _rate_in(call)
        if (limit, rate) != (record.limit, record.per_s):
            text = (
                f"limit {record.name!r} is {record.limit} at once and {record.per_s:g} per second "
                f"(0 = any rate), and not {limit} and {rate:g}: use the same numbers"
            )
    elif limit != record.limit:
        text = (
            f"semaphore {record.name!r} has max_leases={record.limit}, and not {limit}: use the "
            "same number"
        )
    if text:
        raise OperationRefused(OTHER_LIMIT, f"{text} wherever it is used, or another name")


def _check_acquire(record: LeaseRecord, call: Call) -> None:
    if record.kind == MULTILOCK:
        _number_of(call)
    else:
        _check_limit(record, call)
    text_in(call, "lease")
    text_in(call, "owner")


# -- operations ------------------------------------------------------------------------------------
def _create(_state: SchedulerState, record: LeaseRecord, call: Call) -> Reply:
    if record.is_closed:
        record.is_closed = False
        record.limit = count_in(call, "limit", 1, 1)
    _check_limit(record, call)
    return Reply()


def _acquire(state: SchedulerState, record: LeaseRecord, call: Call) -> Reply | None:
    """Grant a lease if there is room."""
    if record.kind == MULTILOCK:
        return _take_names(record, call, _names_of(record.lanes.get(_LANE, ())))
    now = state.awake_s
    if not record.has_room or record.pause_s(now) > 0.0:
        return None
    if record.per_s:
        record.grants.append(now)
    return _grant(record, call)


def _grant(record: LeaseRecord, call: Call, names: list[str] | None = None) -> Reply:
    record.holders[_holder_in(call)] = call.arguments["owner"]
    return Reply({"granted": True} if names is None else {"granted": True, "names": names})


def _names_of(calls: Iterable[Call]) -> set[str]:
    return {name for call in calls for name in call.arguments["names"]}


def _take_names(record: LeaseRecord, call: Call, reserved: set[str]) -> Reply | None:
    """Take as many of its names as a call asks for; all of them if that is all."""
    number, names = _number_of(call), call.arguments["names"]
    free = [name for name in names if name not in record.taken and name not in reserved][:number]
    if len(free) < number:
        return None
    record.taken.update(dict.fromkeys(free, _holder_in(call)))
    return _grant(record, call, free)


def _serve(_state: SchedulerState, record: LeaseRecord) -> list[tuple[Call, Reply]]:
    """Return the calls for several locks whose turn has come."""
    served: list[tuple[Call, Reply]] = []
    reserved: set[str] = set()
    for call in record.lanes.get(_LANE, ()):
        reply = _take_names(record, call, reserved)
        if reply is None:
            reserved.update(call.arguments["names"])
        else:
            served.append((call, reply))
    return served


def _check_wait(record: LeaseRecord, call: Call) -> None:
    """Refuse a wait without time limit of an owner for what it holds itself."""
    owner = call.arguments["owner"]
    all_own = record.holders.items()
    own = {h: None for h, other in all_own if h.client is call.client and other == owner}
    if record.kind == MULTILOCK:
        names = names_in(call)
        held = [name for name in names if record.taken.get(name) in own]
        is_endless, whole = len(names) - len(held) < _number_of(call), "this MultiLock"
        what = f"lock {held[0]!r}" if held else ""
    else:
        is_endless, whole = len(own) >= record.limit, f"{record.kind} {record.name!r}"
        what = "it" if record.limit == 1 else f"all {record.limit} of its leases"
    if is_endless:
        raise OperationRefused(
            ALREADY_HELD,
            f"{whole} would never be acquired: the thread or task that asks for it holds {what} "
            "already; release it first, or give a timeout",
        )


def _give_back(record: LeaseRecord, holder: Holder) -> bool:
    for name in [name for name, other in record.taken.items() if other == holder]:
        del record.taken[name]
    return record.holders.pop(holder, None) is not None


def _undo_acquire(_state: SchedulerState, record: LeaseRecord, call: Call, reply: Reply) -> None:
    if reply.info["granted"]:
        _give_back(record, _holder_in(call))


def _release(_state: SchedulerState, record: LeaseRecord, call: Call) -> Reply:
    if not _give_back(record, _holder_in(call)):
        raise OperationRefused(
            NOT_HELD,
            "this MultiLock is not held, so it cannot be released"
            if record.kind == MULTILOCK
            else f"{record.kind} {record.name!r} is not held by this object, so it cannot release "
            "it",
        )
    return Reply()


def _restate(state: SchedulerState, record: LeaseRecord, call: Call) -> Reply:
    names = names_in(call) if record.kind == MULTILOCK else []
    holder, owner = _holder_in(call), text_in(call, "owner")
    lost = [name for name in names if record.taken.get(name, holder) != holder]
    is_full = record.kind != MULTILOCK and not record.has_room
    if lost or (holder not in record.holders and (record.is_closed or is_full)):
        why = "this client was away from the scheduler for longer than its lease"
        if objects_of(state).calls[call.client].is_of_earlier:
            why = (
                "the scheduler was started again, and this client came back to it later than the "
                "new one waits for clients, or stated this after another one"
            )
        what = f"lock {lost[0]!r} of a MultiLock" if lost else f"{record.kind} {record.name!r}"
        raise OperationRefused(
            HOLD_LOST,
            f"{what} was given to another holder, because {why}",
        )
    record.taken.update(dict.fromkeys(names, holder))
    record.holders.setdefault(holder, owner)
    return Reply()


def _count(_state: SchedulerState, record: LeaseRecord, _call: Call) -> Reply:
    return Reply({"n": len(record.holders)})


def _close(_state: SchedulerState, record: LeaseRecord, _call: Call) -> Reply:
    record.holders.clear()
    record.is_closed = True
    return Reply()


def _drop(record: LeaseRecord, client: ClientHandle) -> None:
    """End the leases of a client."""
    for holder in [holder for holder in record.holders if holder.client is client]:
        _give_back(record, holder)


# -- waits -----------------------------------------------------------------------------------------
def _blockers(record: LeaseRecord, call: Call) -> Blockers | None:
    """Return the owners of all leases, any of which may end; for a rate, none is known."""
    if record.per_s is not None and record.has_room:
        return None
    if record.kind != MULTILOCK:
        return [(holder.client, owner) for holder, owner in record.holders.items()], False
    names = names_in(call)
    holders = dict.fromkeys(record.taken[name] for name in names if name in record.taken)
    owners = [(holder.client, record.holders[holder]) for holder in holders]
    for other in record.lanes.get(_LANE, ()):
        if other is call:
            break
        if not set(names).isdisjoint(other.arguments["names"]):  # it has reserved one of them
            owners.append((other.client, other.arguments["owner"]))
    return owners, _number_of(call) == len(names)


def _pause_s(state: SchedulerState, record: LeaseRecord) -> float:
    """Return for how long only the rate holds up the first call that waits."""
    if _LANE not in record.lanes or not record.has_room:
        return 0.0
    return record.pause_s(state.awake_s) + _MARGIN_S


def _is_ready(record: LeaseRecord, call: Call) -> bool:
    if record.kind != MULTILOCK:
        return record.has_room and record.due is None
    if next(iter(record.lanes[call.lane])) is not call:
        return False  # those before it reserve names
    n_free = sum(name not in record.taken for name in call.arguments["names"])
    return bool(n_free >= call.arguments.get("number", 1))


_SEVERAL: Final = {
    "acquire": ObjectOperation(
        _acquire,
        _LANE,
        _LATE,
        undo=_undo_acquire,
        check=_check_acquire,
        check_wait=_check_wait,
        is_deferred=True,
    ),
    "release": ObjectOperation(_release),
    "restate": ObjectOperation(_restate),
}
_COUNTED: Final = {**_SEVERAL, "count": ObjectOperation(_count, is_deferred=True, is_read=True)}
LOCKS: Final = ObjectKind(
    LOCK, _make, _COUNTED, _drop, lambda record: not record.holders, _is_ready, _blockers
)
MULTILOCKS: Final = LOCKS._replace(name=MULTILOCK, operations=_SEVERAL, serve=_serve)
#: Those with a number are there as long as they are used.
LIMITS: Final = LOCKS._replace(
    name=LIMIT,
    is_idle=lambda record: not record.holders and not record.users,
    pause_s=_pause_s,
)
SEMAPHORES: Final = LIMITS._replace(
    name=SEMAPHORE,
    operations={
        **_COUNTED,
        "create": ObjectOperation(_create, may_be_closed=True),
        "close": ObjectOperation(_close, is_deferred=True),
    },
    pause_s=None,
)
