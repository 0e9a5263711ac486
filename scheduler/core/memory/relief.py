"""What ends when memory is exhausted: the newest wanted results, so that the rest lives.

Workers that spill make room themselves, so this is for what spilling cannot help: it is off, or the
disk is full, or as much is spilled as may be.

Two things show that waiting does not help. Tasks of a class wait for memory, and for `STALLED_S`
nothing has gone on that could make room for them: each worker that may run them is full or paused,
none runs what may change that, and none that is paused has spilled more. Or `N_KILLS` processes
were killed within `KILLS_S` because of the results in them, which are computed again, and fill the
next one.

Then tasks that only prefer these workers may go to others, until one of these has room again. Else
results of the client that has most fail with `MemoryExceeded`: its newest ones, those that
wait and those in memory, until the rest fits; of killed processes the newer half. Clients whose
tasks wait are sent a notice before that.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import memory_exceeded
from ....protocol.wording import counted, lasting, sized
from ..actors.actors import is_actor
from ..moves.eligibility import fill_class, may_run
from ..moves.transitions import ACTIVE, err
from ..records.tasks import MEMORY, NO_WORKER, SchedulerTask, TaskClass
from .full import FULL_SHARE, is_full_of_results, is_let_go
from .records import Kill, expected_at, memory_of
from .usage import spilled_nbytes, used_nbytes

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..records.presence import LostWorker
    from ..state import SchedulerState

#: Tasks that are set aside are looked at so often.
LOOK_S: Final = 1.0
#: They fail when nothing has gone on for so long.
STALLED_S: Final = 5.0
#: So many processes that are killed for their results within this time are too many.
N_KILLS: Final = 3
KILLS_S: Final = 60.0
#: A process that held less than this part of its limit was not killed for its results.
HELD_SHARE: Final = 0.6
#: Queued tasks of a class that are looked at when a paused worker does not get them.
MAX_QUEUED_SEEN: Final = 1000
#: A paused worker that makes no room is given up on after so many further reports.
N_REPORTS: Final = 3
#: Keys and workers named in a notice.
MAX_KEYS_NAMED: Final = 20
MAX_WORKERS_NAMED: Final = 3

_REMEDY: Final = (
    "release results, or let tasks reduce them; make the pieces smaller; or have more workers, or "
    "more memory for each (memory_limit=)"
)


def judge(state: SchedulerState) -> None:
    """See for which tasks that wait for memory waiting does not help; called each second."""
    memory = memory_of(state)
    for task_class in unbound_classes(state):
        # What has been queued a moment ago is not placed yet.
        waits = task_class.queue or task_class in memory.aside.by_class
        if not waits or any(not ws.closed and may_run(ws, task_class) for ws in task_class.members):
            _bind(state, task_class)
    if not (memory.aside or memory.paused):
        memory.stalled.clear()
        memory.noticed.clear()
        return
    now = state.awake_s
    memory.stalled = {c: memory.stalled.get(c, now) for c in _stalled(state)}
    if not memory.stalled:
        return
    if now - min(memory.stalled.values()) >= state.settings.unrunnable_after_s:
        _notify(state)
    # What a paused worker does is known from its reports only, and these may be late.
    silent = {ws: None for ws, pause in memory.paused.items() if pause.n_reports < N_REPORTS}
    over = {
        c: None
        for c, since in memory.stalled.items()
        if now - since >= STALLED_S and silent.keys().isdisjoint(c.members)
    }
    if over:
        memory.stalled.clear()
        # Those that others may run go there, and only what is left costs results.
        left = [c for c in over if not _unbind(state, c)]
        if left:
            _relieve(state, left)


def _stalled(state: SchedulerState) -> list[TaskClass]:
    """Return the classes of waiting tasks for which nothing goes on that may make room.

    A worker of others has room, or is expected back; or it runs what may make some.
    """
    memory = memory_of(state)
    clients = {task.group.client: None for task in memory.aside}
    queued = [c for c in state.ready if c.takes_thread] if memory.paused else []
    for task_class in queued:
        clients.update((client, None) for _, client in task_class.queue.rotation.lanes)
    spill = {
        ws: None for ws, pause in memory.paused.items() if spilled_nbytes(ws) > pause.spilled_nbytes
    }
    for ws, pause in memory.paused.items():
        pause.spilled_nbytes = spilled_nbytes(ws)
        if ws in spill:
            pause.n_reports = 0
    stalled = {
        ws: None for ws in state.staying.values() if ws not in spill and not _goes_on(ws, clients)
    }
    classes = dict.fromkeys((*memory.aside.by_class, *queued))
    return [c for c in classes if all(ws in stalled for ws in c.members)]


def _goes_on(ws: WorkerHandle, clients: Container[int]) -> bool:
    """Return whether a worker has room, is expected back, or runs what may make some for these.

    Where results fill it, that is a task of theirs which is not known to be small: its end may let
    its inputs go, or its client go on. Else it may be any task: they take memory while they run.
    """
    if ws.is_away or not (ws.is_full or ws.is_paused):
        return True
    is_any = not is_full_of_results(ws)
    for attempt, task in ws.processing.items():
        if attempt in ws.blocked:
            continue
        if is_any:
            return True
        if task.group.client not in clients:
            continue
        prefix = task.group.prefix
        if not prefix.n_finished or prefix.result_nbytes:
            return True
        if any(map(is_let_go, task.dependencies)):
            return True
    return False


def _notify(state: SchedulerState) -> None:
    """Send each client, once, that tasks of it wait for memory."""
    memory = memory_of(state)
    keys: dict[ClientHandle, list[str]] = {}
    for task_class in memory.stalled:
        for task in _waiting(state, task_class):
            for client in task.wanted_by:
                if client not in memory.noticed:
                    keys.setdefault(client, []).append(task.key)
    for client, waiting in keys.items():
        memory.noticed[client] = None
        reason = f"{_filled_text(state, _members(memory.stalled))}: {_REMEDY}"
        state.send_client(client, m.KeysUnrunnable(keys=waiting[:MAX_KEYS_NAMED], reason=reason))


# -- who goes elsewhere ----------------------------------------------------------------------------
def unbound_classes(state: SchedulerState) -> list[TaskClass]:
    """Return the classes whose loose restrictions do not bind now."""
    return [task_class for task_class in state.classes.values() if task_class.is_unbound]


def _bind(state: SchedulerState, task_class: TaskClass) -> None:
    """Let the loose restrictions of a class bind again."""
    task_class.is_unbound = False
    fill_class(state, task_class)


def _unbind(state: SchedulerState, task_class: TaskClass) -> bool:
    """Let a class run where only its loose restrictions forbid it; return whether that is new."""
    if task_class.is_unbound or not task_class.is_loose:
        return False
    n_before = len(task_class.members)
    task_class.is_unbound = True
    fill_class(state, task_class)
    task_class.is_unbound = len(task_class.members) > n_before
    return task_class.is_unbound


# -- who gives way ---------------------------------------------------------------------------------
def _relieve(state: SchedulerState, classes: Iterable[TaskClass]) -> None:
    """Fail the newest results of the client that has most, so that the others go on.

    Only what these classes wait for counts, and what is at workers that may run them. Actors give
    no way.
    """
    aside = [task for c in classes for task in _waiting(state, c)]
    full = _members(classes)
    holders = [ws for ws in full if is_full_of_results(ws)]
    there = {t: None for ws in holders for t in ws.has_what if not is_actor(t)}
    sizes: dict[int, int] = {}
    for task in (*there, *aside):
        client = task.group.client
        sizes[client] = sizes.get(client, 0) + _size(task)
    greedy = max(sizes, key=sizes.__getitem__)
    kept = [task for task in there if task.group.client == greedy]
    waiting = [task for task in aside if task.group.client == greedy and _adds(task)]
    victims = _victims(state, full, aside, kept, waiting) or waiting
    if not victims:
        return  # not results fill them: that these fail would make no room
    text = (
        f"{_filled_text(state, full)}, and nothing has made room for {lasting(STALLED_S)}; "
        f"{_shares(kept, waiting)}"
    )
    _give_way(state, victims, text)


def _waiting(state: SchedulerState, task_class: TaskClass) -> list[SchedulerTask]:
    """Return the tasks of a class that wait for memory; of those in a queue some."""
    found = list(memory_of(state).aside.by_class.get(task_class, ()))
    if memory_of(state).paused and task_class in state.ready:
        found += islice(task_class.queue.some(), MAX_QUEUED_SEEN)
    return found


def _adds(task: SchedulerTask) -> bool:
    """Return whether a task that waits for memory would add to it: of a queue some only read."""
    return task.state == NO_WORKER or task.group.prefix.result_nbytes > 0


def _size(task: SchedulerTask) -> int:
    """Return what a result takes, or may take."""
    return task.nbytes if task.state == MEMORY else task.group.prefix.result_nbytes


def _victims(
    state: SchedulerState,
    full: Iterable[WorkerHandle],
    aside: Iterable[SchedulerTask],
    kept: Iterable[SchedulerTask],
    waiting: Iterable[SchedulerTask],
) -> list[SchedulerTask]:
    """Return the newest of these results without which the others fit that are wanted.

    What the workers run counts with what it is expected to add: it may wait for what is aside.
    """
    missing = sum(map(_size, aside))
    for ws in full:
        missing += used_nbytes(ws) + expected_at(state, ws).nbytes
        missing -= int(FULL_SHARE * ws.memory_limit)
    n_left = len(list(aside))
    found: list[SchedulerTask] = []
    for task in _newest_first((*waiting, *(t for t in kept if t.wanted_by))):
        if missing <= 0 or not n_left:
            break
        missing -= _size(task)
        n_left -= task.state != MEMORY
        found.append(task)
    return found


def _members(classes: Iterable[TaskClass]) -> dict[WorkerHandle, None]:
    return {ws: None for task_class in classes for ws in task_class.members}


def _filled_text(state: SchedulerState, full: Collection[WorkerHandle]) -> str:
    is_all = len(full) == len(state.staying)
    which = "all workers" if is_all else "each worker that may run the task"
    return f"the memory of {which} is filled to {FULL_SHARE:.0%} or more ({_usage(full)})"


def _usage(workers: Collection[WorkerHandle]) -> str:
    """Return what the first of some workers use: `w0 uses 330 of 400 MiB, w1 ...`."""
    parts = [
        f"{ws.name} uses {sized(used_nbytes(ws))}"
        + (f" of {sized(ws.memory_limit)}" if ws.memory_limit else ", and has no limit")
        for ws in islice(workers, MAX_WORKERS_NAMED)
    ]
    if len(workers) > MAX_WORKERS_NAMED:
        parts.append(f"and {len(workers) - MAX_WORKERS_NAMED} more")
    return ", ".join(parts)


def _newest_first(tasks: Iterable[SchedulerTask]) -> list[SchedulerTask]:
    return sorted(tasks, key=lambda task: (task.group.submitted, task.priority), reverse=True)


def _shares(kept: list[SchedulerTask], waiting: list[SchedulerTask]) -> str:
    """Return how much of a client is there, and how much more was wanted."""
    text = f"{counted(len(kept), 'result')} of this client {_take(kept)}"
    if waiting:
        more = counted(len(waiting), "more task")
        text += f", and {more} would add {sized(sum(map(_size, waiting)))}"
    return text


def _take(tasks: list[SchedulerTask]) -> str:
    verb = "takes" if len(tasks) == 1 else "take"
    return f"{verb} {sized(sum(task.nbytes for task in tasks))}"


def _give_way(state: SchedulerState, victims: list[SchedulerTask], text: str) -> None:
    first = victims[0].group
    if first.function.function_id == m.PUT_FUNCTION:
        what = counted(len(victims), "value") + " that clients put at workers"
    else:
        what = f"{counted(len(victims), 'task')} of {first.prefix.name}"
    state.log(
        "warning",
        f"{what}, and what needs them, fail with MemoryExceeded: {text}",
        "memory-exceeded",
    )
    for task in _newest_first(victims):
        if task.state in ACTIVE or task.state == MEMORY:
            err(state, task, memory_exceeded(task.key, f"{text}; {_REMEDY}"))


# -- killed workers --------------------------------------------------------------------------------
def note_kill(state: SchedulerState, lost: LostWorker, running: Collection[SchedulerTask]) -> None:
    """Note that a process was killed for its memory.

    Args:
        state: the scheduler's.
        lost: its worker, and what this had. Results whose only copy it had count if they filled it,
            and were of a client whose task ran just then: else that task is too large for it,
            whatever it held. If none ran, copies have filled it as well.
        running: the tasks that ran.
    """
    ws = lost.worker
    clients = {task.group.client: None for task in running}
    results = [t for t in lost.sole.values() if not clients or t.group.client in clients]
    nbytes = sum(task.nbytes for task in results)
    if not running:
        nbytes = max(nbytes, sum(held.nbytes for held in lost.held_most))
    if not results or nbytes < HELD_SHARE * ws.memory_limit:
        return
    kills = memory_of(state).kills
    kills.append(Kill(state.awake_s, ws.name, results))
    while kills[0].when < state.awake_s - KILLS_S:
        kills.popleft()
    if len(kills) < N_KILLS:
        state.call_after(KILLS_S, _forget_kills)
        return
    by_client: dict[int, dict[SchedulerTask, None]] = {}
    for kill in kills:
        for task in kill.results:
            if task.state in ACTIVE or task.state == MEMORY:
                by_client.setdefault(task.group.client, {})[task] = None
    names = ", ".join(dict.fromkeys(kill.worker for kill in kills))
    kills.clear()
    if not by_client:
        return
    most = list(max(by_client.values(), key=lambda tasks: sum(t.nbytes for t in tasks)))
    text = (
        f"{N_KILLS} processes of workers were killed within {lasting(KILLS_S)} because they used "
        f"more memory than their limit ({names}), each time with results that are computed again; "
        f"{counted(len(most), 'result')} of this client {_take(most)}"
    )
    _give_way(state, _newest_first(most)[: -(-len(most) // 2)], text)


def _forget_kills(state: SchedulerState) -> None:
    """Forget what was too long ago to count."""
    kills = memory_of(state).kills
    while kills and kills[0].when <= state.awake_s - KILLS_S:
        kills.popleft()
