"""The values in queues and variables: their bytes, and the futures in them, which they keep alive.

A value has as many uses as places that need it; with the last one its bytes are not counted any
more, and its futures are not wanted any more. A future is wanted by a client that stands for all
values; like a client that is away it is sent nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.message import Message
from ....protocol.wire.messages.coordination import KEY_LOST, TOO_LARGE
from ....protocol.wire.payload import Blob, blob_nbytes
from ..moves.transitions import activate, release_unneeded
from ..records.peers import ClientHandle
from ..records.tasks import RELEASED
from ..requests import wanted_keys
from .recording import forget
from .records import Call, ObjectValue, OperationRefused

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The largest pickle of a value.
MAX_VALUE_NBYTES: Final = 4 << 20
#: The largest sum over all values.
MAX_NBYTES: Final = 512 << 20
#: The most futures in one value.
MAX_KEYS: Final = 10_000


def _ignore(_state: SchedulerState, _message: Message) -> None:
    """The values do not change with what becomes of their futures."""


class ObjectValues:
    """All values that are used."""

    __slots__ = ("keeper", "n_uses", "nbytes")

    def __init__(self) -> None:
        #: Wants the tasks of `n_uses`, except for those that were cancelled or are unknown. It is
        #: no client of the cluster, and never has a connection.
        self.keeper = ClientHandle("", "queues and variables", 0, receive=_ignore)
        #: {key: number of values with a future of it}
        self.n_uses: dict[str, int] = {}
        self.nbytes = 0  #: sum over the values


def values_of(state: SchedulerState) -> ObjectValues:
    """Return the values that are used."""
    return state.record(ObjectValues)


def take(state: SchedulerState, blob: Blob | None, keys: list[str]) -> ObjectValue:
    """Return a new value with one use.

    Raises:
        OperationRefused: it is too large, or the task of a future is unknown.
    """
    values = values_of(state)
    size = 0 if blob is None else blob_nbytes(blob)
    if size > MAX_VALUE_NBYTES or len(keys) > MAX_KEYS:
        raise OperationRefused(
            TOO_LARGE,
            f"the value takes {size} bytes and has {len(keys)} futures in it; the limits are "
            f"{MAX_VALUE_NBYTES} bytes and {MAX_KEYS} futures. Large data belongs in the result of "
            "a task: put its future",
        )
    value = ObjectValue(blob, [*dict.fromkeys(keys)])
    if values.nbytes + value.nbytes > MAX_NBYTES:
        raise OperationRefused(
            TOO_LARGE,
            f"the queues and variables of the cluster hold {values.nbytes} bytes, and the limit "
            f"for all of them is {MAX_NBYTES}; take values out of queues, or put futures",
        )
    for key in value.keys:
        if key not in state.tasks and not wanted_keys.may_come(state, key):
            raise _unknown(key)
    use(state, value)
    return value


def check_keys(state: SchedulerState, call: Call) -> None:
    """Check the futures in a value that a client states again, when all others could be back.

    Raises:
        OperationRefused: neither a client nor a worker has come back with the task of one.
    """
    assert call.value is not None
    for key in call.value.keys:
        if key not in state.tasks:
            raise _unknown(key)


def _unknown(key: str) -> OperationRefused:
    return OperationRefused(
        KEY_LOST,
        f"the scheduler does not know the task {key!r} of a future in the value (any more): it was "
        "cancelled or released; submit its call again",
    )


def use(state: SchedulerState, value: ObjectValue) -> None:
    """Note one more use of a value."""
    value.n_uses += 1
    if value.n_uses > 1:
        return
    values = values_of(state)
    values.nbytes += value.nbytes
    for key in value.keys:
        values.n_uses[key] = values.n_uses.get(key, 0) + 1
        task = state.tasks.get(key)
        if task is None:
            wanted_keys.want_unknown(state, values.keeper, key)
            continue
        wanted_keys.want(values.keeper, task)
        if task.state == RELEASED:
            activate(state, task)


def drop(state: SchedulerState, value: ObjectValue) -> None:
    """Note that a value has one use less."""
    value.n_uses -= 1
    if value.n_uses:
        return
    if value.number:
        forget(state, [value.number])
    values = values_of(state)
    values.nbytes -= value.nbytes
    unneeded = []
    for key in value.keys:
        values.n_uses[key] -= 1
        if values.n_uses[key]:
            continue
        del values.n_uses[key]
        task = state.tasks.get(key)
        if task is not None and task in values.keeper.wants:
            wanted_keys.unwant(values.keeper, task)
            unneeded.append(task)
    release_unneeded(state, unneeded)
    wanted_keys.drop_functions(state, values.keeper)
