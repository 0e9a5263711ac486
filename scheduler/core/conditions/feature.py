"""Tasks with conditions: how others are to have ended (`after=`), and times (`start_at=`, `ttl=`).

A task that is *deferred* waits, in a class that no worker may run, also when its inputs are there.
When its conditions are met it gets the class of its options, and is queued like any other. When one
cannot be met any more the task is cancelled, and the reason says which.

Others are watched by a keeper: a client that wants them, so that they run to their end also when
nobody else wants them any more, and that does not keep one which its last client cancels. What it
is sent is noted, and handled in the next pass, because the sender may be in the middle of a batch.

Times are those of the machine's clock, which users mean. Deadlines count waking time, so a time far
away is looked at again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import cancelled, no_worker
from ....protocol.wire.options import CANCELLED, DONE, ENDED, FAILED, LOST
from ..feature import Feature
from ..interruption.withdrawing import on_withdraw
from ..invariants.checking import differences, is_due
from ..job_queues.feature import is_paused
from ..journal.jobs import journal_of
from ..moves.transitions import activate, enqueue, err, release_unneeded
from ..moves.without_recipe import change_group
from ..records.tasks import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NO_WORKER,
    PROCESSING,
    RELEASED,
    WAITING,
    SchedulerTask,
)
from ..requests import wanted_keys
from ..requests.submission import DEFERRED, class_of, on_cancel
from .met_on_record import drop_met
from .records import (
    BEGIN_BY,
    END_BY,
    NO_WORKER_FOR,
    START,
    Conditions,
    ConditionsOfTasks,
    Watched,
    conditions_of,
    unrunnable_since,
    watched_of,
)

if TYPE_CHECKING:
    from ....protocol.wire.failure import Failure
    from ....protocol.wire.message import Message
    from ..events import SchedulerTick
    from ..state import SchedulerState

#: A time is looked at again after so long at the latest: the machine may have been suspended.
LONGEST_LOOK_S: Final = 60.0
#: A worker is asked again to give a task back after so long: it may be another one by then.
ASK_AGAIN_S: Final = 5.0
#: {kind of a failure: the state in which the task has ended, if that is not "failed"}
_STATES: Final = {"cancelled": CANCELLED, "data-lost": LOST}
_VERBS: Final = {
    DONE: "is done",
    FAILED: "has failed",
    CANCELLED: "was cancelled",
    LOST: "was lost",
}


# -- a task is submitted ---------------------------------------------------------------------------
def on_submitted(state: SchedulerState, task: SchedulerTask) -> None:
    """Note the conditions of a new task; those of one that is known already hold.

    Unless it had failed without its inputs, and gets them now with others.
    """
    conditions = conditions_of(state)
    options = task.group.options
    times = {name: when for name in (START, BEGIN_BY, END_BY) if (when := getattr(options, name))}
    if options.no_worker_ms:
        times[NO_WORKER_FOR] = int(clock_s(state) * 1000) + options.no_worker_ms
    if not (times or options.conditions):
        return
    if before := conditions.get(task):
        if not _is_stuck(state, task, before):
            return
        _end_row(state, task, before)
    row = conditions[task] = Conditions()
    if options.detached:
        journal_of(state).followers |= dict.fromkeys(
            (key for _, key in options.conditions), drop_met
        )
    state.busy[Watched] = None
    for name, when_ms in times.items():
        watched_of(state).times.add(when_ms, task, row, name)
    if times:
        _plan_look(state)
    if task.state in (WAITING, RELEASED):  # else a worker has brought it, and has begun it
        for how, key in options.conditions:
            row.unmet.setdefault(key, []).append(how)
    late = task.dependents or task.key in watched_of(state).waiters
    if late and any(_needs(state, key, task) for key in row.unmet):
        row.unmet.clear()
        _give_class(state, task)
        _cancel(state, task, "its conditions wait for what waits for it")
        return
    for key in row.unmet:
        watched_of(state).waiters.setdefault(key, {})[task] = None
        _watch(state, key)
    if row.is_met:
        _open(state, task)


def _needs(state: SchedulerState, key: str, other: SchedulerTask) -> bool:
    """Return whether a task waits for another one, by its inputs or conditions, directly or not.

    A new task cannot close a cycle; one that others wait for before it is submitted can. O(graph).
    """
    seen = {key: None}
    stack = [key]
    while stack:
        task = state.tasks.get(stack.pop())
        if task is other:
            return True
        if task is None:
            continue
        row = conditions_of(state).get(task)
        keys = [*(d.key for d in task.dependencies), *(() if row is None else row.unmet)]
        stack += [one for one in keys if one not in seen]
        seen.update(dict.fromkeys(keys))
    return False


def _watch(state: SchedulerState, key: str) -> None:
    """Have the keeper want a task, and note its end if it has ended."""
    watched = watched_of(state)
    if how := journal_of(state).end_of(key):  # also if its result is given to others just now
        watched.ended[key] = how
        return
    task = state.tasks.get(key)
    if task is None:
        task = wanted_keys.want_unknown(state, watched.keeper, key)
        if task is None:
            watched.ended[key] = m.KeysUnknown(keys=[key])
            return
    if task.state == RELEASED and task.delivered:  # its client has the result
        watched.ended[key] = _in_memory(key)
        return
    wanted_keys.want(watched.keeper, task)
    if task.state == RELEASED:
        activate(state, task)
    if task.state == MEMORY:
        watched.ended[key] = _in_memory(key)
    elif task.state == ERRED:
        assert task.failure is not None
        watched.ended[key] = m.KeysErred(keys=[key], failure_of=[0], failures=[task.failure])


def _in_memory(key: str) -> Message:
    return m.KeysInMemory(keys=[key], nbytes=[0], holder_of=[0], holders=[""])


# -- others end ------------------------------------------------------------------------------------
def settle(state: SchedulerState) -> None:
    """Handle what has ended, and what was forgotten, since the last pass."""
    watched, conditions = watched_of(state), conditions_of(state)
    for task in list(watched.opened_late):
        if task.state != PROCESSING:
            del watched.opened_late[task]
            _open(state, task)
    while (watched.ended and not state.awaits_peers) or conditions.dropped:
        ended: dict[str, Message | str] = {}
        if not state.awaits_peers:  # else a worker may come back with a task whose conditions fail
            ended, watched.ended = watched.ended, {}
        for key, message in ended.items():
            if key in watched.withdrawn:
                _on_withdrawn(state, key, message)
            if key in watched.waiters:
                _on_ended(state, key, message)
        dropped, conditions.dropped = conditions.dropped, []
        for task, row in dropped:
            _end_row(state, task, row)
    if not conditions:
        del state.busy[Watched]


def _on_ended(state: SchedulerState, key: str, message: Message | str) -> None:
    """Look at the conditions of all that wait for the end of a task."""
    how, text = _end_in(key, message)
    if not how:
        return  # it goes on
    for task in list(watched_of(state).waiters[key]):
        row = conditions_of(state).get(task)
        if row is None:
            continue  # it was forgotten just now
        states = row.unmet[key]
        unmet = [wanted for wanted in states if wanted not in (how, ENDED)]
        _unwatch(state, task, row, key)
        if not _is_deferred(task) and task not in watched_of(state).opened_late:
            continue  # it was submitted again without conditions
        # A worker may have come back with its end. Then its conditions were met, or it had none.
        has_ended = task.state in (MEMORY, ERRED)
        if unmet or has_ended:
            # If the user asks for it all the same, it runs.
            for other in list(row.unmet):
                _unwatch(state, task, row, other)
            watched_of(state).times.drop(row, START)
            _give_class(state, task)
            if not has_ended:
                _cancel(state, task, f"it was to run when {key} is {unmet[0]}, and that {text}")
        elif row.is_met:
            _open(state, task)


def _end_in(key: str, message: Message | str) -> tuple[str, str]:
    """Return the state in which a task has ended, and a verb for that; "" = it has not."""
    if isinstance(message, str):
        return message, _VERBS[message]
    if isinstance(message, (m.ResultsReady, m.KeysInMemory)):
        return DONE, _VERBS[DONE]
    if isinstance(message, m.KeysCancelled):
        return CANCELLED, f"was cancelled{f': {message.reason}' if message.reason else ''}"
    if isinstance(message, m.KeysUnknown):
        return CANCELLED, "is not known (any more)"
    if isinstance(message, m.KeysErred):
        failure: Failure = message.failures[message.failure_of[message.keys.index(key)]]
        how = _STATES.get(failure[0], FAILED)
        return how, _VERBS[how]
    return "", ""


def _unwatch(state: SchedulerState, task: SchedulerTask, row: Conditions, key: str) -> None:
    """End a condition; the keeper lets go of what nobody waits for any more."""
    watched = watched_of(state)
    del row.unmet[key]
    waiters = watched.waiters[key]
    del waiters[task]
    if not waiters:
        del watched.waiters[key]
        _let_go(state, key)


def _let_go(state: SchedulerState, key: str) -> None:
    keeper = watched_of(state).keeper
    task = state.tasks.get(key)
    if task is not None and task in keeper.wants:
        wanted_keys.unwant(keeper, task)
        release_unneeded(state, [task])
    wanted_keys.drop_functions(state, keeper)


def _end_row(state: SchedulerState, task: SchedulerTask, row: Conditions) -> None:
    """Undo what a task has that was forgotten."""
    for name in list(row.times):
        watched_of(state).times.drop(row, name)
    for key in list(row.unmet):
        _unwatch(state, task, row, key)
    watched_of(state).opened_late.pop(task, None)
    watched_of(state).withdrawn.pop(task.key, None)


def _open(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a task whose conditions are met run when its inputs are there."""
    if _give_class(state, task):
        state.story.note(state.now, "its conditions are met", [task.key])
        if task.state == WAITING and not task.waiting_on:
            enqueue(state, task)


def _is_deferred(task: SchedulerTask) -> bool:
    """Return whether a task waits for its conditions; others may be deferred for another reason."""
    return task.group.task_class.key == DEFERRED


def _give_class(state: SchedulerState, task: SchedulerTask) -> bool:
    """Give a deferred task the class of its options; return whether that could be done."""
    group = task.group
    if not _is_deferred(task) or task.state == FORGOTTEN:
        return False
    if task.state == PROCESSING:  # a worker came back with it, and it has no resources there
        watched_of(state).opened_late[task] = None
        return False
    if not group.options.array:  # which stays deferred: its rows may run now
        change_group(state, task, group.in_class(class_of(state, group.options)))
    return True


def _cancel(state: SchedulerState, task: SchedulerTask, reason: str) -> None:
    """Cancel a task for all, also while it runs; what reads it fails with the same reason."""
    if task.state == RELEASED:
        err(state, task, cancelled(task.key, reason), inherited=True)
        return
    keeper = watched_of(state).keeper
    wanted_keys.want(keeper, task)
    message = m.CancelKeys(keys=[task.key], force=True, reason=reason, running=True)
    on_cancel(state, keeper, message)
    wanted_keys.drop_functions(state, keeper)


# -- times -----------------------------------------------------------------------------------------
def _plan_look(state: SchedulerState) -> None:
    """Look at the times when the first comes; before that, now and then."""
    times = watched_of(state).times
    first_ms = times.first_ms()
    if first_ms is None or state.awaits_peers:
        return
    left_s = min(max(first_ms / 1000 - clock_s(state), 0.0), LONGEST_LOOK_S)
    if times.look is not None and times.look.is_pending:
        if times.look.when <= state.awake_s + left_s:
            return
        state.deadlines.cancel(times.look)
    times.look = state.call_after(left_s, _look)


def clock_s(state: SchedulerState) -> float:
    """Return the time of the machine's clock, seconds since 1970."""
    assert state.started is not None
    return state.epoch / 1e9 + state.now - state.started - watched_of(state).behind_s


def on_assignment_begun(state: SchedulerState) -> None:
    """Look at times from now on: before, a worker could come back with a task that has begun."""
    _plan_look(state)


def _look(state: SchedulerState) -> None:
    """Act on the times that have come; look again later."""
    # A deadline may come a little early.
    for task, row, name in watched_of(state).times.take(clock_s(state) * 1000 + 1):
        if name == START:
            if row.is_met:
                _open(state, task)
        elif task.state not in (MEMORY, ERRED, RELEASED, FORGOTTEN):
            if name == NO_WORKER_FOR:
                _look_for_worker(state, task, row)
            elif name == END_BY:
                _cancel(state, task, "it has not ended by its deadline=")
            else:
                _withdraw(state, task, "it has not begun within its ttl=")
    _plan_look(state)


def _look_for_worker(state: SchedulerState, task: SchedulerTask, row: Conditions) -> None:
    """Fail a task that no connected worker could run for as long as it may wait; or look later."""
    task_class, limit_ms = task.group.task_class, task.group.options.no_worker_ms
    if not limit_ms:  # the own call of an array
        return
    left_ms = float(limit_ms)
    is_held = task_class.members or state.awaits_peers or is_paused(state, task)
    if task.state == NO_WORKER and not is_held:
        left_ms -= (state.now - unrunnable_since(task)) * 1000
        if left_ms < 1:
            reason = "; ".join(why(state, task_class) for why in state.features.why_unrunnable)
            err(state, task, no_worker(task.key, limit_ms, reason))
            return
    watched_of(state).times.add(int(clock_s(state) * 1000 + left_ms) + 1, task, row, NO_WORKER_FOR)


def _withdraw(state: SchedulerState, task: SchedulerTask, reason: str) -> None:
    """Cancel a task unless it has begun; that its worker has to say, if it is at one."""
    if task.state != PROCESSING:
        _cancel(state, task, reason)
        return
    watched = watched_of(state)
    row = conditions_of(state)[task]
    again_ms = int((clock_s(state) + ASK_AGAIN_S) * 1000)
    watched.times.add(again_ms, task, row, BEGIN_BY)
    wanted_keys.want(watched.keeper, task)
    watched.withdrawn[task.key] = reason
    on_withdraw(state, watched.keeper, m.WithdrawKeys(keys=[task.key], reason=reason))


def _on_withdrawn(state: SchedulerState, key: str, message: Message | str) -> None:
    """Its worker has given a task back, which is cancelled; or it has begun, or ended."""
    reason = watched_of(state).withdrawn.pop(key)
    task = state.tasks.get(key)
    if task is not None and (row := conditions_of(state).get(task)) is not None:
        watched_of(state).times.drop(row, BEGIN_BY)
    if task is not None and isinstance(message, m.KeysCancelled):
        _cancel(state, task, reason)
    elif key not in watched_of(state).waiters:
        _let_go(state, key)


def note_clock(state: SchedulerState, event: SchedulerTick) -> None:
    """Keep what is known of the machine's clock."""
    if event.load is not None:
        watched_of(state).behind_s = event.load.clock_behind_s


def are_met(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a task that was submitted may run, as far as its conditions go."""
    row = conditions_of(state).get(task)
    options = task.group.options
    return not (options.conditions or options.start_ms) if row is None else row.is_met


# -- what is said of it ----------------------------------------------------------------------------
def why_deferred(state: SchedulerState, task: SchedulerTask) -> tuple[str, str | None]:
    """Return what a deferred task waits for beside inputs, and the key of the first other task."""
    row = conditions_of(state).get(task)
    if row is None:
        return "", None
    parts = [f"for {key} to be {states[0]}" for key, states in row.unmet.items()]
    if len(parts) > MAX_NAMED:
        parts[MAX_NAMED:] = [f"for {len(parts) - MAX_NAMED} more tasks"]
    if START in row.times:
        left_s = max(task.group.options.start_ms / 1000 - clock_s(state), 0.0)
        parts.append(f"for its start, in {left_s:.3g} s")
    return " and ".join(parts), next(iter(row.unmet), None)


#: Others that are named in one explanation.
MAX_NAMED: Final = 3


# -- invariants ------------------------------------------------------------------------------------
def _is_stuck(state: SchedulerState, task: SchedulerTask, row: Conditions | None) -> bool:
    """Return whether a task is deferred without a reason; some kinds have one of their own."""
    options = task.group.options
    is_deferred = task.state == WAITING and _is_deferred(task)
    is_deferred = is_deferred and not (options.cron or options.array)
    is_late = task in watched_of(state).opened_late
    return is_deferred and not is_late and (row is None or row.is_met)


FEATURE: Final = Feature(
    name="conditions",
    records=(ConditionsOfTasks, Watched),
    notes=(ConditionsOfTasks,),
    submitted_with=dict.fromkeys(
        ("conditions", START, BEGIN_BY, END_BY, NO_WORKER_FOR), on_submitted
    ),
    settling=((Watched, settle),),
    ticked=(note_clock,),
    assignment_begun=(on_assignment_begun,),
    invariants={
        "a deferred task has a condition": lambda s: [
            task for task in s.tasks.values() if _is_stuck(s, task, conditions_of(s).get(task))
        ],
        "the keeper of conditions wants what others wait for": lambda s: differences(
            # What has ended before the workers are back is judged later, and need not be wanted.
            [t.key for t in watched_of(s).keeper.wants if t.key not in watched_of(s).ended],
            [
                key
                for key in watched_of(s).waiters | watched_of(s).withdrawn
                if key in s.tasks and key not in watched_of(s).ended
            ],
        ),
        "who waits for the end of a task has that condition": lambda s: [
            (key, task)
            for key, waiters in watched_of(s).waiters.items()
            for task in waiters or [None]
            if task is None or key not in conditions_of(s)[task].unmet
        ],
        "what others wait for has not ended": lambda s: [
            key
            for key in watched_of(s).waiters
            if not s.awaits_peers
            if key not in s.tasks or s.tasks[key].state in (MEMORY, ERRED)
        ],
        "the first time of a task is looked at": lambda s: [
            len(watched_of(s).times)
            for _ in range(watched_of(s).times.first_ms() is not None and not s.awaits_peers)
            if not is_due(watched_of(s).times.look)
        ],
        "conditions are busy while a task has some": lambda s: (
            [] if not conditions_of(s) or Watched in s.busy else [len(conditions_of(s))]
        ),
    },
)
