"""Gangs: tasks that run at the same time on different places, or not at all.

Members wait in a class that no worker may run, also when they are taken back. `seating` assigns all
of them in one pass; `running` sees to it that they end together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import key_conflict, not_understood
from ..feature import Departure, Feature, StateMetric
from ..invariants.checking import differences, is_due
from ..moves.transitions import err
from ..records.peers import KEPT, WorkerHandle
from ..records.tasks import (
    ERRED,
    FORGOTTEN,
    NO_WORKER,
    PROCESSING,
    WAITING,
    SchedulerTask,
    TaskClass,
)
from .living import keep, let_go, note_cancelled
from .records import GangRecord, Gangs, GangsOfTasks, gangs_of, gangs_of_tasks
from .running import (
    forget_dropped,
    hold_back,
    is_coming,
    look_at_changed,
    note_back,
    note_changed,
    on_abandoned,
    on_failed,
    on_ready,
)
from .seating import forget_kept, forget_workers, seat

if TYPE_CHECKING:
    from ....protocol.wire.failure import Failure
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Collection[int],
) -> Mapping[int, Failure]:
    """Return the members that something else is to hold back as well: they begin together."""
    names = [
        [f"gang= beside {name}" for name in ("job_queue", "category") if record.get(name)]
        if record.get("gang")
        else []
        for record in message.options
    ]
    if not any(names):
        return {}
    option_of = message.option_of or [0] * len(message.keys)
    return {
        row: not_understood(message.keys[row], names[place])
        for row, place in enumerate(option_of)
        if names[place] and row not in refused
    }


def _on_submitted(state: SchedulerState, task: SchedulerTask) -> None:
    """Let a task join its gang; also one that a worker has brought."""
    options = task.group.options
    if not options.gang or task in gangs_of_tasks(state) or task.state == FORGOTTEN:
        return
    forget_dropped(state)  # the same batch may have released a gang of this name
    name, rank, size = options.gang[0], int(options.gang[1]), int(options.gang[2])
    gangs = gangs_of(state)
    gang = gangs.by_name.get(name)
    if gang is None:
        gang = gangs.by_name[name] = GangRecord(name, size)
        amounts = tuple(sorted((n, float(a)) for n, a in options.resources.items() if a > 0))
        workers = tuple(sorted(options.workers))
        gang.shape = TaskClass((), workers, options.allow_other_workers, amounts)
    if gang.members.get(rank, task) is not task or gang.size != size:
        err(state, task, key_conflict(task.key))  # a client has given two tasks one place
        return
    gang.members[rank] = task
    gang.is_complete = gang.is_complete or len(gang.members) == size
    gangs_of_tasks(state)[task] = gang
    if task.state in (WAITING, NO_WORKER) and not task.waiting_on:
        gang.revived[task] = None
    note_changed(state, gang)


def _settle(state: SchedulerState) -> None:
    """See what has become of gangs, and seat those that wait, with each assignment pass."""
    gangs = gangs_of(state)
    let_go(state)
    if state.awaits_peers:
        forget_dropped(state)
        return  # members may be running at workers that are not back yet
    look_at_changed(state)
    seat(state)
    if gangs.changed:
        look_at_changed(state)
        seat(state)
    if not gangs_of_tasks(state) and not gangs.changed:
        gangs.ending.clear()
        state.busy.pop(Gangs, None)


def _on_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    forget_workers(state)


def _on_worker_back(state: SchedulerState, ws: WorkerHandle) -> None:
    forget_workers(state)
    note_back(state, ws)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    forget_kept(state, ws)


# -- invariants ------------------------------------------------------------------------------------
def _half_running(state: SchedulerState) -> list[GangRecord]:
    """Return gangs of which some run and some could."""
    found = []
    for gang in gangs_of(state).by_name.values():
        if is_coming(gang):
            continue
        members = gang.members.values()
        is_running = any(task.state == PROCESSING for task in members)
        rest = [task for task in members if task.state in (WAITING, NO_WORKER)]
        if is_running and any(not task.waiting_on for task in rest) and not state.awaits_peers:
            found.append(gang)
    return found


#: Before all features that count exceptions: some are not to be counted yet.
HOLDING_BACK: Final = Feature(name="exceptions in gangs", attempts_erred=(hold_back,))

FEATURE: Final = Feature(
    name="gangs",
    records=(GangsOfTasks, Gangs),
    notes=(GangsOfTasks,),
    refusing=(_refuse,),
    submitted_with={"gang": _on_submitted},
    deferred_ready=(on_ready,),
    settling=((Gangs, _settle),),
    keeps_deferred=(keep,),
    tasks_cancelled=(note_cancelled,),
    task_failed=(on_failed,),
    attempt_abandoned=(on_abandoned,),
    worker_joined=(_on_worker,),
    worker_back=(_on_worker_back,),
    worker_leaving=(forget_kept,),
    worker_gone=(_on_worker_gone,),
    metrics=(
        StateMetric(
            "gangs_waiting",
            "Gangs whose tasks wait for places at the same time.",
            read=lambda state: len(gangs_of(state).waiting) + len(gangs_of(state).too_large),
        ),
    ),
    invariants={
        "a gang lists the tasks that have it": lambda s: differences(
            gangs_of_tasks(s).items(),
            [(t, gang) for gang in gangs_of(s).by_name.values() for t in gang.members.values()],
        ),
        "members are kept of gangs that live on": lambda s: [
            task
            for task in gangs_of(s).keeper.wants
            if gangs_of_tasks(s).get(task) not in gangs_of(s).living_on
        ],
        "a gang runs as a whole": _half_running,
        "gangs that wait have all members": lambda s: [
            gang
            for gangs in (gangs_of(s).waiting, gangs_of(s).too_large)
            for gang in gangs
            if len(gang.members) < gang.size
        ],
        "gangs that are too large do not wait for places": lambda s: [
            gang for gang in gangs_of(s).too_large if gang in gangs_of(s).waiting
        ],
        "workers are kept for a gang that waits": lambda s: (
            differences(gangs_of(s).kept, [ws for ws in s.workers.values() if ws.closed & KEPT])
            + [
                gangs_of(s).kept_for
                for _ in range(bool(gangs_of(s).kept))
                if gangs_of(s).kept_for not in gangs_of(s).waiting
            ]
        ),
        "exceptions that are held back count later": lambda s: [
            gang
            for gang in gangs_of(s).by_name.values()
            if gang.held_back and not is_due(gang.verdict)
        ],
        "gangs are busy while there is one": lambda s: [
            gang for gang in gangs_of(s).by_name.values() if Gangs not in s.busy
        ],
        "no member runs on when another has failed": lambda s: [
            gang
            for gang in gangs_of(s).by_name.values()
            if any(t.state == ERRED for t in gang.members.values())
            and any(t.state == PROCESSING for t in gang.members.values())
            and not s.awaits_peers
        ],
    },
)
