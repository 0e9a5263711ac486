"""Running tasks that are to end: their thread is interrupted, later their process is ended.

A client cancels with `running`, and nobody else wants the tasks; or attempts take longer than they
may (`time_limits`). The attempts are dropped as any, so each holds its thread until the worker
reports its end (`WorkerHandle.zombies`); the worker is asked to interrupt them as well. What has
not ended after `END_PROCESS_AFTER_S` waits in code that no exception reaches, or swallows it: then
the worker's supervisor is asked to end the process and to start another one. Its other tasks are
placed again. It reports no attempt that ran, because none of them has caused that: it counts
towards the crash limit only of those on whose behalf overdue attempts ran.

A worker without a supervisor shares the process of a program (`processes=False`), which cannot be
ended for a task: this is logged, and the thread stays occupied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.death_facts import DeathFacts
from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_FACTS
from ....protocol.wire.question_arguments import BadArgument
from ....protocol.wording import counted
from ..members.lost_workers import blame, with_callers
from .interrupted import interruptions_of, note_cancelled

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Why a worker ends that a client has restarted; its supervisor reports the same text.
RESTARTED: Final = "restarted, because a client asked for it"
#: A running task has this long to end after it was asked to, seconds.
END_PROCESS_AFTER_S: Final = 5.0


def interrupt_cancelled(state: SchedulerState, ws: WorkerHandle, keys: dict[int, str]) -> None:
    """Have the dropped attempts of cancelled tasks interrupted."""
    note_cancelled(state, ws, keys)
    interrupt(state, ws, list(keys), "cancelled")


def interrupt(state: SchedulerState, ws: WorkerHandle, attempts: list[int], why: str = "") -> None:
    """Have dropped attempts interrupted, and their process ended if some go on.

    They were noted as interrupted. `why` is a word: the tasks are "cancelled" or "overdue"; without
    it the process is not ended.
    """
    state.send(ws.peer, m.InterruptAttempts(attempts=attempts))
    if why:
        state.call_after(END_PROCESS_AFTER_S, _end_process, ws, attempts, why)
    interruptions_of(state).n_interrupted += len(attempts)


def _end_process(state: SchedulerState, ws: WorkerHandle, attempts: list[int], why: str) -> None:
    left = [attempt for attempt in attempts if attempt in interruptions_of(state)]
    if not left or state.workers.get(ws.peer) is not ws:
        return
    what = f"{counted(len(left), f'{why} task')} did not end within {END_PROCESS_AFTER_S:g} s"
    reason = f"ended by weft, because {what} after being interrupted"
    if end_process(state, ws, reason):
        for attempt in left:
            interruptions_of(state)[attempt].is_killed = True
        _blame_callers(state, ws, left, reason)
        text = f"{what} at worker {ws.name}: its process is ended, and another one is started"
    else:
        text = (
            f"{what} at worker {ws.name}, whose process cannot be ended: it is that of the program "
            "(processes=False), or it has no supervisor. Each occupies a thread until it ends"
        )
    state.log("warning", text, "task-not-interrupted")


def _blame_callers(
    state: SchedulerState, ws: WorkerHandle, attempts: list[int], reason: str
) -> None:
    """Count the end of a process against the tasks in it on whose behalf overdue attempts ran.

    They run again and submit these anew, with all retries: nothing else would count how often.
    """
    overdue = (interruptions_of(state)[attempt].task for attempt in attempts)
    callers = [task.group.options.attempt for task in overdue if task is not None]
    blamed = with_callers(callers, ws.processing)
    for caller in [ws.processing[a] for a in blamed if a in ws.processing]:
        blame(state, caller, ws, reason, DeathFacts())


def on_restart(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Have the processes of workers replaced, as a client asks; the answer says of which.

    Workers are named by their ids, which no later process has, so the question may be repeated.

    Raises:
        BadArgument: the ids are no texts, or too many for one answer.
    """
    ids = message.arguments.get("workers")
    if type(ids) is not list or not all(type(worker_id) is str for worker_id in ids):
        raise BadArgument("workers= are the ids of workers")
    if len(ids) > MAX_FACTS:
        raise BadArgument(f"{len(ids)} workers are more than the limit of {MAX_FACTS} at once")
    ends: dict[str, str] = {}
    for worker_id in dict.fromkeys(ids):
        ws = state.workers_by_id.get(worker_id)
        if ws is None:
            ends[worker_id] = "gone"
        elif end_process(state, ws, RESTARTED):
            ends[worker_id] = "asked"
        else:
            ends[worker_id] = "no supervisor"
    state.send(peer, m.Answer(request=message.request, info={"workers": ends}))


def end_process(state: SchedulerState, ws: WorkerHandle, reason: str) -> bool:
    """Ask a worker's supervisor to end its process and to start another; False if it has none."""
    supervisors = state.supervisors_by_id.get(ws.supervisor_id)
    if not supervisors:
        return False
    latest = next(reversed(supervisors))
    state.send(latest, m.EndWorkers(worker_ids=[ws.worker_id], reason=reason))
    return True
