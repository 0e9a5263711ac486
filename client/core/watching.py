"""Watchers, which wait for states or for answers of the scheduler. A part of the core.

A watcher is filed at each state that it waits for and is removed with the notification. A watcher
that wants data stays while the result is with a worker, and has it fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.failure import Failure, cancelled
from ...protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    Denied,
    FetchKeys,
    ShutdownCluster,
    Unsupported,
)
from ...protocol.wire.messages.questions import NO_ANSWER
from .events import AskScheduler
from .tasks import (
    CANCELLED,
    FINISHED,
    GONE,
    HELD,
    NEW,
    PENDING,
    RELEASED,
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


def watch(core: ClientState, watcher: Watcher, states: list[FutureState]) -> None:
    """Notify `watcher` of each state once: now if it is ready, else as soon as it is."""
    wants_data = watcher.wants_data
    for state in states:
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
        watchers = state.watchers
        if watchers is None:
            state.watchers = watcher
        elif watchers.__class__ is list:
            watchers.append(watcher)
        else:
            state.watchers = [watchers, watcher]  # type: ignore[list-item]


def unwatch(watcher: Watcher, states: list[FutureState]) -> None:
    """Remove a watcher that no longer waits from its states."""
    for state in states:
        watchers = state.watchers
        if watchers is watcher:
            state.watchers = None
        elif watchers.__class__ is list and watcher in watchers:
            watchers.remove(watcher)


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
    if state.phase in (NEW, HELD):
        move(core, state, GONE)
    wake(core, state)


def fail_released(core: ClientState, state: FutureState) -> None:
    """Fail a watched state without futures, because no message about it will arrive."""
    spec = state.spec
    fail(core, state, CANCELLED, cancelled(state.key, RELEASED))
    # The task goes on if others need it, and is submitted for them from this record.
    state.spec = spec


# --- The cluster, and answers ---------------------------------------------------------------------


def watch_cluster(core: ClientState, watcher: Watcher, n_workers: int) -> None:
    """Notify `watcher` as soon as there are `n_workers` workers."""
    if core.end is not None:
        touch(core, watcher, None)
        return
    core.cluster_watchers.append((watcher, n_workers))
    check_cluster_watchers(core)


def check_cluster_watchers(core: ClientState) -> None:
    """Notify the watchers whose number of workers is reached."""
    for entry in core.cluster_watchers[:]:
        if core.n_workers >= entry[1]:
            core.cluster_watchers.remove(entry)
            touch(core, entry[0], core.n_workers)


def ask_scheduler(core: ClientState, question: AskScheduler) -> None:
    """Ask the scheduler, now or when there is a connection again."""
    if core.end is not None:
        touch(core, question.watcher, None)
        return
    request = core.next_request()
    core.questions[request] = question
    if core.is_linked:
        send_question(core, request, question)


def send_question(core: ClientState, request: int, question: AskScheduler) -> None:
    """Send one page of a question; after a lost connection, once more."""
    core.to_scheduler.append(
        Ask(
            request=request,
            name=question.name,
            arguments=question.arguments,
            page=question.page,
            to=question.to,
            blobs=question.blobs,
        )
    )


def fail_questions(core: ClientState) -> None:
    """Fail the questions that were sent and must not be asked twice: the connection was lost."""
    text = (
        "the connection to the scheduler was lost before the answer came; whether the function has "
        "run is not known"
    )
    for request, question in [q for q in core.questions.items() if not q[1].is_repeated]:
        del core.questions[request]
        touch(core, question.watcher, AskFailed(request=request, kind=NO_ANSWER, text=text))


def take_answer(core: ClientState, message: Answer | AskFailed | Denied | Unsupported) -> None:
    """Notify the watcher that asked, unless it no longer waits."""
    question = core.questions.pop(message.request, None)
    if question is not None:
        touch(core, question.watcher, message)


def shut_down(core: ClientState, watcher: Watcher, reason: str) -> None:
    """Request the end of the cluster."""
    if core.end is not None:
        touch(core, watcher, None)
        return
    request = core.next_request()
    core.shutdowns[request] = (watcher, reason)
    if core.is_linked:
        core.to_scheduler.append(ShutdownCluster(reason=reason, request=request))


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


def forget(core: ClientState, watcher: Watcher) -> None:
    """Remove a watcher that no longer waits for the cluster or for an answer."""
    core.cluster_watchers = [e for e in core.cluster_watchers if e[0] is not watcher]
    core.confirmations = [c for c in core.confirmations if c[0] is not watcher]
    if core.waiting:
        waiting = core.waiting
        waiting[:] = [w for w in waiting if getattr(w.operation, "watcher", None) is not watcher]
    for request in [n for n, q in core.questions.items() if q.watcher is watcher]:
        del core.questions[request]
    for request in [n for n, (w, _) in core.shutdowns.items() if w is watcher]:
        del core.shutdowns[request]
