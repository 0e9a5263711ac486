"""Places for gangs that wait: all members are assigned in one pass, or none is.

A member is given only what is free in this instant, so it begins at once: a thread that nothing
holds, and its amounts. While short tasks refill each thread, that never comes for several at once.
So workers are *kept* for a gang that has waited for `PATIENCE_S`: they are given nothing else until
it is seated. One gang at a time has kept workers: two would hold what the other needs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from ....protocol.amounts import BESIDE, CORES
from ....protocol.wire.failure import user_limit
from ....protocol.wording import counted
from ..assignment.asking_back import LEAST_WAIT_S, ask_all_back, look_again
from ..assignment.assignment import Draft, assign, send_draft
from ..moves.eligibility import lacks, may_run
from ..moves.taking import close, reopen
from ..moves.transitions import enqueue, err, move
from ..moves.unrunnable import file_unrunnable
from ..records.peers import KEPT, ROUNDED, WorkerHandle
from ..records.tasks import NO_WORKER, WAITING, SchedulerTask, TaskClass, TaskGroup
from ..upkeep.running_limits import grant, lacks_room, limit_of
from ..upkeep.user_limits import user_limits_of
from .records import KEEP_S, GangRecord, Gangs, gangs_of, gangs_of_tasks
from .running import is_ready

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A gang that has waited for so long has workers kept, seconds.
PATIENCE_S: Final = 1.0
#: Workers are kept for a gang for so long at most, seconds (first `KEEP_S`, then twice as long).
LONGEST_KEEP_S: Final = 3600.0
#: Gangs that are looked at in one pass: half of them by priority and age, the others in turn.
MAX_GANGS: Final = 32
#: Looks are this far apart for each worker and gang that they look at: 20 times the cost of that.
LOOK_COST_S: Final = 6e-5
#: Looks at so many, after a rest, may follow each other at once.
FEW: Final = 64
#: Workers that an explanation names.
MAX_NAMED: Final = 8


# -- what there is ---------------------------------------------------------------------------------
def _threads_of(shape: TaskClass) -> float:
    """Return the threads that a member takes."""
    amounts = dict(shape.resources)
    return 0.0 if BESIDE in amounts else amounts.get(CORES, 1.0)


def n_at_most(ws: WorkerHandle, shape: TaskClass) -> int:
    """Return how many members a worker can run at once if nothing else runs there."""
    ratios = [ws.resources.get(name, 0.0) / amount for name, amount in shape.resources]
    if threads := _threads_of(shape):
        ratios.append(ws.nthreads / threads)
    return int(min(ratios) + ROUNDED)


def n_now(ws: WorkerHandle, shape: TaskClass, *, is_kept: bool = False) -> int:
    """Return how many members a worker could begin in this instant.

    `is_kept`: what is kept is kept for them.
    """
    if ws.closed & ~(KEPT if is_kept else 0):
        return 0
    ratios = [ws.free_resources.get(name, 0.0) / amount for name, amount in shape.resources]
    if threads := _threads_of(shape):
        ratios.append((ws.nthreads - ws.n_busy) / threads)
    return max(int(min(ratios) + ROUNDED), 0)


def workers_for(state: SchedulerState, gang: GangRecord) -> list[WorkerHandle]:
    """Return the workers that may run members; loose restrictions bind if these suffice."""
    if gang.workers is None:
        shape = gang.shape
        staying = [ws for ws in state.workers.values() if not ws.is_leaving]
        gang.workers = [ws for ws in staying if may_run(ws, shape)]
        if shape.is_loose and not _can_hold(gang, gang.workers):
            gang.workers = [ws for ws in staying if may_run(ws, shape, strictly=False)]
    return gang.workers


def _can_hold(gang: GangRecord, workers: list[WorkerHandle]) -> bool:
    return sum(n_at_most(ws, gang.shape) for ws in workers) >= gang.size


def forget_workers(state: SchedulerState) -> None:
    """Find anew who may run what: a worker has come, or does not stay."""
    gangs = gangs_of(state)
    for gang in gangs.by_name.values():
        gang.workers = None
    gangs.waiting.update(gangs.too_large)
    gangs.too_large.clear()
    gangs.look_at = min(gangs.look_at, state.awake_s)


def forget_kept(state: SchedulerState, ws: WorkerHandle) -> None:
    """Keep a worker no longer: it does not stay."""
    if ws in gangs_of(state).kept:
        del gangs_of(state).kept[ws]
        ws.closed &= ~KEPT
    forget_workers(state)


# -- seating ---------------------------------------------------------------------------------------
def seat(state: SchedulerState) -> None:
    """Seat the gangs for which there is room, best priority and oldest first."""
    gangs = gangs_of(state)
    if gangs.kept_for is not None and gangs.kept_for not in gangs.waiting:
        _open_kept(state)
    if not gangs.waiting:
        return
    if state.awake_s < gangs.look_at:
        look_again(state, max(gangs.look_at - state.awake_s, LEAST_WAIT_S))
        return
    drafts: dict[WorkerHandle, Draft] = {}
    n_seen, next_s = len(gangs.waiting), inf
    patient: list[GangRecord] = []
    for gang in _next_to_look_at(gangs):
        workers = workers_for(state, gang)
        n_seen += len(workers)
        if not _can_hold(gang, workers):
            _set_aside(state, gang)
            continue
        if not is_ready(gang):
            _take_up(state, gang)
            continue  # it is looked at again in this pass, or an input of it was lost
        if (left_s := _left_s(state, gang)) > 0:
            next_s = min(next_s, left_s)
            continue
        if lacks_room(state, gang.members.values()):
            _refuse_beyond_limit(state, gang)
            if gangs.kept_for is gang:
                _open_kept(state)
            continue
        is_kept = gangs.kept_for is gang
        room = {ws: n for ws in workers if (n := n_now(ws, gang.shape, is_kept=is_kept))}
        if sum(room.values()) >= gang.size:
            _assign(state, gang, room, drafts)
            continue
        assert gang.ready_since is not None
        left_s = gang.ready_since + PATIENCE_S - state.awake_s
        if left_s > 0:
            next_s = min(next_s, left_s)
        else:
            patient.append(gang)
    if gangs.kept_for is not None and gangs.kept_for not in gangs.waiting:
        _open_kept(state)
    if gangs.kept_for is not None:
        _keep(state, gangs.kept_for)
    patient.sort(key=lambda gang: gang.keep_s)  # those behind that had their time in vain
    for gang in patient:
        if gangs.kept_for is not None:
            break
        if state.awake_s < gangs.open_until:
            look_again(state, gangs.open_until - state.awake_s)
            break
        _keep(state, gang)
        n_seen += len(workers_for(state, gang))
    for ws, draft in drafts.items():
        send_draft(state, ws, draft)
    if gangs.waiting:
        least = state.awake_s - FEW * LOOK_COST_S
        gangs.look_at = max(gangs.look_at, least) + n_seen * LOOK_COST_S
        if next_s < inf:
            look_again(state, max(next_s, LEAST_WAIT_S))  # a deadline may come a little early
        if gangs.n_in_turn:
            look_again(state, max(gangs.look_at - state.awake_s, LEAST_WAIT_S))


def _next_to_look_at(gangs: Gangs) -> list[GangRecord]:
    """Return the gangs of one look, by priority and age; when all had their turn, it is 0 again."""
    waiting = sorted(gangs.waiting, key=lambda gang: gang.priority)
    if len(waiting) <= MAX_GANGS:
        gangs.n_in_turn = 0
        return waiting
    first, others = waiting[: MAX_GANGS // 2], waiting[MAX_GANGS // 2 :]
    begin, gangs.n_in_turn = gangs.n_in_turn, gangs.n_in_turn + MAX_GANGS // 2
    if gangs.n_in_turn >= len(others):
        gangs.n_in_turn = 0
    return first + others[begin : begin + MAX_GANGS // 2]


def _left_s(state: SchedulerState, gang: GangRecord) -> float:
    """Return for how long a gang waits yet for its pause, or for the end of its last run."""
    gang.ending = [
        (ws, attempt)
        for ws, attempt in gang.ending
        if attempt in ws.zombies and state.workers.get(ws.peer) is ws
    ]
    until = max(gang.not_before, gang.ending_until if gang.ending else 0.0)
    return until - state.awake_s


def _assign(
    state: SchedulerState,
    gang: GangRecord,
    room: dict[WorkerHandle, int],
    drafts: dict[WorkerHandle, Draft],
) -> None:
    """Assign all members: the ranks of one worker follow each other."""
    places: list[WorkerHandle] = []
    for ws in sorted(room, key=lambda ws: -room[ws]):
        places += [ws] * min(room[ws], gang.size - len(places))
    addresses = [ws.address for ws in places]
    run = f"{gang.name}-{state.next_attempt}"  # no other run has this attempt
    grant(state, gang.members.values())
    del gangs_of(state).waiting[gang]
    gang.ready_since, gang.is_over, gang.keep_s = None, False, KEEP_S
    for rank in range(gang.size):
        task, ws = gang.members[rank], places[rank]
        _give_seat(task, [run, str(rank), *addresses])
        since = getattr(task, "since", task.group.submitted)
        assign(state, drafts, task, ws)
        task.since = since
    state.counters.tasks_assigned_ahead -= gang.size  # none is ahead of its inputs
    state.story.note(state.now, "begins with its gang", [t.key for t in gang.members.values()])


def _give_seat(task: SchedulerTask, seats: list[str]) -> None:
    """Note in the options of a task, for its worker, who runs with it and where."""
    old = task.group
    common = old.generation, old.client, old.submitted
    options = old.options.changed(gang_seats=seats)
    task.group = TaskGroup(old.function, old.task_class, *common, options, old.user)


def _refuse_beyond_limit(state: SchedulerState, gang: GangRecord) -> None:
    """Fail a gang that is larger than the number of tasks of its user that may run at a time."""
    limit = limit_of(state, gang.members[0])
    if gang.size <= limit:
        return  # until others of its user have ended
    user = gang.members[0].group.user
    setting = user_limits_of(state).setting(user, "running")
    for task in list(gang.members.values()):
        if task.state == WAITING:
            failure = user_limit(task.key, user.name, setting, limit, gang.size, user.nbytes)
            err(state, task, failure)


# -- too large -------------------------------------------------------------------------------------
def _set_aside(state: SchedulerState, gang: GangRecord) -> None:
    """Let members wait for workers: those that there are cannot hold all of them."""
    gangs = gangs_of(state)
    del gangs.waiting[gang]
    gangs.too_large[gang] = None
    for task in gang.members.values():
        if task.state == WAITING and not task.waiting_on:
            move(state, task, NO_WORKER)
            file_unrunnable(state, task)


def _take_up(state: SchedulerState, gang: GangRecord) -> None:
    """Let members wait for places again."""
    for task in list(gang.members.values()):
        if task.state == NO_WORKER:
            enqueue(state, task)


# -- keeping ---------------------------------------------------------------------------------------
def _keep(state: SchedulerState, gang: GangRecord) -> None:
    """Keep workers for a gang, as many as can hold it, or none if these are not to be had."""
    gangs = gangs_of(state)
    if gangs.kept_for is gang and state.awake_s >= gangs.keep_until:
        gangs.open_until = state.awake_s + gang.keep_s
        gang.keep_s = min(2 * gang.keep_s, LONGEST_KEEP_S)
        _open_kept(state)
        return
    # Since then one may have been paused, or what runs there may have begun to wait.
    useless = [ws for ws in gangs.kept if ws.closed != KEPT or not _is_free_in_time(ws, gang)]
    _open(state, useless)
    n_held = sum(n_at_most(ws, gang.shape) for ws in gangs.kept)
    if n_held < gang.size and not _keep_others(state, gang, n_held):
        _open_kept(state)  # some are away, paused, or held by what waits
        return
    if gangs.kept_for is not gang:
        gangs.kept_for = gang
        gangs.keep_until = state.awake_s + gang.keep_s
    look_again(state, gangs.keep_until - state.awake_s)


def _keep_others(state: SchedulerState, gang: GangRecord, n_held: int) -> bool:
    """Keep more workers than those that hold `n_held` of a gang, if they suffice then.

    Those are first that have least to do.
    """
    others = [ws for ws in workers_for(state, gang) if not ws.closed and _is_free_in_time(ws, gang)]
    others.sort(key=lambda ws: (-n_now(ws, gang.shape), ws.occupancy_ns))
    if n_held + sum(n_at_most(ws, gang.shape) for ws in others) < gang.size:
        return False
    for ws in others:
        if n_held >= gang.size:
            break
        gangs_of(state).kept[ws] = None
        close(state, ws, KEPT)
        ask_all_back(state, ws)
        n_held += n_at_most(ws, gang.shape)
    state.story.note(state.now, "workers are kept for it", [t.key for t in gang.members.values()])
    return True


def _is_free_in_time(ws: WorkerHandle, gang: GangRecord) -> bool:
    """Return whether no attempt that waits holds what members need: it may wait for this worker."""
    names = {name for name, _ in gang.shape.resources}
    for attempt in ws.blocked:
        task = ws.processing.get(attempt)
        amounts = ws.zombies.get(attempt, ()) if task is None else task.group.task_class.resources
        if any(name in names for name, _ in amounts):
            return False
    return True


def _open_kept(state: SchedulerState) -> None:
    """Give all workers to others again that were kept."""
    gangs_of(state).kept_for = None
    _open(state, list(gangs_of(state).kept))


def _open(state: SchedulerState, kept: list[WorkerHandle]) -> None:
    """Give workers to others again that were kept."""
    for ws in kept:
        del gangs_of(state).kept[ws]
        reopen(state, ws, KEPT)
        for worker_opened in state.features.worker_opened:
            worker_opened(state, ws)


# -- what is said of it ----------------------------------------------------------------------------
def why_waiting(state: SchedulerState, task: SchedulerTask) -> tuple[str, list[str]]:
    """Return why a member waits whose inputs are there, and further facts; "" = it is none."""
    gang = gangs_of_tasks(state).get(task)
    if gang is None:
        return "", []
    n_here = len(gang.members)
    if n_here < gang.size:
        return f"for the other tasks of its gang: {n_here} of {gang.size} are known", []
    others = [t for t in gang.members.values() if t.waiting_on and t.state == WAITING]
    if others:
        return f"for the inputs of {others[0].key}, with which it begins", []
    if (left_s := _left_s(state, gang)) > 0:
        return f"for the end of its gang's last run, or for a pause: {left_s:.3g} s at most", []
    if lacks_room(state, gang.members.values()):
        limit = limit_of(state, task)
        return f"for other tasks of its user to end, of which {limit} may run at a time", []
    workers = workers_for(state, gang)
    is_kept = gangs_of(state).kept_for is gang
    room = {ws: n_now(ws, gang.shape, is_kept=is_kept) for ws in workers}
    n_room = sum(room.values())
    text = (
        f"for {counted(gang.size, 'place')} at one moment, for all of its gang; there are "
        f"{n_room}, at {counted(len(workers), 'worker')} that may run them "
        f"({gang.shape.restrictions})"
    )
    details = [f"worker {ws.name}: room for {n} of them" for ws, n in room.items()][:MAX_NAMED]
    if is_kept:
        names = ", ".join(ws.name for ws in gangs_of(state).kept)
        details.append(f"kept for it, and given nothing else: {names}")
    elif (other := gangs_of(state).kept_for) is not None:
        details.append(f"workers are kept for gang {other.name}, which comes first")
    return text, details


def what_workers_hold(state: SchedulerState, task: SchedulerTask) -> list[str]:
    """Return how many members each worker could run if nothing else ran, or why none."""
    shape = gangs_of_tasks(state)[task].shape
    staying = [ws for ws in state.workers.values() if not ws.is_leaving][:MAX_NAMED]
    holding = [
        " and ".join(lacks(ws, shape)) or f"can run {n_at_most(ws, shape)} of them"
        for ws in staying
    ]
    return [f"worker {ws.name} {text}" for ws, text in zip(staying, holding, strict=True)]


def why_too_large(state: SchedulerState, task_class: TaskClass) -> str:
    """Return why the workers cannot hold the gang of this class; "" = it is not one of a gang."""
    task = next(iter(task_class.unrunnable), None)
    gang = None if task is None else gangs_of_tasks(state).get(task)
    if gang is None:
        return ""
    workers = [ws for ws in state.workers.values() if not ws.is_leaving]
    n = sum(n_at_most(ws, gang.shape) for ws in workers if may_run(ws, gang.shape))
    what = f"all {gang.size} tasks of a gang ({gang.shape.restrictions} each)"
    there = f"{counted(len(workers), 'worker')} connected"
    return f"the workers cannot run {what} at the same time: they hold {n} ({there})"


def n_lacking(
    state: SchedulerState,
    n_at_once: Callable[[TaskClass], int],
    counts: Callable[[TaskClass], bool],
) -> int:
    """Return how many workers more would hold each gang that waits, if workers may run it at all.

    Args:
        state: the scheduler's.
        n_at_once: returns how many tasks of a class one more worker runs at a time.
        counts: returns whether gangs of a class count.
    """
    lacking = 0
    gangs = gangs_of(state)
    for gang in (*gangs.waiting, *gangs.too_large):
        if not counts(gang.shape):
            continue
        n_there = sum(n_at_most(ws, gang.shape) for ws in workers_for(state, gang))
        if n_there or not state.staying:
            lacking = max(lacking, -(-(gang.size - n_there) // n_at_once(gang.shape)))
    return lacking
