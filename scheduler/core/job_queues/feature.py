"""Queues of jobs: names that calls give (`queue="nightly"`), which users pause and resume.

A queue is a name only: it has no order of its own, and exists while it is paused. No task of a
paused queue begins; those that run go on. Its tasks are held back when they would be queued, as
those beyond a limit of their user are (`Feature.holding`), so they are no_worker. When a queue is
paused, those that are queued are held, and workers give back what they have not begun, as far as
they have not begun it when they read that. For the same reason its tasks are not assigned ahead of
their inputs, which would pass by the queue of ready tasks.

A journal records which queues are paused, so the next scheduler knows. What it cannot record is
tried again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.columns import MAX_TAG_CHARS
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.options import is_queue_name
from ....protocol.wire.question_arguments import BadArgument
from ..assignment.asking_back import ask_all_back
from ..feature import Feature, LateQuestion, Question
from ..journal.entries import JournalRead, QueueChanged
from ..journal.feature import RETRY_S, answer_when_recorded
from ..journal.jobs import append, journal_of, when_written
from ..moves.transitions import enqueue
from ..records.tasks import NO_WORKER, QUEUED, SchedulerTask

if TYPE_CHECKING:
    from ....protocol.wire.question_arguments import Info, Page
    from ..events import SchedulerTick
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Queues that are paused at a time.
MAX_PAUSED: Final = 1000


class PausedQueues(dict[str, dict[SchedulerTask, None]]):
    """{name of a paused queue: {task: None} of those that are held back}.

    Busy while it has rows.
    """


def paused_queues_of(state: SchedulerState) -> PausedQueues:
    """Return the queues that are paused."""
    return state.record(PausedQueues)


def is_paused(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether the queue of a task is paused."""
    name = task.group.options.job_queue
    return bool(name) and name in paused_queues_of(state)


def is_held_by_queue(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a task waits until its queue is resumed."""
    return task in paused_queues_of(state).get(task.group.options.job_queue, ())


def why_held_by_queue(state: SchedulerState, task: SchedulerTask) -> str:
    """Return why a task that no worker is given does not begin; "" = not because of its queue."""
    if not is_paused(state, task):
        return ""
    name = task.group.options.job_queue
    return f"its queue {name} is paused (weft resume {name} lets it begin)"


# -- tasks are held back ---------------------------------------------------------------------------
def _hold(state: SchedulerState, task: SchedulerTask) -> bool:
    """Hold a task back whose queue is paused."""
    if not is_paused(state, task):
        return False
    paused_queues_of(state)[task.group.options.job_queue][task] = None
    return True


def _on_unfiled(state: SchedulerState, task: SchedulerTask) -> None:
    """Note that a task is not held any more: it is queued, a worker has brought it, or dropped."""
    paused_queues_of(state).get(task.group.options.job_queue, {}).pop(task, None)


def _ask_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker for what it has not begun, if some of that may not begin now."""
    if state.awaits_peers or ws.is_away or ws.inventory is not None:
        return  # it is asked later
    if any(is_paused(state, task) for task in ws.processing.values()):
        ask_all_back(state, ws)


def _ask_all(state: SchedulerState) -> None:
    if paused_queues_of(state):
        for ws in state.workers.values():
            _ask_back(state, ws)


def _on_back(state: SchedulerState, ws: WorkerHandle) -> None:
    if paused_queues_of(state):
        _ask_back(state, ws)


def pause(state: SchedulerState, name: str) -> None:
    """Let no task of a queue begin from now on. O(tasks that are queued or at workers)."""
    paused_queues_of(state)[name] = {}
    state.busy[PausedQueues] = None
    for task_class in list(state.classes.values()):
        for task in task_class.queue.items() if task_class.queue else ():
            if task.group.options.job_queue == name:
                enqueue(state, task)  # which holds it
    _ask_all(state)


def _begin_to_wait(state: SchedulerState, name: str) -> None:
    """Let the time that tasks of a resumed queue wait for a worker that could run them begin."""
    for task_class in state.classes.values():
        unrunnable = {} if task_class.members else task_class.unrunnable
        for task in [t for t in unrunnable if t.group.options.job_queue == name]:
            task.since = state.now
            unrunnable[task] = unrunnable.pop(task)  # they stay in the order of these times


def resume(state: SchedulerState, name: str) -> None:
    """Let the tasks of a queue begin. O(tasks that no worker could run, or that are held back)."""
    _begin_to_wait(state, name)
    held = paused_queues_of(state).pop(name)
    for task in held:
        if task.state == NO_WORKER and task.group.task_class.members and task not in state.paused:
            enqueue(state, task)
    if not paused_queues_of(state):
        del state.busy[PausedQueues]


# -- users -----------------------------------------------------------------------------------------
def name_of(arguments: Info) -> str:
    """Return the argument `name`."""
    name = arguments.get("name")
    if type(name) is not str or not is_queue_name(name):
        raise BadArgument(f"name= is that of a queue: 1 to {MAX_TAG_CHARS} characters, no NUL")
    return name


def on_pause(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Pause a queue; answer when that is recorded."""
    name, paused = name_of(message.arguments), paused_queues_of(state)
    if name not in paused and len(paused) >= MAX_PAUSED:
        text = f"{len(paused)} queues are paused, and no more can be: resume one first"
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    if name in paused:
        answer_when_recorded(state, peer, message)
        return
    pause(state, name)
    state.log("info", f"queue {name} is paused")
    _record(state, name, peer, message)


def on_resume(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Resume a queue; answer when that is recorded."""
    name, paused = name_of(message.arguments), paused_queues_of(state)
    if name not in paused:
        which = ", ".join(sorted(paused)[:3]) or "none"
        text = f"queue {name!r} is not paused; those that are: {which}"
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    resume(state, name)
    state.log("info", f"queue {name} is resumed")
    _record(state, name, peer, message)


def _record(state: SchedulerState, name: str, peer: int, message: m.Ask) -> None:
    """Have it recorded whether a queue is paused, if there is a journal; then answer."""
    if journal_of(state).is_open:
        append(state, QueueChanged(name, name in paused_queues_of(state)))
        when_written(state, partial(_on_recorded, name, peer, message.request))
    else:
        state.send(peer, m.Answer(request=message.request, info={}))


def _on_recorded(name: str, peer: int, request: int, state: SchedulerState, error: str) -> None:
    if error:
        _try_again_later(state, name)
    if peer in state.roles:
        text = f"queue {name} is changed, but that is not recorded yet, and is tried again: {error}"
        failed = m.AskFailed(request=request, kind=NO_ANSWER, text=text)
        state.send(peer, failed if error else m.Answer(request=request, info={}))


def _try_again_later(state: SchedulerState, name: str) -> None:
    state.call_after(RETRY_S, _try_again, name)


def _try_again(state: SchedulerState, name: str) -> None:
    append(state, QueueChanged(name, name in paused_queues_of(state)))
    when_written(state, lambda state, error: _try_again_later(state, name) if error else None)


def ask_paused(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the paused queues, each with the number of tasks that it holds back."""
    found: dict[str, Any] = {name: len(held) for name, held in paused_queues_of(state).items()}
    return {"queues": found}, ""


def _on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take what an earlier scheduler has recorded."""
    for report in event.journal:
        if isinstance(report, JournalRead):
            for name in report.paused:
                pause(state, name)


FEATURE: Final = Feature(
    name="job queues",
    records=(PausedQueues,),
    holding=(_hold,),
    unfiled=(_on_unfiled,),
    worker_back=(_on_back,),
    assignment_begun=(_ask_all,),
    ticked=(_on_ticked,),
    questions={"paused_queues": Question(ask_paused)},
    orders={
        "pause_queue": LateQuestion(on_pause, Level.CLIENT),
        "resume_queue": LateQuestion(on_resume, Level.CLIENT),
    },
    invariants={
        "tasks that a paused queue holds back are no_worker, and are of that queue": lambda s: [
            (name, task)
            for name, held in paused_queues_of(s).items()
            for task in held
            if task.state != NO_WORKER or task.group.options.job_queue != name
        ],
        "no task of a paused queue is queued": lambda s: [
            task for task in s.tasks.values() if task.state == QUEUED and is_paused(s, task)
        ],
        "queues are busy while one is paused": lambda s: (
            [] if not paused_queues_of(s) or PausedQueues in s.busy else [len(paused_queues_of(s))]
        ),
    },
)
