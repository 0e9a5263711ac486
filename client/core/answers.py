"""What the scheduler says: one function for each of its messages. A part of the core.

Messages about keys that were let go meanwhile are expected: counted, otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.failure import cancelled, data_lost
from ...protocol.wire.messages import (
    ClusterChanged,
    ClusterInfo,
    GetClusterInfo,
    KeysCancelled,
    KeysData,
    KeysErred,
    KeysInMemory,
    KeysPending,
    KeysUnknown,
    KeysUnrunnable,
    ResultsReady,
)
from .events import Received, Warn
from .submitting import drop
from .tasks import SENT, FutureState, Status, Watcher

if TYPE_CHECKING:
    from .state import ClientState

_MAX_WARNINGS: Final = 100


def on_received(core: ClientState, event: Received, _now: float) -> None:
    handlers = _HANDLERS
    for message in event.messages:
        handler = handlers.get(type(message))
        if handler is None:
            continue  # of a later version, or for the shell
        handler(core, message)


def on_results_ready(core: ClientState, message: ResultsReady) -> None:
    states = core.table.states
    barriers = core.barriers
    confirm = core.reconciliation.confirm if core.reconciliation.is_active else None
    touched = core.touched
    for key, blob in zip(message.keys, message.results, strict=True):
        state = states.get(key)
        if state is None or state.phase != SENT or blob is None or (barriers and key in barriers):
            core.n_stale += 1
            continue
        if confirm is not None:
            confirm(key)
        if state.failure is not None or state.has_data:
            continue
        state.blob = blob
        state.spec = None
        state.status = "finished"
        watchers = state.watchers
        if watchers is None:
            continue
        if watchers.__class__ is list:
            core.wake(state)
            continue
        state.watchers = None
        batch = watchers.batch  # type: ignore[union-attr]
        if not batch:
            touched.append(watchers)  # type: ignore[arg-type]
        batch.append(state)


def on_keys_in_memory(core: ClientState, message: KeysInMemory) -> None:
    holders = message.holders
    news: list[FutureState] = []
    moved: dict[FutureState, None] = {}
    for key, nbytes, place in zip(message.keys, message.nbytes, message.holder_of, strict=True):
        state = core.find(key)
        if state is None or state.failure is not None or state.has_data:
            continue
        if place >= len(holders):
            core.n_stale += 1
            continue
        if state.location is not None and state.location[0] != holders[place]:
            moved[state] = None
        state.location = (holders[place], nbytes)
        if state.spec is not None and not state.spec.function.keeps_records:
            state.spec = None
        state.status = "finished"
        news.append(state)
    if moved:
        core.fetches.turn_from(moved)
    for state in news:
        core.wake(state)


def on_keys_erred(core: ClientState, message: KeysErred) -> None:
    failures = message.failures
    for key, place in zip(message.keys, message.failure_of, strict=True):
        state = core.find(key)
        # What is here stays: that a later run of it failed matters to others only.
        if state is None or state.failure is not None or state.has_data:
            continue
        if place >= len(failures):
            core.n_stale += 1
            continue
        failure = failures[place]
        status: Status = "error"
        if failure[0] == "cancelled":
            status = "cancelled"
        elif failure[0] == "data-lost":
            status = "lost"
        core.fail(state, status, failure)


def on_keys_pending(core: ClientState, message: KeysPending) -> None:
    lost: dict[FutureState, None] = {}
    for key in message.keys:
        state = core.find(key)
        if state is not None and state.failure is None and not state.has_data:
            if state.location is not None:
                lost[state] = None
            state.location = None
            state.status = "pending"
    if lost:
        core.fetches.turn_from(lost)


def on_keys_cancelled(core: ClientState, message: KeysCancelled) -> None:
    for key in message.keys:
        state = core.find(key)
        if state is not None and state.failure is None and not state.has_data:
            core.fail(state, "cancelled", cancelled(key, message.reason))


def on_keys_unknown(core: ClientState, message: KeysUnknown) -> None:
    for key in message.keys:
        state = core.find(key)
        if state is None or state.failure is not None or state.has_data:
            continue
        if state.spec is not None:
            drop(state)
            state.location = None
            state.status = "pending"  # if it was finished, its record was kept for this
            core.hold(state)  # until we know what else is unknown
        else:
            text = "the scheduler does not know it (any more); submit its call again"
            core.fail(state, "lost", data_lost(key, text))
    if core.held and core.is_linked:
        core.submit_held()


def on_keys_unrunnable(core: ClientState, message: KeysUnrunnable) -> None:
    if message.reason in core.warnings:
        return
    if len(core.warnings) >= _MAX_WARNINGS:
        core.warnings.clear()
    core.warnings[message.reason] = None
    n = len(message.keys)
    first = message.keys[0] if message.keys else "?"
    subject = f"task {first!r} waits" if n == 1 else f"{n} tasks ({first!r}, ...) wait"
    core.actions.append(Warn(f"{subject} for a worker that can run it: {message.reason}"))


def on_keys_data(core: ClientState, message: KeysData) -> None:
    core.on_answer(message.request)
    core.take(message.request, message.keys, message.results)


def on_cluster_changed(core: ClientState, message: ClusterChanged) -> None:
    core.n_workers = message.n_workers
    core.nthreads = message.nthreads
    check_cluster_watchers(core)


def watch_cluster(core: ClientState, watcher: Watcher, n_workers: int) -> None:
    if core.end is not None:
        core.touch(watcher, None)
        return
    core.cluster_watchers.append((watcher, n_workers))
    check_cluster_watchers(core)


def check_cluster_watchers(core: ClientState) -> None:
    for entry in core.cluster_watchers[:]:
        if core.n_workers >= entry[1]:
            core.cluster_watchers.remove(entry)
            core.touch(entry[0], core.n_workers)


def ask_info(core: ClientState, watcher: Watcher) -> None:
    if core.end is not None:
        core.touch(watcher, None)
        return
    request = core.fetches.next_request()
    core.info_requests[request] = watcher
    if core.is_linked:
        core.to_scheduler.append(GetClusterInfo(request=request))


def on_cluster_info(core: ClientState, message: ClusterInfo) -> None:
    watcher = core.info_requests.pop(message.request, None)
    if watcher is not None:
        core.touch(watcher, message.info)


def on_forget(core: ClientState, watcher: Watcher) -> None:
    core.cluster_watchers = [e for e in core.cluster_watchers if e[0] is not watcher]
    core.confirmations = [c for c in core.confirmations if c[0] is not watcher]
    for request in [n for n, w in core.info_requests.items() if w is watcher]:
        del core.info_requests[request]


_HANDLERS: Final[dict[type, Callable[[ClientState, Any], None]]] = {
    ResultsReady: on_results_ready,
    KeysInMemory: on_keys_in_memory,
    KeysErred: on_keys_erred,
    KeysPending: on_keys_pending,
    KeysCancelled: on_keys_cancelled,
    KeysUnknown: on_keys_unknown,
    KeysUnrunnable: on_keys_unrunnable,
    KeysData: on_keys_data,
    ClusterChanged: on_cluster_changed,
    ClusterInfo: on_cluster_info,
}
