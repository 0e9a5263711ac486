"""Watchers, which wait for states or for answers of the scheduler. A part of the core.

A watcher is filed at each state that it waits for and is removed with the notification. A watcher
that wants data stays while the result is with a worker, and has it fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.failure import Failure, cancelled
from ...protocol.wire.messages import FetchKeys
from .events import ForgetWatcher, Tell, Unwatch, Watch, Withdraw
from .tasks import (
    CANCELLED,
    FINISHED,
    GONE,
    NEW,
    PENDING,
    RELEASED,
    UNSENT,
    FutureState,
    Status,
    Watcher,
)
from .transitions import drop, move, set_status

if TYPE_CHECKING:
    from .state import ClientState

#: Stands for the scheduler where a holder's address is expected.
THROUGH_SCHEDULER: Final = ""


# --- States ---------------------------------------------------------------------------------------


def watch(core: ClientState, operation: Watch | Withdraw) -> None:
    """Notify the watcher of each state once: now if it is ready, else as soon as it is."""
    watcher = operation.watcher
    wants_data = watcher.wants_data
    for state in operation.states:
        status = state.status
        if status == FINISHED:
            if not wants_data or state.has_data:
                touch(core, watcher, state)
                continue
            if state.phase == GONE:
                fail_released(core, state)
                touch(core, watcher, state)
                continue
            if state.location is not None:
                want_data(core, state)
        elif status != PENDING:
            touch(core, watcher, state)
            continue
        elif state.phase == GONE:
            # It was released before this operation came, and no message will be about it.
            fail_released(core, state)
            touch(core, watcher, state)
            continue
        _file(watcher, state)


def _file(watcher: Watcher, state: FutureState) -> None:
    watchers = state.watchers
    if watchers is None:
        state.watchers = watcher
    elif isinstance(watchers, list):
        watchers.append(watcher)
    else:
        state.watchers = [watchers, watcher]


def take_back(core: ClientState, state: FutureState) -> None:
    """Let those that were to be notified of a state with this event wait on: it is pending again.

    What they would find is neither a result nor a failure.
    """
    for watcher in [watcher for watcher in core.touched if state in watcher.batch]:
        watcher.batch.remove(state)
        if not watcher.batch:
            core.touched.remove(watcher)
        _file(watcher, state)


def unwatch(watcher: Watcher, states: list[FutureState]) -> None:
    """Remove a watcher that no longer waits from its states."""
    for state in states:
        watchers = state.watchers
        if watchers is watcher:
            state.watchers = None
        elif watchers.__class__ is list and watcher in watchers:
            watchers.remove(watcher)


def on_unwatch(_core: ClientState, operation: Unwatch) -> None:
    """Remove a watcher that no longer waits from its states."""
    unwatch(operation.watcher, operation.states)


def note_started(core: ClientState, keys: list[str]) -> None:
    """Notify the watchers that wait only until the calls of these keys have begun."""
    for key in keys:
        state = core.table.states.get(key)
        if state is None or state.watchers is None:
            continue
        watchers = state.watchers if isinstance(state.watchers, list) else [state.watchers]
        for watcher in [watcher for watcher in watchers if watcher.ends_at_start]:
            unwatch(watcher, [state])
            touch(core, watcher, state)


def touch(core: ClientState, watcher: Watcher, item: Any) -> None:
    """Put an item into the watcher's next batch."""
    batch = watcher.batch
    if not batch:
        core.touched.append(watcher)
    batch.append(item)


def wake(core: ClientState, state: FutureState) -> None:
    """Notify the watchers of a state of its change, and remove those that have what they want."""
    watchers = state.watchers
    if watchers is None:
        return
    state.watchers = None
    staying: list[Watcher] = []
    is_elsewhere = state.failure is None and not state.has_data
    for watcher in watchers if isinstance(watchers, list) else [watchers]:
        if is_elsewhere and watcher.wants_data:
            staying.append(watcher)
        else:
            touch(core, watcher, state)
    if staying:
        state.watchers = staying
        if state.location is not None:
            want_data(core, state)


def want_data(core: ClientState, state: FutureState) -> None:
    """Queue a finished state for fetching, unless its data is queued or under way."""
    if state in core.fetching:
        return
    assert state.location is not None
    holder = state.location[0]
    if holder in core.unreachable:
        holder = THROUGH_SCHEDULER
    core.fetching[state] = None
    core.fetch_queues.setdefault(holder, {})[state] = None


def fail(core: ClientState, state: FutureState, status: Status, failure: Failure) -> None:
    """Give a state its failure, and notify its watchers."""
    state.failure = failure
    if state.spec is not None and (shown := state.spec.options.shown):
        state.shown = shown
    state.spec = None
    state.location = None
    set_status(state, status)
    # A scheduler may forget the function of a task that will not run.
    drop(state)
    if state.phase in (NEW, UNSENT):
        move(core, state, GONE)
    wake(core, state)


def fail_released(core: ClientState, state: FutureState) -> None:
    """Fail a watched state without futures, because no message about it will arrive."""
    spec = state.spec
    fail(core, state, CANCELLED, cancelled(state.key, RELEASED))
    # The task goes on if others need it, and is submitted for them from this record.
    state.spec = spec


# --- Answers --------------------------------------------------------------------------------------


def on_tell(core: ClientState, operation: Tell) -> None:
    """Notify a watcher of what is not about states."""
    touch(core, operation.watcher, operation.item)


def confirm(core: ClientState, watcher: Watcher) -> None:
    """Notify `watcher` when the scheduler has read all earlier submissions."""
    if core.end is not None:
        touch(core, watcher, None)
        return
    core.confirmations.append((watcher, ask_to_answer(core) if core.is_linked else 0))


def ask_to_answer(core: ClientState) -> int:
    """Send a request that the scheduler answers at once; return its number."""
    request = core.next_request()
    core.to_scheduler.append(FetchKeys(request=request, keys=[]))
    return request


def on_forget(core: ClientState, operation: ForgetWatcher) -> None:
    """Remove a watcher that no longer waits for an answer."""
    watcher = operation.watcher
    core.confirmations = [c for c in core.confirmations if c[0] is not watcher]
    if core.waiting:
        waiting = core.waiting
        waiting[:] = [w for w in waiting if getattr(w.operation, "watcher", None) is not watcher]
    for forgotten in core.features.forgotten:
        forgotten(core, watcher)
