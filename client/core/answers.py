"""The scheduler's messages: one function handles each of them. A part of the core.

Messages about keys that were released meanwhile are expected, and ignored.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ...protocol.wire import messages as m
from ...protocol.wire.failure import Failure, cancelled, unknown
from .events import AnswersReceived, EndSession
from .fetching import take, turn_from
from .lineage import supply_again
from .recipes import has_recipe
from .reconciling import is_of_no_use, submit_unsent
from .releasing import release
from .retrying import can_retry, in_retries, on_keys_retried, on_retry_refused
from .tasks import (
    CANCELLED,
    ERROR,
    FINISHED,
    GONE,
    KEPT,
    LOST,
    NO_VALUE,
    PENDING,
    SENT,
    UNSENT,
    FutureState,
    Status,
    is_unreadable,
)
from .transitions import move, set_status
from .watching import fail, note_started, touch, wake

if TYPE_CHECKING:
    from .feature import Handler
    from .state import ClientState

#: {kind of a failure: the status of its future}; of all others it is an error
_STATUSES: Final[dict[str, Status]] = {"cancelled": CANCELLED, "data-lost": LOST}


def on_received(core: ClientState, event: AnswersReceived) -> None:
    """Handle messages in their order."""
    handlers = core.handlers
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


def on_results_ready(core: ClientState, message: m.ResultsReady) -> None:
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


def on_keys_in_memory(core: ClientState, message: m.KeysInMemory) -> None:
    holders = message.holders
    recipes = core.recipes
    news: list[FutureState] = []
    moved: dict[FutureState, None] = {}
    if message.attempts:
        _note_makers(core, message)
    for key, nbytes, place in zip(message.keys, message.nbytes, message.holder_of, strict=True):
        state = find(core, key)
        if state is None:
            continue
        if state.location is not None and state.location[0] != holders[place]:
            moved[state] = None
        state.location = (holders[place], nbytes)
        spec = state.spec
        if spec is not None and not spec.is_counted:
            if not spec.function.blob:
                for placed in core.features.placed:
                    placed(core, state)
            else:
                recipes.count(spec)
        set_status(state, FINISHED)
        news.append(state)
    if moved:
        turn_from(core, moved)
    for state in news:
        wake(core, state)


def _note_makers(core: ClientState, message: m.KeysInMemory) -> None:
    """Note which attempts made unique results; one that was made anew is not the one known here."""
    for key, attempt in zip(message.keys, message.attempts, strict=True):
        state = core.table.states.get(key)
        if not attempt or state is None or state.phase != SENT or key in core.barriers:
            continue
        if state.failure is None and core.made.setdefault(state, attempt) != attempt:
            is_of_no_use(core, state)


def on_keys_erred(core: ClientState, message: m.KeysErred) -> None:
    failures = message.failures
    for key, place in zip(message.keys, message.failure_of, strict=True):
        failure = failures[place]
        state = find(core, key) or _ended_result(core, key, failure)
        if any(erred(core, key, state, failure) for erred in core.features.erred) or state is None:
            continue
        fail(core, state, _STATUSES.get(failure[0], ERROR), failure)
        state.blob = None  # of a result that has ended; after the failure: users read both


def _ended_result(core: ClientState, key: str, failure: Failure) -> FutureState | None:
    """Return the state of a result that is here, but is of no use any more."""
    state = core.table.states.get(key)
    if failure[0] not in core.features.ending or failure[1] != key or state is None:
        return None
    return state if state.phase == SENT and state.status == FINISHED else None


def on_keys_pending(core: ClientState, message: m.KeysPending) -> None:
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


def on_keys_cancelled(core: ClientState, message: m.KeysCancelled) -> None:
    retried = in_retries(core) if core.retries else ()
    released: list[str] = []
    for key in message.keys:
        state = find(core, key)
        if state is not None:
            fail(core, state, CANCELLED, cancelled(key, message.reason))
            continue
        state = core.table.states.get(key)
        if state is None or state.phase != SENT:
            continue
        if state in retried and state.status == PENDING:
            # If others want it the scheduler has run it again when it reads of the retry.
            released.append(key)
            move(core, state, GONE)
            fail(core, state, CANCELLED, cancelled(key, message.reason))
        elif can_retry(state) and key not in core.barriers:
            # It had failed when it ran again for others. The scheduler has it no more.
            move(core, state, GONE)
    release(core, released)


def on_keys_started(core: ClientState, message: m.KeysStarted) -> None:
    note_started(core, message.keys)


def on_keys_unknown(core: ClientState, message: m.KeysUnknown) -> None:
    kept: dict[FutureState, None] = {}
    for key in message.keys:
        state = core.table.states.get(key)
        if state is None or state.phase != SENT or key in core.barriers:
            continue
        if core.unanswered:
            core.unanswered.pop(key, None)
        if is_of_no_use(core, state):
            continue
        if state.has_data or is_unreadable(state):
            move(core, state, KEPT)  # until a task reads it
            kept[state] = None
        elif state.failure is not None:
            continue
        elif has_recipe(core, state):
            state.location = None
            set_status(state, PENDING)  # if it was finished, it has to be computed again
            move(core, state, UNSENT)  # until all answers are here, and with them all unknown keys
        else:
            fail(core, state, LOST, unknown(key))
    if kept and core.is_linked:
        supply_again(core, kept)
    if core.unsent and core.is_linked:
        submit_unsent(core)


def on_keys_data(core: ClientState, message: m.KeysData) -> None:
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


def on_retried(core: ClientState, message: m.KeysRetried) -> None:
    on_answer(core, message.request)
    on_keys_retried(core, message)


def on_refused(core: ClientState, message: m.Denied | m.Unsupported) -> None:
    """Notify the one whose request the scheduler does not take."""
    if not on_retry_refused(core, message):
        any(refused(core, message) for refused in core.features.refused)


def on_cluster_stopped(core: ClientState, message: m.ClusterStopped) -> None:
    """End the session, instead of looking for another scheduler."""
    core.after.append(EndSession(message.reason))


ANSWERS: Final[dict[type, Handler]] = {
    AnswersReceived: on_received,
    m.ResultsReady: on_results_ready,
    m.KeysInMemory: on_keys_in_memory,
    m.KeysErred: on_keys_erred,
    m.KeysPending: on_keys_pending,
    m.KeysCancelled: on_keys_cancelled,
    m.KeysRetried: on_retried,
    m.KeysStarted: on_keys_started,
    m.KeysUnknown: on_keys_unknown,
    m.KeysData: on_keys_data,
    m.ClusterStopped: on_cluster_stopped,
    m.Denied: on_refused,
    m.Unsupported: on_refused,
}
