"""The scheduler's messages: one function handles each of them. A part of the core.

Messages about keys that were released meanwhile are expected, and ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.failure import Failure, cancelled, data_lost
from ...protocol.wire.messages import (
    Answer,
    AskFailed,
    ClusterChanged,
    ClusterStopped,
    Denied,
    KeysCancelled,
    KeysData,
    KeysErred,
    KeysInMemory,
    KeysPending,
    KeysRetried,
    KeysStarted,
    KeysUnknown,
    KeysUnrunnable,
    LogRecords,
    Operated,
    PluginGone,
    PluginsHeld,
    PutWanted,
    Recovered,
    Recovering,
    ResultsReady,
    TaskOutput,
    Unsupported,
)
from .events import AnswersReceived, EndSession, Warn
from .features.callers import submit_for_another
from .features.coordination import on_call_refused, on_operated
from .features.plugins import on_plugin_gone, on_plugins_held, on_stated
from .features.puts import drop_value, on_put_wanted
from .fetching import take, turn_from
from .recipes import has_recipe
from .reconciling import lose_actor, submit_held
from .retrying import on_keys_retried, on_retry_refused
from .sessions import on_recovered, on_recovering
from .tasks import (
    CANCELLED,
    ERROR,
    FINISHED,
    HELD,
    KEPT,
    LOST,
    NO_VALUE,
    PENDING,
    SENT,
    FutureState,
    Status,
    is_unreadable,
)
from .transitions import move, set_status
from .watching import check_cluster_watchers, fail, note_started, take_answer, touch, wake

if TYPE_CHECKING:
    from .state import ClientState

_MAX_WARNINGS: Final = 100
_MAX_UNRUNNABLE: Final = 1000


def on_received(core: ClientState, event: AnswersReceived, _now: float) -> None:
    """Handle messages in their order."""
    handlers = _HANDLERS
    for message in event.messages:
        handler = handlers.get(type(message))
        if handler is None:
            continue  # of a later version, or for the shell
        handler(core, message)


def find(core: ClientState, key: str) -> FutureState | None:
    """Return the state that a message is about; None if the message changes nothing for it."""
    state = core.table.states.get(key)
    if state is None or state.phase != SENT or key in core.barriers:
        return None
    if core.unanswered:
        core.unanswered.pop(key, None)
    # A result in this process stays, even if a later run of the task fails.
    return None if state.failure is not None or state.has_data else state


def on_results_ready(core: ClientState, message: ResultsReady) -> None:
    states = core.table.states
    touched = core.touched
    is_calm = not (core.barriers or core.unanswered)
    for key, blob in zip(message.keys, message.results, strict=True):
        state = states.get(key) if is_calm else find(core, key)
        if state is None or state.phase != SENT or blob is None:
            continue
        if state.failure is not None or state.blob is not None or state.value is not NO_VALUE:
            continue
        state.blob = blob
        state.spec = None
        state.status = FINISHED  # from pending or finished: it has no failure
        watchers = state.watchers
        if watchers is None:
            continue
        if watchers.__class__ is list:
            wake(core, state)
            continue
        state.watchers = None
        batch = watchers.batch  # type: ignore[union-attr]
        if not batch:
            touched.append(watchers)  # type: ignore[arg-type]
        batch.append(state)


def on_keys_in_memory(core: ClientState, message: KeysInMemory) -> None:
    holders = message.holders
    recipes = core.recipes
    news: list[FutureState] = []
    moved: dict[FutureState, None] = {}
    for key, nbytes, place in zip(message.keys, message.nbytes, message.holder_of, strict=True):
        state = find(core, key)
        if state is None:
            continue
        if state.location is not None and state.location[0] != holders[place]:
            moved[state] = None
        state.location = (holders[place], nbytes)
        spec = state.spec
        if spec is not None and not spec.is_counted:
            if spec.options.scattered:
                drop_value(state)
            else:
                recipes.count(spec)
        set_status(state, FINISHED)
        news.append(state)
    if moved:
        turn_from(core, moved)
    for state in news:
        wake(core, state)


def on_keys_erred(core: ClientState, message: KeysErred) -> None:
    failures = message.failures
    for key, place in zip(message.keys, message.failure_of, strict=True):
        failure = failures[place]
        state = find(core, key)
        if state is None:
            state = _lost_actor(core, key, failure)
            if state is None:
                continue
        is_refused = failure[0] == "not-permitted"
        if is_refused and core.callers and submit_for_another(core, state, failure):
            continue
        status: Status = ERROR
        if failure[0] == "cancelled":
            status = CANCELLED
        elif failure[0] == "data-lost":
            status = LOST
        fail(core, state, status, failure)
        state.blob = None  # of an actor; after the failure, because users read both


def _lost_actor(core: ClientState, key: str, failure: Failure) -> FutureState | None:
    """Return the state of an actor that is lost: its handle is here, but is of no use any more."""
    state = core.table.states.get(key)
    if failure[:2] != ["actor-lost", key] or state is None or state.failure is not None:
        return None
    return state if state.phase == SENT and state.status == FINISHED else None


def on_keys_pending(core: ClientState, message: KeysPending) -> None:
    lost: dict[FutureState, None] = {}
    for key in message.keys:
        state = find(core, key)
        if state is not None:
            if state.location is not None:
                lost[state] = None
            state.location = None
            set_status(state, PENDING)
    if lost:
        turn_from(core, lost)


def on_keys_cancelled(core: ClientState, message: KeysCancelled) -> None:
    for key in message.keys:
        state = find(core, key)
        if state is not None:
            fail(core, state, CANCELLED, cancelled(key, message.reason))


def on_keys_started(core: ClientState, message: KeysStarted) -> None:
    note_started(core, message.keys)


def on_keys_unknown(core: ClientState, message: KeysUnknown) -> None:
    for key in message.keys:
        state = core.table.states.get(key)
        if state is None or state.phase != SENT or key in core.barriers:
            continue
        if core.unanswered:
            core.unanswered.pop(key, None)
        if lose_actor(core, state):
            continue
        if state.has_data or is_unreadable(state):
            move(core, state, KEPT)  # until a task reads it
        elif state.failure is not None:
            continue
        elif has_recipe(state):
            state.location = None
            set_status(state, PENDING)  # if it was finished, it has to be computed again
            move(core, state, HELD)  # until all answers are here, and with them all unknown keys
        else:
            text = (
                "the scheduler does not know it (any more); submit its call again, or scatter the "
                "data again"
            )
            fail(core, state, LOST, data_lost(key, text))
    if core.held and core.is_linked:
        submit_held(core)


def on_keys_unrunnable(core: ClientState, message: KeysUnrunnable) -> None:
    if len(core.unrunnable) >= _MAX_UNRUNNABLE:
        core.unrunnable.clear()
    core.unrunnable.update(dict.fromkeys(message.keys, message.reason))
    if message.reason in core.warnings:
        return
    if len(core.warnings) >= _MAX_WARNINGS:
        core.warnings.clear()
    core.warnings[message.reason] = None
    n = len(message.keys)
    first = message.keys[0] if message.keys else "?"
    if n == 1:
        text = f"task {first!r} waits for a worker that can run it"
    else:  # only the first are named
        text = f"tasks ({first!r} and others) wait for a worker that can run them"
    core.after.append(Warn(f"{text}: {message.reason}"))


def on_keys_data(core: ClientState, message: KeysData) -> None:
    on_answer(core, message.request)
    take(core, message.request, message.keys, message.results)


def on_answer(core: ClientState, request: int) -> None:
    """Note that the scheduler has read everything that was sent before this request."""
    if request == core.check:
        core.checked = {}
    barriers = core.barriers
    if barriers and next(reversed(barriers.values())) <= request:
        core.barriers = {}  # all at once, however many keys were let go
    elif barriers:
        for key, _ in list(itertools.takewhile(lambda item: item[1] <= request, barriers.items())):
            del barriers[key]
    if core.confirmations:
        for watcher, number in core.confirmations:
            if 0 < number <= request:
                touch(core, watcher, None)
        core.confirmations = [c for c in core.confirmations if not 0 < c[1] <= request]


def on_retried(core: ClientState, message: KeysRetried) -> None:
    on_answer(core, message.request)
    on_keys_retried(core, message)


def on_cluster_changed(core: ClientState, message: ClusterChanged) -> None:
    core.n_workers = message.n_workers
    core.nthreads = message.nthreads
    check_cluster_watchers(core)


def on_denied(core: ClientState, message: Denied) -> None:
    found = core.shutdowns.pop(message.request, None)
    if found is None:
        on_refused(core, message)
    else:
        touch(core, found[0], message)


def on_refused(core: ClientState, message: Denied | Unsupported) -> None:
    """Notify the caller of a question, or of another call, that has no answer."""
    if not on_call_refused(core, message) and not on_retry_refused(core, message):
        on_answered(core, message)


def on_answered(core: ClientState, message: Answer | AskFailed | Denied | Unsupported) -> None:
    """Notify the caller of a question; one about a plugin that was stated again has none."""
    if not on_stated(core, message):
        take_answer(core, message)


def on_task_output(core: ClientState, message: TaskOutput | LogRecords) -> None:
    """Show it, before results that come later are seen."""
    if core.output is not None:
        touch(core, core.output, message)


def on_cluster_stopped(core: ClientState, message: ClusterStopped) -> None:
    """End the session, instead of looking for another scheduler."""
    core.after.append(EndSession(message.reason))


_HANDLERS: Final[dict[type, Callable[[ClientState, Any], None]]] = {
    ResultsReady: on_results_ready,
    KeysInMemory: on_keys_in_memory,
    KeysErred: on_keys_erred,
    KeysPending: on_keys_pending,
    KeysCancelled: on_keys_cancelled,
    KeysRetried: on_retried,
    KeysStarted: on_keys_started,
    KeysUnknown: on_keys_unknown,
    KeysUnrunnable: on_keys_unrunnable,
    PutWanted: on_put_wanted,
    KeysData: on_keys_data,
    ClusterChanged: on_cluster_changed,
    ClusterStopped: on_cluster_stopped,
    Answer: on_answered,
    AskFailed: on_answered,
    Denied: on_denied,
    Unsupported: on_refused,
    Operated: on_operated,
    PluginGone: on_plugin_gone,
    PluginsHeld: on_plugins_held,
    TaskOutput: on_task_output,
    LogRecords: on_task_output,
    Recovering: on_recovering,
    Recovered: on_recovered,
}
