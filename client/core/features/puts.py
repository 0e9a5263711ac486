"""Puts the values of large arguments at the workers that await them. A part of the core.

A large argument is a task without a function: the scheduler assigns it to a worker, and asks a
client that has the value to put it there (`PutWanted`). The value goes to the worker directly; if
that cannot be reached, through the scheduler. A put that has failed may have failed because the
worker died. So the scheduler gets some time to notice that, and to name another worker, before the
value is sent through it: until the next tick.

The record of such a task has the value as its arguments, and is kept as any recipe is, in memory or
in a file (`recipes`), as long as there is a state whose result was computed from it, directly or
not (`FutureState.shared`). If the last copy of the value is lost, the scheduler asks again.

Scattered data goes the same way, but is kept only until it is at a worker (`drop_value`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from ....protocol.wire.messages import Put, PutFailed, PutWanted
from ..events import PutAt, PutEnded
from ..tasks import FutureState, TaskRecord

if TYPE_CHECKING:
    from ..state import ClientState

#: A worker that could not be reached gets no values for this time: they go through the scheduler.
UNREACHABLE_S: Final = 60.0
_GONE: Final = (
    "it is a large argument, and this client has released all futures of its calls, or could not "
    "keep it; submit the call again"
)


class ClientPuts:
    """The values of one client, and those that are under way."""

    def __init__(self) -> None:
        #: {key: record} of the tasks whose arguments are their values. References of futures'
        #: states keep the records.
        self.records: WeakValueDictionary[str, TaskRecord] = WeakValueDictionary()
        #: {request: (holder, key, attempt)} of the puts to workers that have not ended
        self.under_way: dict[int, tuple[str, str, int]] = {}
        #: {attempt: key} of the puts that have failed, to be sent through the scheduler
        self.failed: dict[int, str] = {}
        #: {key: attempt} as the scheduler named it last, for keys in the two above
        self.current: dict[str, int] = {}
        #: {holder: when it may be tried again}
        self.unreachable: dict[str, float] = {}


def on_put_wanted(core: ClientState, message: PutWanted) -> None:
    """Put values at the workers that await them."""
    puts = core.puts
    for key, attempt, place in zip(message.keys, message.attempts, message.holder_of, strict=True):
        if puts.current.get(key) == attempt:
            continue  # it was asked for again, because the scheduler does not know that it is asked
        record = puts.records.get(key)
        if record is None or record.args is None:
            _fail(core, key, attempt, _GONE)
            continue
        puts.current[key] = attempt
        holder = message.holders[place]
        if holder in puts.unreachable:
            _send_through_scheduler(core, key, attempt)
            continue
        request = core.next_request()
        puts.under_way[request] = (holder, key, attempt)
        core.after.append(PutAt(holder, request, key, attempt, record.args))


def on_put_ended(core: ClientState, event: PutEnded, now: float) -> None:
    """Forget a put that is done; keep one that failed until the next tick."""
    puts = core.puts
    entry = puts.under_way.pop(event.request, None)
    if entry is None:
        return
    holder, key, attempt = entry
    if not event.reason:
        _forget(puts, key, attempt)
        return
    puts.unreachable[holder] = now + UNREACHABLE_S
    if puts.current.get(key) == attempt:
        puts.failed[attempt] = key


def send_failed(core: ClientState, now: float) -> None:
    """Send through the scheduler what could not be put at its worker."""
    puts = core.puts
    for holder in [holder for holder, until in puts.unreachable.items() if until <= now]:
        del puts.unreachable[holder]
    if core.is_linked:
        failed, puts.failed = puts.failed, {}
        for attempt, key in failed.items():
            if puts.current.get(key) == attempt:
                _send_through_scheduler(core, key, attempt)


def on_put_unsendable(core: ClientState, message: Put, reason: str) -> None:
    """Report values that the protocol forbids to send."""
    for key, attempt in zip(message.keys, message.attempts, strict=True):
        _fail(core, key, attempt, reason)


def keep_value(core: ClientState, state: FutureState, record: TaskRecord) -> None:
    """Keep the value of a large argument for its state, and for all that are computed from it.

    Another state of the same key, which is the same content, may be kept by some of those.
    """
    known = core.puts.records.get(state.key)
    if known is None or known.args is None:
        core.puts.records[state.key] = known = record
    state.shared = (known,)


def drop_value(state: FutureState) -> None:
    """Keep scattered data no longer: it is at a worker. From now on its key is only wanted."""
    spec = state.spec
    if isinstance(spec, TaskRecord):
        spec.args = None  # type: ignore[assignment]  # as of records that could not be kept
    state.spec = state.shared = None


def inherit_values(state: FutureState, read: FutureState) -> None:
    """Let a state keep the large arguments that were needed to compute one that it reads.

    If the copies of both are lost with a worker, the scheduler computes both again, and asks for
    the arguments. So they are kept although the one that is read may be gone, or be kept without
    its lineage, because its result is small.
    """
    values = [kept for kept in read.shared or () if kept.__class__ is TaskRecord]
    if values:
        state.shared = tuple(dict.fromkeys([*(state.shared or ()), *values]))


def forget_session(core: ClientState) -> None:
    """Forget what was to go through the scheduler: the next session's asks again."""
    puts = core.puts
    puts.failed.clear()
    under_way = {attempt for _, _, attempt in puts.under_way.values()}
    puts.current = {key: n for key, n in puts.current.items() if n in under_way}


def _send_through_scheduler(core: ClientState, key: str, attempt: int) -> None:
    record = core.puts.records.get(key)
    if record is None or record.args is None:
        _fail(core, key, attempt, _GONE)
        return
    _forget(core.puts, key, attempt)
    core.to_scheduler.append(Put(request=0, keys=[key], attempts=[attempt], values=[record.args]))


def _fail(core: ClientState, key: str, attempt: int, reason: str) -> None:
    _forget(core.puts, key, attempt)
    core.to_scheduler.append(PutFailed(keys=[key], attempts=[attempt], reason=reason))


def _forget(puts: ClientPuts, key: str, attempt: int) -> None:
    if puts.current.get(key) == attempt:
        del puts.current[key]
