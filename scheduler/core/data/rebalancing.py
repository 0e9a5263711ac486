"""Data that moves from workers with many bytes to those with few, as a client wishes.

A move is a wish for a copy at one worker (`copies`), after which the copy that it is for is
dropped. Keys of which several copies are wanted stay where they are, and so do those that have
several copies already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import keys_of
from ..actors.actors import may_have_copies
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from .copies import Wish, copies_of, follow, is_over, may_hold, names_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_rebalance(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Move some of the named keys, until no move makes two workers more equal.

    Raises:
        BadArgument: the wish cannot be fulfilled.
    """
    names = names_of(message.arguments)
    tasks = [task for key in keys_of(message.arguments) if (task := state.tasks.get(key))]
    workers = [ws for ws in state.staying.values() if not ws.is_away and may_hold(ws, names)]
    wishes = {
        task: Wish(1, task.attempt, (target.address,), moves_from=source)
        for task, source, target in _moves(state, tasks, workers)
    }
    follow(state, peer, message, tasks, wishes)


def _moves(
    state: SchedulerState, tasks: list[SchedulerTask], workers: list[WorkerHandle]
) -> list[tuple[SchedulerTask, WorkerHandle, WorkerHandle]]:
    """Choose what moves: the largest first, each to the worker that has least by then."""
    nbytes = {ws: ws.nbytes for ws in workers}
    takers = [ws for ws in workers if not ws.closed]
    moves: list[tuple[SchedulerTask, WorkerHandle, WorkerHandle]] = []
    if not takers:
        return moves
    for task in sorted(tasks, key=lambda task: -task.nbytes):
        wish = copies_of(state).wishes.get(task)
        is_sole = task.state == MEMORY and len(task.replicas) == 1
        if not is_sole or not may_have_copies(state, task):
            continue
        source = task.replicas[0]
        if source not in nbytes or (wish is not None and not is_over(task, wish)):
            continue
        target = min(takers, key=nbytes.__getitem__)
        if nbytes[target] + task.nbytes < nbytes[source]:
            nbytes[target] += task.nbytes
            nbytes[source] -= task.nbytes
            moves.append((task, source, target))
    return moves
