"""The users' operations, which come through the queue. A part of the core.

Messages leave in the order of the operations, except that the releases of one event leave after its
submissions: a run of `future = submit(f, future)` is one message, not one for each link. That is
safe because a key leaves the table only when its release is handled, so a later submission under
that key comes with a later event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import Failure, cancelled
from ...protocol.wire.messages import CancelKeys, WantKeys, WithdrawKeys
from ...protocol.wire.options import TaskOptions
from . import events
from .events import Borrow, Cancel, Confirm, Operations
from .fetching import turn_from
from .foreign_keys import keep_waiting, must_wait, take_ready
from .lineage import release_temporary, supply
from .recipes import SMALL_NBYTES, keep_result
from .releasing import guard, note_let_go, release, set_barrier
from .retrying import can_retry, on_retry
from .submitting import close_submissions, submit, submit_columns
from .tasks import (
    CANCELLED,
    ERROR,
    FINISHED,
    GONE,
    LOST,
    NEW,
    NO_VALUE,
    PENDING,
    SENT,
    UNREADABLE,
    UNSENT,
    FutureState,
    TaskColumns,
    TaskRecord,
)
from .transitions import drop, forget_maker, move, set_status
from .watching import (
    confirm,
    fail,
    fail_released,
    note_started,
    on_forget,
    on_tell,
    on_unwatch,
    watch,
)

if TYPE_CHECKING:
    from .feature import Handler
    from .state import ClientState


def on_operations(core: ClientState, event: Operations) -> None:
    """Handle operations in their order; then request confirmations; releases come last."""
    released: list[FutureState] = []
    handlers = core.handlers
    waiting = core.waiting
    for operation in event.operations:
        cls = operation.__class__
        if cls is FutureState:
            released.append(operation)
        elif waiting and must_wait(core, operation):
            keep_waiting(core, operation)
        elif cls is TaskRecord:
            on_task(core, operation)
        else:
            handlers[cls](core, operation)
    if core.may_go_on:
        submit_ready(core, released)
    finish(core, released)


def finish(core: ClientState, released: list[FutureState]) -> None:
    """End a run of submissions: see `on_operations`."""
    close_submissions(core)
    if core.temporary:
        release_temporary(core)
    if core.to_confirm:
        watchers, core.to_confirm = core.to_confirm, []
        for watcher in watchers:
            confirm(core, watcher)
    if released:
        on_released(core, released)


def submit_ready(core: ClientState, released: list[FutureState]) -> None:
    """Submit the tasks that have waited for keys of other clients and need not wait any more."""
    core.may_go_on = False
    for waiting in take_ready(core):
        operation = waiting.operation
        if isinstance(operation, Confirm):
            core.to_confirm.append(operation.watcher)
        else:
            on_submission(core, operation)
        released += waiting.shared


def go_on_after_loans(core: ClientState) -> None:
    """Do the operations whose loans were settled by another event than an operation."""
    released: list[FutureState] = []
    submit_ready(core, released)
    finish(core, released)


def on_confirm(core: ClientState, operation: Confirm) -> None:
    """Ask for a confirmation when all submissions of this event are sent."""
    if operation.states is not None and (core.kept or not core.is_linked):
        supply(core, operation.states, (0, ""))
    core.to_confirm.append(operation.watcher)


def on_borrow(core: ClientState, operation: Borrow) -> None:
    """Have a submission wait for its loans."""
    if core.end is None:
        keep_waiting(core, operation)
    else:
        on_submission(core, operation.task)


def on_lent(core: ClientState, operation: events.Lent) -> None:
    """Note that the lending client has done its part."""
    operation.loan.is_settled = core.may_go_on = True


def on_send_in_order(core: ClientState, operation: events.SendInOrder) -> None:
    """Send a message that nothing answers."""
    close_submissions(core)
    # While keys are asked about, the first messages of the session are gone already.
    if core.is_linked or core.unanswered is not None:
        core.to_scheduler.append(operation.message)


def on_loaded(core: ClientState, operation: events.Loaded) -> None:
    """Keep a result that was unpickled as a recipe."""
    keep_result(core, operation.state)


def on_unreadable(core: ClientState, operation: events.Unreadable) -> None:
    """Fail a result that cannot be unpickled."""
    note_unreadable(operation.state, operation.failure, core)


def on_submission(core: ClientState, tasks: TaskRecord | TaskColumns) -> None:
    """Submit one task or many."""
    if isinstance(tasks, TaskRecord):
        on_task(core, tasks)
    else:
        on_columns(core, tasks)


def on_task(core: ClientState, task: TaskRecord) -> None:
    """Submit one task, unless its state is known."""
    state = task.state
    if state.phase != NEW and not is_only_wanted(state):
        if task.options.attempt:
            _join(core, state, task.options)
        return  # another future of the same key submitted it
    state.spec = task
    if not task.function.blob:
        for brought in core.features.brought:
            brought(core, state, task)
    if core.end is not None:
        fail(core, state, LOST, core.end)
        return
    if task.replaced is not None:
        replace(core, [task.replaced])
    if task.dependencies:
        lineage = trace(core, state, task.dependencies)
        if lineage is None:
            return
        task.lineage = lineage
    if not core.is_linked:
        if state.phase == NEW:  # if it was sent, its key is wanted, and submitted if it is unknown
            move(core, state, UNSENT)
        return
    if state.key in core.let_go:
        set_barrier(core)
    if core.kept:
        supply(core, task.lineage, task.options.caller)
    submit(core, state, task, task.options)


def on_columns(core: ClientState, tasks: TaskColumns) -> None:
    """Submit many tasks, as one message if nothing is special about any of them."""
    states = tasks.states
    if core.end is not None or not core.is_linked or tasks.dependencies or tasks.replaced:
        on_columns_one_by_one(core, tasks)
        return
    for state in states:
        if state.phase != NEW or state.n_references > 1:  # known, or perhaps here twice
            on_columns_one_by_one(core, tasks)
            return
        state.spec = tasks
    tasks.drop_states()
    if core.let_go:
        guard(core, tasks.keys)
    submit_columns(core, tasks, states)


def on_columns_one_by_one(core: ClientState, tasks: TaskColumns) -> None:
    """Do as `on_columns` where rows may differ: known keys, dependencies, no connection."""
    if tasks.replaced:
        replace(core, tasks.replaced)
    is_whole = core.is_linked and core.end is None
    states = tasks.states
    dependencies = tasks.dependencies
    tasks.drop_states()
    rows: dict[FutureState, None] = {}
    for i, state in enumerate(states):
        if state in rows or (state.phase != NEW and not is_only_wanted(state)):
            is_whole = False
            if tasks.options.attempt:
                _join(core, state, tasks.options)
            continue
        state.spec = tasks
        drop(state)  # its data was lost and its record gone: it is counted once more
        if core.end is not None:
            fail(core, state, LOST, core.end)
            continue
        if dependencies and dependencies[i]:
            lineage = trace(core, state, dependencies[i])
            if lineage is None:
                is_whole = False
                continue
            tasks.lineage[state.key] = lineage
        rows[state] = None
    if not core.is_linked:
        for state in rows:
            if state.phase == NEW:
                move(core, state, UNSENT)
        return
    if core.let_go:
        guard(core, [state.key for state in rows])
    if core.kept:
        for lineage in tasks.lineage.values():
            supply(core, lineage, tasks.options.caller)
    if is_whole:
        submit_columns(core, tasks, states)
        return
    for state in rows:
        submit(core, state, tasks.row(state.key), tasks.options)


def _join(core: ClientState, state: FutureState, options: TaskOptions) -> None:
    for joined in core.features.joined:
        joined(core, state, options)


def trace(core: ClientState, state: FutureState, keys: list[str]) -> list[FutureState] | None:
    """Return the states of a new task's dependencies. None if one failed, which fails the task.

    Not if that one can be retried: then this one could be as well, so the scheduler has to have it,
    and fails it.
    """
    table = core.table.states
    lineage: list[FutureState] = []
    for key in keys:
        dependency = table.get(key)
        if dependency is None:
            continue  # of another client; the scheduler has it
        failure = dependency.failure
        if (
            failure is not None
            and failure[0] != UNREADABLE
            and not (core.is_linked and can_retry(dependency))
        ):
            fail(core, state, dependency.status, failure)
            return None
        if dependency.shared is not None:
            for inherited in core.features.inherited:
                inherited(core, state, dependency)
        lineage.append(dependency)
    return lineage


def replace(core: ClientState, states: list[FutureState]) -> None:
    """Let the scheduler forget failed tasks that are to be run again."""
    keys = []
    for state in states:
        if state.phase == SENT:
            keys.append(state.key)
            move(core, state, GONE)
    if keys:
        close_submissions(core)
        release(core, keys)


def on_released(core: ClientState, released: list[FutureState]) -> None:
    """Handle releases of futures; states that have no future left leave the table."""
    keys: list[str] = []
    unanswered = core.unanswered
    gone = core.table.detach(released)
    for state in gone if core.made else ():
        forget_maker(core, state)
    for state in gone:
        if state.phase == SENT:  # as `move` does
            keys.append(state.key)
            state.phase = GONE
            function = state.function
            if function is not None:
                function.n_wanted -= 1
                state.function = None
            if unanswered:
                unanswered.pop(state.key, None)
        elif state.phase != GONE:
            move(core, state, GONE)
        if state.watchers is not None and state.failure is None and not state.has_data:
            fail_released(core, state)
        if state.spec.__class__ is TaskRecord:
            del state.spec.state  # no cycle: it may hold a large blob
        # Tasks that read it may keep it, as a part of their recipes.
        state.value = NO_VALUE
        blob = state.blob
        if blob is not None and (blob.__class__ is not bytes or len(blob) >= SMALL_NBYTES):
            keep_result(core, state)
    release(core, keys)


def on_want(core: ClientState, operation: events.Want) -> None:
    """Ask for keys that other clients submitted."""
    new = []
    for state in operation.states:
        if state.phase != NEW or state in core.waiting_states:
            continue
        if core.end is not None:
            fail(core, state, LOST, core.end)
        elif not core.is_linked:
            move(core, state, UNSENT)
        else:
            move(core, state, SENT)
            new.append(state.key)
    if new:
        if core.let_go:
            guard(core, new)
        close_submissions(core)
        core.to_scheduler.append(WantKeys(keys=new))


def on_cancel(core: ClientState, operation: Cancel) -> None:
    """Cancel states that are not done: here at once, and at the scheduler."""
    core.may_go_on = bool(core.waiting)  # submissions that read a cancelled key fail now
    keys = []
    for state in operation.states:
        if state.status != PENDING:
            if not operation.finished or state.status != FINISHED or state.has_data:
                continue
            turn_from(core, {state: None})
        if state.phase == SENT:
            keys.append(state.key)
        if state.phase != GONE:
            move(core, state, GONE)
        fail(core, state, CANCELLED, cancelled(state.key, operation.reason))
    if not keys:
        return
    note_let_go(core, keys)
    if core.is_linked or core.unanswered is not None:
        close_submissions(core)
        core.to_scheduler.append(
            CancelKeys(
                keys=keys,
                force=operation.force,
                reason=operation.reason,
                running=operation.running,
            )
        )


def on_withdraw(core: ClientState, operation: events.Withdraw) -> None:
    """Cancel what was not sent, and have the scheduler cancel what has not begun."""
    unsent = [
        state for state in operation.states if state.status == PENDING and state.phase != SENT
    ]
    on_cancel(core, Cancel(unsent, reason=operation.reason))
    asked = [state for state in operation.states if state.status == PENDING]
    for state in asked:
        drop(state)  # the scheduler may have no call of its function any more when it answers
    keys = [state.key for state in asked]
    watch(core, operation)
    if keys:
        close_submissions(core)
        if core.is_linked:
            core.to_scheduler.append(WithdrawKeys(keys=keys, reason=operation.reason))
        else:
            note_started(core, keys)  # as far as known


def note_unreadable(state: FutureState, failure: Failure, core: ClientState | None = None) -> None:
    """Fail a result that is here and cannot be unpickled. The cluster's copy is still valid.

    So the key stays wanted, and tasks that depend on it are submitted as before.
    """
    if state.failure is None and state.value is NO_VALUE:  # else another thread was faster
        state.failure = failure
        set_status(state, ERROR)
        # The blob goes last: without it, and without a failure, the result is not here yet.
        if core is None:
            state.blob = None
        else:
            keep_result(core, state)


def is_only_wanted(state: FutureState) -> bool:
    """Return whether a known state has no record of how to compute it, and needs one.

    This is the case when a future was unpickled, before or while this client submitted its key.
    """
    return state.phase != GONE and state.status == PENDING and state.spec is None


OPERATIONS: Final[dict[type, Handler]] = {
    Operations: on_operations,
    TaskColumns: on_columns,
    events.Watch: watch,
    events.Unwatch: on_unwatch,
    events.Want: on_want,
    Cancel: on_cancel,
    events.Withdraw: on_withdraw,
    events.RetryFailed: on_retry,
    events.SendInOrder: on_send_in_order,
    events.ForgetWatcher: on_forget,
    events.Tell: on_tell,
    events.Loaded: on_loaded,
    events.Unreadable: on_unreadable,
    Confirm: on_confirm,
    Borrow: on_borrow,
    events.Lent: on_lent,
}
