"""Relays data through the scheduler, for clients that cannot reach the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import MAX_RELAYED_BYTES
from ....protocol.wire.payload import Blob
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
    n_asked: int = 0  #: workers that have not answered
    keys: list[str] = field(default_factory=list)
    results: list[Blob | None] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RelayPart:
    """What one worker is asked for."""

    relay: FetchRelay
    worker: WorkerHandle
    keys: list[str]


class Relays(dict[int, RelayPart]):
    """The requests to workers that are under way, by their numbers."""


def relays_of(state: SchedulerState) -> Relays:
    """Return the requests that workers are answering."""
    return state.record(Relays)


def on_client_fetch(state: SchedulerState, client: ClientHandle, message: m.FetchKeys) -> None:
    """A client cannot reach the workers itself: request the data, within MAX_RELAYED_BYTES."""
    by_worker: dict[WorkerHandle, list[str]] = {}
    relay = FetchRelay(client, message.request)
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
        relay.n_asked += 1
        relays_of(state)[request] = RelayPart(relay, ws, keys)
        state.send(ws.peer, m.FetchKeys(request=request, keys=keys))
    if not by_worker:
        _answer(state, relay)


def on_worker_data(state: SchedulerState, ws: WorkerHandle, message: m.KeysData) -> None:
    """A worker's part of a relayed fetch."""
    part = relays_of(state).get(message.request)
    if part is None or part.worker is not ws:
        state.counters.reports_stale += 1
        return
    answered = [*message.keys, *message.missing]
    if len(answered) > len(part.keys) or not set(part.keys).issuperset(answered):
        # Passed on, they could make a message that the client refuses, and its connection ends.
        state.refuse(
            ws.peer, f"worker {ws.name} answers with the data of keys that it was not asked for"
        )
        return
    _end_part(state, message.request, message.keys, message.results, message.missing)


def on_unsupported(state: SchedulerState, who: object, request: int) -> None:
    """A worker does not know the request: its part of the data is missing."""
    part = relays_of(state).get(request)
    if part is not None and part.worker is who:
        _end_part(state, request, [], [], part.keys)


def on_worker_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker again that was away: it may not have read it."""
    for request, part in relays_of(state).items():
        if part.worker is ws:
            state.send(ws.peer, m.FetchKeys(request=request, keys=part.keys))


def end_relays(state: SchedulerState, ws: WorkerHandle) -> None:
    """A worker that was asked is lost: its part of the data is missing."""
    for request, part in list(relays_of(state).items()):
        if part.worker is ws:
            _end_part(state, request, [], [], part.keys)


def _end_part(
    state: SchedulerState,
    request: int,
    keys: list[str],
    results: list[Blob | None],
    missing: list[str],
) -> None:
    part = relays_of(state).pop(request)
    relay = part.relay
    relay.keys.extend(keys)
    relay.results.extend(results)
    relay.missing.extend(missing)
    relay.n_asked -= 1
    if missing:  # of one that is lost nothing is left
        holder_lacks(state, missing, part.worker.address)
    if not relay.n_asked:
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
    "a relay counts the workers that it asks": lambda s: [
        part
        for part in relays_of(s).values()
        if part.relay.n_asked != sum(each.relay is part.relay for each in relays_of(s).values())
    ],
    "the worker of a relay is registered": lambda s: [
        part.worker
        for part in relays_of(s).values()
        if s.workers.get(part.worker.peer) is not part.worker
    ],
}
