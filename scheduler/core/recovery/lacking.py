"""Inputs that workers lack, and that nobody has.

Tasks that were adopted without a recipe are not known to wait for an input. So a worker that
asks for one is answered that there is none, and gives such tasks back. The answer is put off as
long as a client may come back that submits them, or what they read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ..assignment.placement import reachable
from ..moves.locating import located
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, WITHOUT_RECIPE, SchedulerTask
from .merging import settle_twins
from .records import BUSY, recovery_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_not_fetched(state: SchedulerState, ws: WorkerHandle, keys: Iterable[str]) -> None:
    """Note the keys that a worker could not fetch, and that it is sent no holder of."""
    if _may_wait(state):
        tasks = state.tasks
        _note(state, ws, [key for key in keys if not _is_answered(state, ws, tasks.get(key))])


def on_erred(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Note the keys of attempts that raise: tasks without a recipe may wait for them there."""
    if _may_wait(state):
        found = [ws.processing.get(a) or recovery_of(state).find(ws, a) for a in message.attempts]
        _note(state, ws, [one.key for one in found if one is not None])


def _may_wait(state: SchedulerState) -> bool:
    """Return whether there may be attempts without a recipe."""
    return state.awaits_owners or WITHOUT_RECIPE in state.classes


def _note(state: SchedulerState, ws: WorkerHandle, keys: list[str]) -> None:
    recovery_of(state).lacking.setdefault(ws, {}).update(dict.fromkeys(keys))
    state.busy[BUSY] = None


def _is_there(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask | None) -> bool:
    return task is not None and task.state == MEMORY and bool(reachable(ws, task, state.now))


def _is_answered(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask | None) -> bool:
    """Return whether a worker has the holders of a key, or is to make it itself."""
    return _is_there(state, ws, task) or (task is not None and task.worker is ws)


def settle(state: SchedulerState) -> None:
    """Settle the attempts that run twice, and answer the workers that need not wait for that."""
    settle_twins(state)
    if not state.awaits_owners:
        answer_lacking(state)
    if not state.twins:
        del state.busy[BUSY]


def answer_lacking(state: SchedulerState) -> None:
    """Name the holders of what workers lack, or report that there are none."""
    recovery = recovery_of(state)
    asked, recovery.lacking = recovery.lacking, {}
    for ws, keys in asked.items():
        tasks = [state.tasks.get(key) for key in keys]
        there = [task for task in tasks if task is not None and _is_there(state, ws, task)]
        unknown = [
            key for key, task in zip(keys, tasks, strict=True) if not _is_answered(state, ws, task)
        ]
        if there:
            holders = [reachable(ws, task, state.now) for task in there]
            state.send(ws.peer, located(ws, there, holders))
        if state.awaits_owners:
            recovery.lacking[ws] = dict.fromkeys(unknown)
        elif unknown and WITHOUT_RECIPE in state.classes:
            state.send(ws.peer, m.KeysUnknown(keys=unknown))
