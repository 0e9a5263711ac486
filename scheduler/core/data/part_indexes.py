"""Values with parts: tasks that read one part of each of many results depend on one index.

A result may consist of parts. A shuffle has n tasks whose results have m parts each, and m tasks
that read one part of all n results. With an edge for each pair the scheduler would keep n x m
edges. Instead the m tasks depend on an *index*, a task without a function that depends on the n.
Its value says which attempts made these results, and where they are. The scheduler makes it, and
sends it to a worker as a value that a client puts there (`puts`). Its readers request the parts
from their holders.

What differs from a task whose result is of no further use to its inputs:

- While an index is in memory, its inputs are kept for those that read it, as
  `SchedulerTask.is_keeping` says.
- If the last copy of an input is lost, the index is lost with it, because those that read it would
  miss parts. Workers give back the readers that they have not started: each would wait for the
  lost holder.
- If a worker reports that it did not get parts, and the index names one for an input that does not
  hold it today, it is made again.

The scheduler knows neither the number of parts nor who reads which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.part_index import OUT_OF_REACH, PartIndex, as_value
from ..assignment.asking_back import ask_all_back
from ..avoidance.moving import is_reschedule
from ..invariants.checking import tasks_in
from ..moves.locating import MAX_HOLDERS
from ..moves.transitions import drop_at_workers
from ..records.peers import TAKES_NOTHING, WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from ..reports.missing import give_up_unreachable, replace_lost

if TYPE_CHECKING:
    from ..state import SchedulerState


class PartIndexes(dict[int, SchedulerTask]):
    """{attempt: its index} of those whose arrival is not reported; some are not current."""


class NamedHolders(dict[SchedulerTask, list[tuple[WorkerHandle, ...]]]):
    """{index: the holders of its inputs that its last value names, in their order}.

    Each index has a row that keeps its inputs, or whose value is on its way.
    """


def place(state: SchedulerState, give: Callable[[SchedulerTask, WorkerHandle], None]) -> None:
    """Give all queued indexes to workers, whatever these run: an index takes no room."""
    for task_class in state.threadless:
        if task_class not in state.ready or not task_class.keeps_inputs:
            continue
        members = [ws for ws in task_class.members if not ws.closed & TAKES_NOTHING]
        if not members:
            continue
        least = min(members, key=lambda ws: ws.nbytes)
        while (task := task_class.queue.pop()) is not None:
            task_class.queue.left_ns -= task.group.prefix.estimate_ns
            give(task, least)
        state.ready.remove(task_class)


def send(state: SchedulerState, tasks: Iterable[SchedulerTask]) -> None:
    """Send the values of indexes to the workers to which they are assigned."""
    awaited = state.record(PartIndexes)
    for attempt in [attempt for attempt, task in awaited.items() if task.attempt != attempt]:
        del awaited[attempt]
    for task in tasks:
        ws = task.worker
        assert ws is not None
        awaited[task.attempt] = task
        named = [d.replicas[:MAX_HOLDERS] for d in task.dependencies]
        state.record(NamedHolders)[task] = named
        numbers: dict[str, int] = {}
        index = PartIndex(
            [d.key for d in task.dependencies],
            [d.attempt for d in task.dependencies],
            [[numbers.setdefault(w.address, len(numbers)) for w in some] for some in named],
            list(numbers),
        )
        value = as_value(index)
        put = m.Put(request=0, keys=[task.key], attempts=[task.attempt], values=[value])
        state.send(ws.peer, put)


def on_finished(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsFinished) -> None:
    """Keep the inputs of the indexes that are in memory now, before they are dropped."""
    awaited = state.record(PartIndexes)
    if not awaited:
        return
    lost = []
    for attempt in message.attempts:
        task = awaited.pop(attempt, None)
        if task is not None and task.state == MEMORY and task.attempt == attempt:
            _keep_inputs(task)
            if _is_stale(state, task):
                lost.append(task)
    if lost:
        replace_lost(state, lost)


def _keep_inputs(task: SchedulerTask) -> None:
    task.waiting_on = {}
    for dependency in task.dependencies:
        dependency.n_waiters += 1


def _is_stale(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether an index names no holder of today for one of its inputs."""
    named = state.record(NamedHolders)[task]
    return any(
        before is not dependency.replicas and not any(ws in dependency.replicas for ws in before)
        for before, dependency in zip(named, task.dependencies, strict=True)
    )


def _misleads(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether an index names workers that do not hold an input today.

    Each worker that it is sent to would find that out by itself, with one attempt for each of them.
    """
    named = state.record(NamedHolders)[task]
    return any(
        before is not dependency.replicas and any(ws not in dependency.replicas for ws in before)
        for before, dependency in zip(named, task.dependencies, strict=True)
    )


def on_not_fetched(state: SchedulerState, _ws: WorkerHandle, keys: list[str]) -> None:
    """Make indexes again whose readers were sent to workers that do not have the parts."""
    if not state.record(NamedHolders):
        return
    found: dict[SchedulerTask, None] = {}
    for key in keys:
        task = state.tasks.get(key)
        for dependent in (task.dependents if task is not None else None) or ():
            if dependent.is_keeping:
                found[dependent] = None
    misleading = [task for task in found if _misleads(state, task)]
    if misleading:
        replace_lost(state, misleading)


def on_erred(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Let readers fail that do not reach a holder, wherever they run, as others do."""
    if not state.record(NamedHolders):
        return
    readers = [
        ws.processing[attempt]
        for attempt, failure in zip(message.attempts, message.failures, strict=True)
        if is_reschedule(failure)
        and failure[2].startswith(OUT_OF_REACH)
        and attempt in ws.processing
    ]
    if readers and ws.unreachable:
        holder = max(ws.unreachable, key=lambda holder: ws.unreachable[holder].last)
        give_up_unreachable(state, ws, holder.address, readers)


def on_results_lost(state: SchedulerState, lost: list[SchedulerTask]) -> list[SchedulerTask]:
    """Lose the indexes with their inputs, and let go what they have kept.

    What an index is still needed for needs these inputs: they are made again with it.
    """
    if not state.record(NamedHolders):
        return lost
    found = dict.fromkeys(lost)
    indexes = []
    for task in [*lost, *(reader for one in lost for reader in one.dependents or ())]:
        if task.is_keeping:
            task.waiting_on = None
            found[task] = None
            indexes.append(task)
    workers: dict[WorkerHandle, None] = {}
    for index in indexes:
        drop_at_workers(state, index)
        for reader in index.dependents or ():
            if reader.worker is not None:
                workers[reader.worker] = None
        for dependency in index.dependencies:
            dependency.n_waiters -= 1
            if dependency in found and not (dependency.n_waiters or dependency.wanted_by):
                state.counters.tasks_recomputed += 1
    for ws in workers:
        ask_all_back(state, ws)
    return list(found)


def on_recipe_given(
    state: SchedulerState, task: SchedulerTask, _ws: WorkerHandle | None, _attempt: int
) -> None:
    """Make an index again that an earlier scheduler has made: now it has its inputs."""
    if task.group.options.keeps_inputs and task.state == MEMORY and not task.is_keeping:
        _keep_inputs(task)
        state.record(NamedHolders)[task] = [()] * len(task.dependencies)
        replace_lost(state, [task])


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
INDEX_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "an index in memory keeps its inputs": lambda s: [
        t
        for t in tasks_in(s, MEMORY)
        if t.is_keeping != (t.group.options.keeps_inputs and not t.is_without_recipe)
    ],
    "what an index in memory names is known": lambda s: [
        t for t in tasks_in(s, MEMORY) if t.is_keeping and t not in s.record(NamedHolders)
    ],
    "the inputs of an index in memory are in memory": lambda s: [
        (t, d)
        for t in tasks_in(s, MEMORY)
        if t.is_keeping
        for d in t.dependencies
        if d.state != MEMORY
    ],
}
