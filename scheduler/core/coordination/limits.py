"""Limits by name: so many holders at a time, and so many that begin per second.

A limit is a semaphore with a rate. The latest grants are remembered, as many as the rate permits in
a second (in more than that, if it is below 1): the next one comes when the oldest of them is a
second old. So no second has more, wherever it begins, and a burst after a pause is no larger
either. A rate such as 2.5 is rounded down, since no other grants would fit each second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.held import LIMIT, MAX_RATE, MIN_RATE, OTHER_LIMIT
from .arguments import bad, count_in, text_in
from .records import Blockers, Call, HeldKind, HeldRecord, HeldRefusal, LimitRecord, Reply
from .semaphores import LEASES, acquire, blockers, drop_leases, is_ready

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A turn is due so much later, seconds: deadlines come early by rounding errors.
_MARGIN_S: Final = 2e-6


def _make(call: Call) -> HeldRecord:
    return LimitRecord(call.kind, call.name, count_in(call, "limit", 1, 1), _rate_in(call))


def _rate_in(call: Call) -> float:
    """Return the rate that a call states, 0 = none."""
    rate = call.arguments.get("per_s", 0)
    if rate == 0 and type(rate) in (int, float):
        return 0.0
    if type(rate) not in (int, float) or not MIN_RATE <= rate <= MAX_RATE:
        raise bad(f"per_s= is from {MIN_RATE:g} to {MAX_RATE:g}, not {str(rate)[:40]!r}")
    return float(rate)


def _check(record: LimitRecord, call: Call) -> None:
    limit, rate = count_in(call, "limit", 1, record.limit), _rate_in(call)
    if (limit, rate) != (record.limit, record.per_s):
        raise HeldRefusal(
            OTHER_LIMIT,
            f"limit {record.name!r} is {record.limit} at once and {record.per_s:g} per second (0 = "
            f"any rate), and not {limit} and {rate:g}: use the same numbers wherever it is used, "
            "or another name",
        )
    text_in(call, "lease")
    text_in(call, "owner")


def _acquire(state: SchedulerState, record: LimitRecord, call: Call) -> Reply | None:
    now = state.awake_s
    if record.pause_s(now) > 0.0:
        return None
    reply = acquire(state, record, call)
    if reply is not None and record.per_s:
        record.grants.append(now)
    return reply


def _pause_s(state: SchedulerState, record: LimitRecord) -> float:
    """Return for how long only the rate holds up the first call that waits."""
    if "acquire" not in record.lanes or len(record.holders) >= record.limit:
        return 0.0
    return record.pause_s(state.awake_s) + _MARGIN_S


def _blockers(record: LimitRecord, call: Call) -> Blockers | None:
    return blockers(record, call) if len(record.holders) >= record.limit else None


LIMITS: Final = HeldKind(
    LIMIT,
    _make,
    {**LEASES, "acquire": LEASES["acquire"]._replace(attempt=_acquire, check=_check)},
    drop_leases,
    lambda record: not record.holders and not record.users,
    lambda record, call: record.due is None and is_ready(record, call),
    blockers=_blockers,
    pause_s=_pause_s,
)
