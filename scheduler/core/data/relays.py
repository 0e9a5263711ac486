"""Relays data through the scheduler, for clients that cannot reach the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import MAX_RELAYED_BYTES
from ....protocol.wire.payload import Blob
from ..records.checking import differences
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import MEMORY
from ..reports.missing import holder_lacks

if TYPE_CHECKING:
    from ..state import SchedulerState


@dataclass(slots=True)
class FetchRelay:
    """A client's FetchKeys that workers are answering."""

    client: ClientHandle
    request: int
    waiting_for: dict[int, list[str]]  #: {request to a worker: keys}
    keys: list[str] = field(default_factory=list)
    results: list[Blob | None] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class Relays:
    """The requests to workers that are under way."""

    __slots__ = ("by_request", "workers")

    def __init__(self) -> None:
        #: {request to a worker: relay}, and which worker is asked
        self.by_request: dict[int, FetchRelay] = {}
        self.workers: dict[int, WorkerHandle] = {}


def relays_of(state: SchedulerState) -> Relays:
    """Return the fetches of clients that workers are answering."""
    return state.record(Relays)


def on_client_fetch(state: SchedulerState, client: ClientHandle, message: m.FetchKeys) -> None:
    """A client cannot reach the workers itself: request the data, within MAX_RELAYED_BYTES."""
    by_worker: dict[WorkerHandle, list[str]] = {}
    relay = FetchRelay(client, message.request, {})
    budget = MAX_RELAYED_BYTES
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None or task.state != MEMORY or task.nbytes > budget:
            relay.missing.append(key)
            continue
        budget -= task.nbytes
        by_worker.setdefault(task.replicas[0], []).append(key)
    for ws, keys in by_worker.items():
        request = state.new_request()
        relay.waiting_for[request] = keys
        relays_of(state).by_request[request] = relay
        relays_of(state).workers[request] = ws
        state.send(ws.peer, m.FetchKeys(request=request, keys=keys))
    if not by_worker:
        _answer(state, relay)


def on_worker_data(state: SchedulerState, ws: WorkerHandle, message: m.KeysData) -> None:
    """A worker's part of a relayed fetch."""
    relay = relays_of(state).by_request.get(message.request)
    if relay is None or relays_of(state).workers.get(message.request) is not ws:
        state.counters.reports_stale += 1
        return
    asked = relay.waiting_for[message.request]
    answered = [*message.keys, *message.missing]
    if len(answered) > len(asked) or not set(asked).issuperset(answered):
        # Passed on, they could make a message that the client refuses, and its connection ends.
        state.refuse(
            ws.peer, f"worker {ws.name} answers with the data of keys that it was not asked for"
        )
        return
    _relay_part(state, message.request, relay, message.keys, message.results, message.missing)


def on_unsupported(state: SchedulerState, who: object, request: int) -> None:
    """A worker does not know the request: its part of the data is missing."""
    relay = relays_of(state).by_request.get(request)
    if relay is not None and relays_of(state).workers.get(request) is who:
        _relay_part(state, request, relay, [], [], relay.waiting_for[request])


def on_worker_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker again that was away: it may not have read it."""
    for request, asked in relays_of(state).workers.items():
        if asked is ws:
            keys = relays_of(state).by_request[request].waiting_for[request]
            state.send(ws.peer, m.FetchKeys(request=request, keys=keys))


def end_relays(state: SchedulerState, ws: WorkerHandle) -> None:
    """A worker that was asked is lost: its part of the data is missing."""
    for request, relay in list(relays_of(state).by_request.items()):
        if relays_of(state).workers[request] is ws:
            _relay_part(state, request, relay, [], [], relay.waiting_for[request])


def _relay_part(
    state: SchedulerState,
    request: int,
    relay: FetchRelay,
    keys: list[str],
    results: list[Blob | None],
    missing: list[str],
) -> None:
    relay.keys.extend(keys)
    relay.results.extend(results)
    relay.missing.extend(missing)
    del relay.waiting_for[request]
    del relays_of(state).by_request[request]
    ws = relays_of(state).workers.pop(request)
    if missing:  # of one that is lost nothing is left
        holder_lacks(state, missing, ws.address)
    if not relay.waiting_for:
        _answer(state, relay)


def _answer(state: SchedulerState, relay: FetchRelay) -> None:
    state.send_client(
        relay.client,
        m.KeysData(
            request=relay.request,
            keys=relay.keys,
            results=relay.results,
            missing=relay.missing,
        ),
    )


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
RELAY_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "each relay has its worker": lambda s: differences(
        relays_of(s).by_request, relays_of(s).workers
    ),
    "a relay waits for each of its requests": lambda s: [
        request
        for request, relay in relays_of(s).by_request.items()
        if request not in relay.waiting_for
    ],
    "the worker of a relay is registered": lambda s: [
        ws for ws in relays_of(s).workers.values() if s.workers.get(ws.peer) is not ws
    ],
}
