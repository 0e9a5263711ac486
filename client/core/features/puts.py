"""Puts the values of large arguments at the workers that await them. A part of the core.

A large argument is a task without a function: the scheduler assigns it to a worker, and asks a
client that has the value to put it there (`PutWanted`). The value goes to the worker directly; if
that cannot be reached, through the scheduler. A put that has failed may have failed because the
worker died. So the scheduler gets some time to notice that, and to name another worker, before the
value is sent through it: until the next tick.

The record of such a task has the value as its arguments. If the last copy of the value is lost, the
scheduler asks again. Scattered data goes the same way; its record is kept only until it is at a
worker.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import Put, PutFailed, PutWanted
from ....protocol.wire.payload import Blob
from ..events import ClientAction, ClientEvent
from ..feature import ClientFeature
from ..tasks import FutureState, TaskRecord

if TYPE_CHECKING:
    from ..state import ClientState

#: A worker that could not be reached gets no values for this time: they go through the scheduler.
UNREACHABLE_S: Final = 60.0
_GONE: Final = (
    "it is a large argument, and this client has released all futures of its calls, or could not "
    "keep it; submit the call again"
)


@dataclass(slots=True)
class PutAt(ClientAction):
    """Send a value to the worker at `holder`, as that of `attempt`; answer with `PutEnded`."""

    holder: str
    request: int
    key: str
    attempt: int
    value: Blob


@dataclass(slots=True)
class PutEnded(ClientEvent):
    """A `PutAt` was done; or it was not, for a reason."""

    request: int
    reason: str = ""


class ClientPuts:
    """The values that are kept, and those that are under way."""

    def __init__(self) -> None:
        #: {key: record with the value}, as long as there is a state whose result was computed from
        #: it, directly or not (`FutureState.shared`)
        self.values: weakref.WeakValueDictionary[str, TaskRecord] = weakref.WeakValueDictionary()
        #: {request: (holder, key, attempt)} of the puts to workers that have not ended
        self.under_way: dict[int, tuple[str, str, int]] = {}
        #: {attempt: key} of the puts that have failed, to be sent through the scheduler
        self.failed: dict[int, str] = {}
        #: {key: attempt} as the scheduler named it last, for keys in the two above
        self.current: dict[str, int] = {}
        #: {holder: when it may be tried again}
        self.unreachable: dict[str, float] = {}


def _keep(core: ClientState, state: FutureState, record: TaskRecord) -> None:
    """Keep the value of a task for its state, and for all that are computed from it.

    Another state of the same key, which is the same content, may be kept by some of those.
    """
    values = core.record(ClientPuts).values
    known = values.get(state.key)
    if known is None or known.args is None:
        values[state.key] = known = record
    state.shared = (known,)


def _on_placed(core: ClientState, state: FutureState) -> None:
    """Keep scattered data no longer: it is at a worker. From now on its key is only wanted."""
    spec = state.spec
    assert spec is not None
    if not spec.options.scattered:
        core.recipes.count(spec)
        return
    if isinstance(spec, TaskRecord):
        spec.args = None  # type: ignore[assignment]  # as of records that could not be kept
    state.spec = state.shared = None


def _inherit(_core: ClientState, state: FutureState, read: FutureState) -> None:
    """Let a state keep the values that were needed to compute one that it reads.

    If the copies of both are lost with a worker, the scheduler computes both again, and asks for
    the values. So they are kept although the one that is read may be gone, or be kept without
    its lineage, because its result is small.
    """
    values = [kept for kept in read.shared or () if kept.__class__ is TaskRecord]
    if values:
        state.shared = tuple(dict.fromkeys([*(state.shared or ()), *values]))


def on_put_wanted(core: ClientState, message: PutWanted) -> None:
    """Put values at the workers that await them."""
    puts = core.record(ClientPuts)
    for key, attempt, place in zip(message.keys, message.attempts, message.holder_of, strict=True):
        if puts.current.get(key) == attempt:
            continue  # it was asked for again, because the scheduler does not know that it is asked
        record = puts.values.get(key)
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


def on_put_ended(core: ClientState, event: PutEnded) -> None:
    """Forget a put that is done; keep one that failed until the next tick."""
    puts = core.record(ClientPuts)
    entry = puts.under_way.pop(event.request, None)
    if entry is None:
        return
    holder, key, attempt = entry
    if not event.reason:
        _forget(core, key, attempt)
        return
    puts.unreachable[holder] = core.now + UNREACHABLE_S
    if puts.current.get(key) == attempt:
        puts.failed[attempt] = key


def _on_ticked(core: ClientState) -> None:
    """Send through the scheduler what could not be put at its worker."""
    puts = core.record(ClientPuts)
    for holder in [holder for holder, until in puts.unreachable.items() if until <= core.now]:
        del puts.unreachable[holder]
    if core.is_linked and puts.failed:
        failed, puts.failed = puts.failed, {}
        for attempt, key in failed.items():
            if puts.current.get(key) == attempt:
                _send_through_scheduler(core, key, attempt)


def _on_unsendable(core: ClientState, message: Put, reason: str) -> None:
    """Report values that the protocol forbids to send."""
    for key, attempt in zip(message.keys, message.attempts, strict=True):
        _fail(core, key, attempt, reason)


def _on_lost(core: ClientState) -> None:
    """Forget what was to go through the scheduler: the next session's asks again."""
    puts = core.record(ClientPuts)
    puts.failed.clear()
    under_way = {attempt for _, _, attempt in puts.under_way.values()}
    puts.current = {key: n for key, n in puts.current.items() if n in under_way}


def _send_through_scheduler(core: ClientState, key: str, attempt: int) -> None:
    record = core.record(ClientPuts).values.get(key)
    if record is None or record.args is None:
        _fail(core, key, attempt, _GONE)
        return
    _forget(core, key, attempt)
    core.to_scheduler.append(Put(request=0, keys=[key], attempts=[attempt], values=[record.args]))


def _fail(core: ClientState, key: str, attempt: int, reason: str) -> None:
    _forget(core, key, attempt)
    core.to_scheduler.append(PutFailed(keys=[key], attempts=[attempt], reason=reason))


def _forget(core: ClientState, key: str, attempt: int) -> None:
    current = core.record(ClientPuts).current
    if current.get(key) == attempt:
        del current[key]


FEATURE: Final = ClientFeature(
    name="puts",
    records=(ClientPuts,),
    handlers={PutWanted: on_put_wanted, PutEnded: on_put_ended},
    unsendable={Put: _on_unsendable},
    brought=(_keep,),
    placed=(_on_placed,),
    inherited=(_inherit,),
    lost=(_on_lost,),
    ticked=(_on_ticked,),
)
