"""Latches: those that wait go on when enough has been counted down, and none waits any more.

A latch is forgotten with the last client that has used it. A later scheduler begins with the whole
number, since only this one knows what was counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages.coordination import COUNT_DOWN, OTHER_LIMIT
from .arguments import count_in
from .records import Call, ObjectKind, ObjectOperation, ObjectRecord, OperationRefused, Reply

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

_OPEN: Final = Reply({"open": True})
_LATE: Final = Reply({"open": False})


class CountDownRecord(ObjectRecord):
    """A latch."""

    __slots__ = ("left", "n")

    def __init__(self, kind: str, name: str, n: int) -> None:
        super().__init__(kind, name)
        self.n = n  #: > 0
        self.left = n  #: from 0, when it is open, to `n`


def _make(call: Call) -> ObjectRecord:
    return CountDownRecord(call.kind, call.name, count_in(call, "n", 1, 1))


def _check(record: CountDownRecord, call: Call) -> None:
    n = count_in(call, "n", 1, record.n)
    if n != record.n:
        raise OperationRefused(
            OTHER_LIMIT,
            f"countdown {record.name!r} has n={record.n}, and not {n}: use the same number "
            "wherever it is used, or another name",
        )


def _create(_state: SchedulerState, _record: CountDownRecord, _call: Call) -> Reply:
    return Reply()


def _count_down(_state: SchedulerState, record: CountDownRecord, call: Call) -> Reply:
    record.left = max(record.left - count_in(call, "k", 1, 1), 0)
    return Reply({"n": record.left})


def _wait(_state: SchedulerState, record: CountDownRecord, _call: Call) -> Reply | None:
    return None if record.left else _OPEN


def _count(_state: SchedulerState, record: CountDownRecord, _call: Call) -> Reply:
    return Reply({"n": record.left})


def _drop(_record: CountDownRecord, _client: ClientHandle) -> None:
    """What a client has counted down stays so when it is gone."""


COUNT_DOWNS: Final = ObjectKind(
    COUNT_DOWN,
    _make,
    {
        "create": ObjectOperation(_create, check=_check),
        "count_down": ObjectOperation(_count_down, check=_check),
        "wait": ObjectOperation(_wait, "wait", _LATE, check=_check),
        "count": ObjectOperation(_count, check=_check, is_read=True),
    },
    _drop,
    lambda record: not record.users,
    lambda record, _call: not record.left,
)
