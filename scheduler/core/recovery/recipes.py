"""What becomes of tasks without a recipe: some peers may come back with them.

Such tasks are made in `moves/without_recipe.py`. What is still without a recipe and without data
when the recovery ends is unknown. What loses its only copy later, or is given back unstarted, is
lost if no client submits it again: one may be there that does not know that it should.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import data_lost, scattered_lost
from ..journal.reading import reads
from ..moves import without_recipe
from ..moves.transitions import err, release_unneeded
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import NO_WORKER, SchedulerTask
from ..requests import wanted_keys
from . import merging, rows
from .records import recovery_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Clients that can submit a lost task again have so long for it, seconds; then what needs it fails.
RESUBMIT_S: Final = 10.0
_UNKNOWN: Final = (
    "a task needs it, and neither a worker nor a client of the last scheduler has come back with "
    "it; submit its call again"
)
_NO_RECIPE: Final = (
    "its only copy was lost with a worker, and the client that could compute it again has not come "
    "back since the scheduler was restarted; submit its call again"
)


def may_come(state: SchedulerState, key: str, spec_hash: bytes) -> bool:
    """Return whether a key without a task may turn out to be known to a worker or a client."""
    return state.awaits_peers or any(
        m.NO_HASH in (spec_hash, row.spec_hash) or row.spec_hash == spec_hash
        for row in recovery_of(state).rows.get(key, ())
    )


def on_given(
    state: SchedulerState, task: SchedulerTask, ws: WorkerHandle | None, attempt: int
) -> None:
    """Merge what is known of a task that has got its recipe; go on with the attempt that ran it."""
    rows.take_all(state, [task.key])
    if ws is not None:
        merging.go_on(state, ws, task, attempt)
        if task.worker is ws and task.attempt == attempt:
            merging.follow_unstarted(state, ws, task)  # nobody has noted whether it has started


def keep(state: SchedulerState, task: SchedulerTask) -> bool:
    """Keep an unneeded result that cannot be made again, for a client that may come back.

    A client that comes back can submit the task of any other result again.
    """
    if task.is_without_recipe or _may_be_kept(state, task):
        recovery_of(state).kept[task] = None
        return True
    return False


def _may_be_kept(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a client that is not back yet may have a future of this unique result."""
    barrier = recovery_of(state).barrier
    return (
        barrier is not None
        and barrier.awaits_clients
        and task.attempt < state.first_attempt
        and task.group.function.is_unique
    )


def on_needed(state: SchedulerState, task: SchedulerTask) -> None:
    """Give up a task whose data is not there, unless a peer may come with that."""
    if not state.awaits_peers:
        lost = recovery_of(state).lost
        if not lost:
            state.call_after(0.0, _give_up_lost)
        lost.append(task)


def _give_up_lost(state: SchedulerState) -> None:
    """Let clients submit again what is lost; give up what they do not."""
    recovery = recovery_of(state)
    tasks, recovery.lost = recovery.lost, []
    asked = [t for t in _without_recipe(state, tasks) if t.wanted_by and not _is_scattered(t)]
    if asked:
        _ask_clients(state, asked)
        state.call_after(RESUBMIT_S, _give_up_without_recipe, asked)
        chosen = set(asked)
        tasks = [t for t in tasks if t not in chosen]
    _give_up_without_recipe(state, tasks)


def _give_up_without_recipe(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Fail tasks whose data is lost and that no client can compute again."""
    for task in _without_recipe(state, tasks):
        if task.wanted_by or task.n_waiters:
            failure = data_lost(task.key, _NO_RECIPE)
            err(state, task, scattered_lost(task.key) if _is_scattered(task) else failure)


def forget_unknown(state: SchedulerState) -> int:
    """Give up the keys that no peer has come back with; return how many clients wanted."""
    task_class = state.classes.get(without_recipe.CLASS_KEY)
    if task_class is None:
        return 0
    tasks = list(task_class.unrunnable)
    n_lost = sum(bool(task.wanted_by) for task in _without_recipe(state, tasks))
    _ask_clients(state, tasks)
    for task in _without_recipe(state, tasks):
        if task.n_waiters:
            err(state, task, data_lost(task.key, _UNKNOWN))
    return n_lost


def _is_scattered(task: SchedulerTask) -> bool:
    return task.group.function.function_id == m.PUT_FUNCTION


def _without_recipe(
    state: SchedulerState, tasks: Iterable[SchedulerTask]
) -> Iterator[SchedulerTask]:
    """Yield those that have neither data nor recipe, and are not read from the journal.

    One may end with one before it.
    """
    for task in tasks:
        if task.state == NO_WORKER and task.is_without_recipe and not reads(state, task.key):
            yield task


def _ask_clients(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """End the wants of tasks without a recipe: clients that can will submit these again.

    A task that no other one needs is forgotten.
    """
    by_client: dict[ClientHandle, list[str]] = {}
    for task in _without_recipe(state, tasks):
        for client in task.wanted_by:
            by_client.setdefault(client, []).append(task.key)
            wanted_keys.unwant(client, task)
        if not task.n_waiters:
            release_unneeded(state, [task])
    for client, keys in by_client.items():
        state.send_client(client, m.KeysUnknown(keys=keys))
        wanted_keys.drop_functions(state, client)
