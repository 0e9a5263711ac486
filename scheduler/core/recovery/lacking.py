"""Inputs that workers lack, and that nobody has.

The scheduler takes back what waits for such an input, as far as it knows that. It does not know it
of attempts of an earlier scheduler that went on without having started. Their tasks may be without
a recipe, or have another one: a client that has got the result of a call submits a task that only
returns it. So a worker that asks for an input is answered that there is none, and gives back all
that waits for it there. The answer is put off as long as a client may come back that submits the
call of something that waits there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ..assignment.placement import reachable
from ..moves.locating import located
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from .merging import settle_twins
from .records import Recovery, look_again, recovery_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_not_fetched(state: SchedulerState, ws: WorkerHandle, keys: Iterable[str]) -> None:
    """Note the keys that a worker could not fetch, and that it is sent no holder of."""
    if recovery_of(state).open_attempts(ws):
        tasks = state.tasks
        _note(state, ws, [key for key in keys if not _is_answered(state, ws, tasks.get(key))])


def on_erred(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsErred) -> None:
    """Note the keys of attempts that raise: others may wait for them there, and it is not known."""
    if recovery_of(state).open_attempts(ws):
        found = [ws.processing.get(a) or recovery_of(state).find(ws, a) for a in message.attempts]
        _note(state, ws, [one.key for one in found if one is not None])


def _note(state: SchedulerState, ws: WorkerHandle, keys: list[str]) -> None:
    if keys:
        recovery_of(state).lacking.setdefault(ws, {}).update(dict.fromkeys(keys))
        look_again(state, ws)


def _is_there(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask | None) -> bool:
    return task is not None and task.state == MEMORY and bool(reachable(ws, task, state.now))


def _is_answered(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask | None) -> bool:
    """Return whether a worker has the holders of a key, or is to make it itself."""
    return _is_there(state, ws, task) or (task is not None and task.worker is ws)


def settle(state: SchedulerState) -> None:
    """Settle the attempts that run twice, and answer the workers that need not wait for that."""
    settle_twins(state)
    if recovery_of(state).has_news:
        answer_lacking(state)
    if not recovery_of(state).twins:
        del state.busy[Recovery]


def _may_be_told(state: SchedulerState, ws: WorkerHandle, attempts: list[int]) -> bool:
    """Return whether a peer may come back and tell what one of these attempts reads."""
    if state.awaits_peers or not state.awaits_owners:
        return state.awaits_peers
    processing = ws.processing
    return any(a not in processing or processing[a].is_without_recipe for a in attempts)


def answer_lacking(state: SchedulerState) -> None:
    """Name the holders of what workers lack, or report that there are none."""
    recovery = recovery_of(state)
    recovery.has_news = False
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
        attempts = recovery.open_attempts(ws) if unknown else []
        if attempts and _may_be_told(state, ws, attempts):
            recovery.lacking[ws] = dict.fromkeys(unknown)
        elif attempts:
            state.send(ws.peer, m.KeysUnknown(keys=unknown))
