"""The one rule about the ends of members: if one is to run again, all are.

Each event that touches a member notes its gang; what has become of all members is looked at in the
next pass, when the batch of the event is over. What follows is a table in `docs/design/gangs.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, data_lost, gang_ended
from ..avoidance.moving import is_reschedule
from ..interruption.interrupted import note_ended
from ..interruption.interrupting import END_PROCESS_AFTER_S, interrupt
from ..moves.reporting import send_states
from ..moves.transitions import (
    ACTIVE,
    abandon,
    activate,
    drop_attempt,
    err,
    note_attempt_ended,
    take_back_from,
)
from ..records.peers import WorkerHandle
from ..records.tasks import ERRED, MEMORY, NO_WORKER, PROCESSING, RELEASED, WAITING, SchedulerTask
from ..reports.completion import on_erred
from ..reports.missing import lose_replica, replace_lost
from ..requests import wanted_keys
from ..requests.retrying import pause_s
from ..requests.submission import on_cancel, run_again
from .records import GangRecord, Gangs, HeldBack, gangs_of, gangs_of_tasks

if TYPE_CHECKING:
    from ..state import SchedulerState

#: An exception of a member counts after so long: the loss of a worker may have been its cause.
VERDICT_S: Final = 1.0
#: All members of a gang come within so long: what waits for others after that is given up.
COMPLETE_WITHIN_S: Final = 30.0
#: The next run waits for the end of the last one for so long at most: its processes have ended by
#: then, or do not end.
LONGEST_END_S: Final = END_PROCESS_AFTER_S + 1.0


# -- what happens to members -----------------------------------------------------------------------
def note_changed(state: SchedulerState, gang: GangRecord) -> None:
    """Have a gang looked at in the next pass."""
    gangs_of(state).changed[gang] = None
    state.busy[Gangs] = None


def on_ready(state: SchedulerState, task: SchedulerTask) -> None:
    """A deferred task has all its inputs, or was taken back."""
    gang = gangs_of_tasks(state).get(task)
    if gang is not None:
        gang.revived[task] = None
        note_changed(state, gang)


def on_failed(state: SchedulerState, task: SchedulerTask, failure: Failure, worker: str) -> None:
    """A task has failed by itself."""
    gang = gangs_of_tasks(state).get(task)
    if gang is not None:
        gang.failure = gang.failure or (task, failure)
        note_changed(state, gang)


def on_abandoned(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> None:
    """An attempt that its worker may run is dropped."""
    gang = gangs_of_tasks(state).get(task)
    if gang is None:
        return
    if task.attempt in gang.held_back:
        gangs_of(state).over.append((ws, task.attempt))
    gang.ending.append((ws, task.attempt))
    gang.ending_until = state.awake_s + LONGEST_END_S
    note_changed(state, gang)


def note_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """A worker has named all that it runs: perhaps only some members of a gang."""
    of_tasks = gangs_of_tasks(state)
    for task in ws.processing.values() if of_tasks else ():
        if task in of_tasks:
            note_changed(state, of_tasks[task])


def is_coming(gang: GangRecord) -> bool:
    """Return whether more members may run at a worker that has not named all that it runs."""
    workers = [task.worker for task in gang.members.values() if task.state == PROCESSING]
    return any(ws is not None and ws.inventory is not None for ws in workers)


# -- what follows ----------------------------------------------------------------------------------
def look_at_changed(state: SchedulerState) -> None:
    """Look at the gangs that something has happened to."""
    gangs = gangs_of(state)
    forget_dropped(state)
    while gangs.changed:
        gang = next(iter(gangs.changed))
        del gangs.changed[gang]
        if gang.members:
            _look(state, gang)
        forget_dropped(state)


def forget_dropped(state: SchedulerState) -> None:
    """Take out members that were forgotten, and attempts whose end was reported before."""
    gangs, of_tasks = gangs_of(state), gangs_of_tasks(state)
    over, gangs.over = gangs.over, []
    for ws, attempt in over:
        if attempt in ws.zombies and state.workers.get(ws.peer) is ws:
            note_attempt_ended(state, ws, attempt)
    dropped, of_tasks.dropped = of_tasks.dropped, []
    for task, gang in dropped:
        _forget_member(state, task, gang)


def _forget_member(state: SchedulerState, task: SchedulerTask, gang: GangRecord) -> None:
    gang.revived.pop(task, None)
    del gang.members[gang.rank_of(task)]
    if gang.members:
        note_changed(state, gang)
        return
    gangs = gangs_of(state)
    gangs.stop_waiting(gang)
    state.deadlines.cancel(gang.verdict)
    state.deadlines.cancel(gang.lone)
    if gangs.by_name.get(gang.name) is gang:
        del gangs.by_name[gang.name]


def _look(state: SchedulerState, gang: GangRecord) -> None:
    """Do what follows from what has become of the members; see the module."""
    gangs_of(state).stop_waiting(gang)
    revived, gang.revived = gang.revived, {}
    failure, gang.failure = gang.failure, None
    _drop_held_back(state, gang)
    members = list(gang.members.values())
    active = [task for task in members if task.state in ACTIVE]
    if not active:
        gang.ready_since, gang.is_over = None, True
        return
    ended = [task for task in members if task.state not in ACTIVE]
    # Those that go on: they were active before the others have come back.
    others = [task for task in active if task not in revived]
    if failure is None and others:  # one whose input has failed says nothing of itself
        failure = next(((t, t.failure) for t in ended if t.state == ERRED and t.failure), None)
    if failure is not None and failure[0].state == ERRED:
        _fail(state, gang, failure[0], active)
        return
    if not gang.is_complete:
        _wait_for_others(state, gang)
        return
    state.deadlines.cancel(gang.lone)
    lacking = [rank for rank in range(gang.size) if not _is_there(gang.members.get(rank))]
    running = [task for task in active if task.state == PROCESSING]
    if lacking:
        _end_without(
            state, gang, active, lacking[0], is_over=(ended or gang.is_over) and not others
        )
    elif running:
        is_half = any(task.state != PROCESSING and not task.waiting_on for task in active)
        if is_half and not is_coming(gang):
            _stop(state, gang, running)
    elif ended:
        _run_again(state, ended)
    elif all(_is_ready(task) or task.state == NO_WORKER for task in active):
        if gang.ready_since is None:
            gang.ready_since = state.awake_s
        gangs_of(state).waiting[gang] = None
        gangs_of(state).look_at = min(gangs_of(state).look_at, state.awake_s)


def _wait_for_others(state: SchedulerState, gang: GangRecord) -> None:
    """Give members up later whose others do not come: they were refused, say."""
    if gang.lone is None or not gang.lone.is_pending:
        gang.lone = state.call_after(COMPLETE_WITHIN_S, _give_up, gang)


def _give_up(state: SchedulerState, gang: GangRecord) -> None:
    """Fail what waits for members that have not come."""
    if state.awaits_peers:
        _wait_for_others(state, gang)
        return
    text = (
        f"only {len(gang.members)} of the {gang.size} tasks of its gang are known: the others were "
        "refused, or had ended at an earlier scheduler; submit the gang again"
    )
    for task in list(gang.members.values()):
        if task.state in ACTIVE and task.state != PROCESSING:
            err(state, task, data_lost(task.key, text))


def _is_there(task: SchedulerTask | None) -> bool:
    """Return whether a member runs, may run, or has ended, and was not given up by its clients."""
    return task is not None and not (
        task.state == RELEASED and not task.wanted_by and not task.n_waiters
    )


def _is_ready(task: SchedulerTask) -> bool:
    """Return whether a member waits for nothing but places: its conditions are met, too."""
    is_opened = task.group.task_class.key[:1] == tuple(task.group.options.gang[:1])
    return task.state == WAITING and not task.waiting_on and is_opened


def is_ready(gang: GangRecord) -> bool:
    """Return whether all members wait for nothing but places."""
    return len(gang.members) == gang.size and all(map(_is_ready, gang.members.values()))


def _fail(
    state: SchedulerState, gang: GangRecord, first: SchedulerTask, active: list[SchedulerTask]
) -> None:
    """Fail what has not ended, because a member has failed."""
    assert first.failure is not None
    rank = gang.rank_of(first)
    failure = gang_ended(first.failure, rank, gang.size)
    running = _note_ended(state, gang, active, f"ended with its gang: rank {rank} has failed")
    for task in active:
        if task.state in ACTIVE:
            err(state, task, failure, inherited=True)
    _interrupt(state, running)
    gang.revived.clear()
    gang.ready_since = None


def _end_without(
    state: SchedulerState,
    gang: GangRecord,
    active: list[SchedulerTask],
    rank: int,
    *,
    is_over: object,
) -> None:
    """End what has not ended, because a member is not there any more.

    `is_over`: the gang had ended before some were to run again.
    """
    if is_over:
        text = f"it would have to run again with its gang, and the future of rank {rank} is gone"
        for task in active:
            if task.state in ACTIVE:
                err(state, task, data_lost(task.key, text))
        gang.failure = None
        return
    keeper = gangs_of(state).keeper
    for task in active:
        wanted_keys.want(keeper, task)
    reason = f"rank {rank} of its gang was cancelled"
    keys = [task.key for task in active]
    on_cancel(state, keeper, m.CancelKeys(keys=keys, force=True, reason=reason, running=True))
    wanted_keys.drop_functions(state, keeper)


def _stop(state: SchedulerState, gang: GangRecord, running: list[SchedulerTask]) -> None:
    """End the run of a gang: another member has to run again."""
    ended = _note_ended(state, gang, running, "ended with its gang: another member runs again")
    for task in running:
        abandon(state, task)
    by_worker: dict[WorkerHandle, dict[SchedulerTask, None]] = {}
    for task in running:
        assert task.worker is not None
        by_worker.setdefault(task.worker, {})[task] = None
    for ws, tasks in by_worker.items():
        take_back_from(state, ws, tasks)
    _interrupt(state, ended)
    members = [task for task in gang.members.values() if task.state in ACTIVE]
    n_raised = max((state.n_exceptions.get(task, 0) for task in members), default=0)
    if n_raised:
        state.n_exceptions.update(dict.fromkeys(members, n_raised))
    if n_raised > gang.n_raised and (pauses := members[0].group.options.pauses):
        gang.not_before = state.awake_s + pause_s(pauses, gang.name, n_raised)
    gang.n_raised = n_raised
    state.story.note(state.now, "runs again with its gang", [task.key for task in running])


def _run_again(state: SchedulerState, ended: list[SchedulerTask]) -> None:
    """Let members run again that have ended: another one has to."""
    lost = [task for task in ended if task.state == MEMORY]
    for task in lost:
        for ws in task.replicas:
            drop_attempt(state, ws, task.attempt)
            lose_replica(state, task, ws)
    if lost:
        replace_lost(state, lost)
    for task in ended:
        if task.state == ERRED:
            run_again(state, task)
        elif task.state == RELEASED:
            task.delivered = False
            activate(state, task)
        for client in task.wanted_by:
            send_states(state, client, [task.key])


def _note_ended(
    state: SchedulerState, gang: GangRecord, tasks: list[SchedulerTask], cause: str
) -> dict[WorkerHandle, list[int]]:
    """Note that attempts are to end, before they are dropped; those that run are returned."""
    running: dict[WorkerHandle, list[int]] = {}
    for task in tasks:
        ws = task.worker
        if ws is not None and task.attempt not in gang.held_back:
            note_ended(state, ws, task, cause)
            running.setdefault(ws, []).append(task.attempt)
    return running


def _interrupt(state: SchedulerState, running: dict[WorkerHandle, list[int]]) -> None:
    for ws, attempts in running.items():
        interrupt(state, ws, attempts, "gang")


# -- exceptions that are held back -----------------------------------------------------------------
def hold_back(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Take exceptions of members out of a report, while others of their gangs run elsewhere."""
    of_tasks = gangs_of_tasks(state)
    if not of_tasks or gangs_of(state).is_deciding:
        return
    kept: list[int] = []
    queued = message.queued_us or [0] * len(message.attempts)
    for row, attempt in enumerate(message.attempts):
        task, failure = ws.processing.get(attempt), message.failures[row]
        gang = None if task is None else of_tasks.get(task)
        if task is None or gang is None or is_reschedule(failure) or not _runs_elsewhere(gang, ws):
            kept.append(row)
            continue
        held = HeldBack(ws, task, failure, message.durations_us[row], queued[row])
        gang.held_back.setdefault(attempt, held)
        if gang.verdict is None or not gang.verdict.is_pending:
            gang.verdict = state.call_after(VERDICT_S, _decide, gang)
    if len(kept) < len(message.attempts):
        for name in ("attempts", "durations_us", "failures", "queued_us", "fetched_us"):
            column = getattr(message, name)
            setattr(message, name, [column[row] for row in kept] if column else column)


def _runs_elsewhere(gang: GangRecord, ws: WorkerHandle) -> bool:
    return any(task.worker not in (None, ws) for task in gang.members.values())


def _decide(state: SchedulerState, gang: GangRecord) -> None:
    """Count the first exception that was held back, unless a worker may be lost that is away."""
    is_changed = gang in gangs_of(state).changed
    if is_changed or any(task.worker and task.worker.is_away for task in gang.members.values()):
        gang.verdict = state.call_after(VERDICT_S, _decide, gang)
        return
    _drop_held_back(state, gang)
    if not gang.held_back:
        return
    held = next(iter(gang.held_back.values()))
    attempt = held.task.attempt
    del gang.held_back[attempt]
    gangs_of(state).is_deciding = True
    on_erred(
        state,
        held.ws,
        m.AttemptsErred(
            attempts=[attempt],
            durations_us=[held.duration_us],
            failures=[held.failure],
            queued_us=[held.queued_us],
        ),
    )
    gangs_of(state).is_deciding = False
    note_changed(state, gang)


def _drop_held_back(state: SchedulerState, gang: GangRecord) -> None:
    """Forget exceptions of attempts that are not current any more."""
    for attempt, held in list(gang.held_back.items()):
        if held.ws.processing.get(attempt) is not held.task:
            del gang.held_back[attempt]
    if not gang.held_back:
        state.deadlines.cancel(gang.verdict)
