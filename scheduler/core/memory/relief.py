"""What ends when memory is exhausted: the newest wanted results, so that the rest lives.

Two things show that waiting does not help. Tasks are set aside, and for `STALLED_S` nothing has
gone on that could make room for them: each worker that may run them is full, and none runs a task
of the same clients whose end may change that. Or `N_KILLS` processes were killed within `KILLS_S`
with results in them, which are computed again, and fill the next one.

Then results of the client that has most fail with `MemoryExceeded`: those that wait for memory; if
it has none, its newest ones in memory, as many as there is too little room; of killed processes the
newer half. Clients whose tasks wait are sent a notice before that.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import memory_exceeded
from ....protocol.wording import counted, lasting, sized
from ..actors import is_actor
from ..tasks import MEMORY, SchedulerTask
from ..transitions import ACTIVE, err
from .full import FULL_SHARE, is_let_go, usage_text, used_nbytes
from .records import Kill

if TYPE_CHECKING:
    from ..peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState
    from ..tasks import TaskClass

#: Tasks that are set aside are looked at so often.
LOOK_S: Final = 1.0
#: They fail when nothing has gone on for so long.
STALLED_S: Final = 5.0
#: So many processes that are killed for their memory within this time are too many.
N_KILLS: Final = 3
KILLS_S: Final = 60.0
#: A process that held less than this part of its limit was not killed for its results.
HELD_SHARE: Final = 0.3
#: Keys named in a notice.
MAX_KEYS_NAMED: Final = 20

_REMEDY: Final = (
    "release results, or let tasks reduce them; make the pieces smaller; or have more workers, or "
    "more memory for each (memory_limit=)"
)


def watch(state: SchedulerState) -> None:
    """Look at the tasks that are set aside, in a while."""
    if state.memory.look is None:
        state.memory.look = state.call_after(LOOK_S, _look)


def _look(state: SchedulerState) -> None:
    memory = state.memory
    memory.look = None
    for task in [task for task in memory.aside if not task.group.task_class.members]:
        del memory.aside[task]  # there is no worker for it at all
    if not memory.aside:
        memory.stalled.clear()
        memory.noticed.clear()
        return
    watch(state)
    state.touched.update((ws, None) for ws in state.staying.values() if not ws.is_away)
    now = state.awake_s
    memory.stalled = {c: memory.stalled.get(c, now) for c in _stalled(state)}
    if not memory.stalled:
        return
    if now - min(memory.stalled.values()) >= state.unrunnable_after_s:
        _notify(state)
    over = {c: None for c, since in memory.stalled.items() if now - since >= STALLED_S}
    if over:
        memory.stalled.clear()
        _relieve(state, over)


def _stalled(state: SchedulerState) -> list[TaskClass]:
    """Return the classes of what is set aside for which nothing goes on that may make room.

    A worker of others has room, or is expected back; or one runs a task of a client whose tasks are
    set aside, which is not known to be small: its end may let its inputs go, or its client go on.
    """
    aside = state.memory.aside
    clients = {task.group.client: None for task in aside}
    stalled = {ws: None for ws in state.staying.values() if not _goes_on(ws, clients)}
    classes = dict.fromkeys(task.group.task_class for task in aside)
    return [c for c in classes if all(ws in stalled for ws in c.members)]


def _goes_on(ws: WorkerHandle, clients: Container[int]) -> bool:
    """Return whether a worker has room, or runs what may make some for these clients."""
    if not ws.is_full:
        return True
    for attempt, task in ws.processing.items():
        if task.group.client not in clients or attempt in ws.blocked:
            continue
        prefix = task.group.prefix
        if not prefix.n_finished or prefix.result_nbytes:
            return True
        if any(map(is_let_go, task.dependencies)):
            return True
    return False


def _notify(state: SchedulerState) -> None:
    """Send each client, once, that tasks of it wait for memory."""
    memory = state.memory
    keys: dict[ClientHandle, list[str]] = {}
    for task in memory.aside:
        if task.group.task_class not in memory.stalled:
            continue
        for client in task.wanted_by:
            if client not in memory.noticed:
                keys.setdefault(client, []).append(task.key)
    for client, waiting in keys.items():
        memory.noticed[client] = None
        full = _members(memory.stalled)
        reason = f"{_filled_text(state, full)}: {_REMEDY}"
        state.send_client(client, m.KeysUnrunnable(keys=waiting[:MAX_KEYS_NAMED], reason=reason))


# -- who gives way ---------------------------------------------------------------------------------
def _relieve(state: SchedulerState, classes: Container[TaskClass]) -> None:
    """Fail the newest wanted results of the client that has most, so that the others go on.

    Only what these classes wait for counts, and what is at workers that may run them.
    """
    aside = [task for task in state.memory.aside if task.group.task_class in classes]
    full = _members(task.group.task_class for task in aside)
    sizes: dict[int, int] = {}
    for ws in full:
        for task in ws.has_what:
            sizes[task.group.client] = sizes.get(task.group.client, 0) + task.nbytes
    for task in aside:
        client = task.group.client
        sizes[client] = sizes.get(client, 0) + task.group.prefix.result_nbytes
    greedy = max(sizes, key=sizes.__getitem__)
    waiting = [task for task in aside if task.group.client == greedy]
    victims = waiting or _newest_held(greedy, full, aside) or aside
    text = (
        f"{_filled_text(state, full)}, and nothing has made room for {lasting(STALLED_S)}; "
        f"{_shares(greedy, full, waiting)}"
    )
    _fail(state, victims, text)


def _members(classes: Iterable[TaskClass]) -> dict[WorkerHandle, None]:
    return {ws: None for task_class in dict.fromkeys(classes) for ws in task_class.members}


def _filled_text(state: SchedulerState, full: Collection[WorkerHandle]) -> str:
    is_all = len(full) == len(state.staying)
    which = "all workers" if is_all else "each worker that may run the task"
    return f"the memory of {which} is filled to {FULL_SHARE:.0%} or more ({usage_text(full)})"


def _newest_held(
    client: int, full: Iterable[WorkerHandle], aside: Iterable[SchedulerTask]
) -> list[SchedulerTask]:
    """Return the newest results of a client that together make room for what waits."""
    missing = max(task.group.prefix.result_nbytes for task in aside)
    missing += sum(max(used_nbytes(ws) - int(FULL_SHARE * ws.memory_limit), 0) for ws in full)
    held = {task: None for ws in full for task in ws.has_what if task.group.client == client}
    found = []
    for task in _newest_first(task for task in held if task.wanted_by and not is_actor(task)):
        if missing <= 0:
            break
        missing -= task.nbytes
        found.append(task)
    return found


def _newest_first(tasks: Iterable[SchedulerTask]) -> list[SchedulerTask]:
    return sorted(tasks, key=lambda task: (task.group.submitted, task.priority), reverse=True)


def _shares(client: int, full: Iterable[WorkerHandle], waiting: list[SchedulerTask]) -> str:
    """Return how much of a client is there, and how much more was wanted."""
    held = [t for ws in full for t in ws.has_what if t.group.client == client]
    text = f"{counted(len(held), 'result')} of this client {_take(held)}"
    if waiting:
        expected = sum(task.group.prefix.result_nbytes for task in waiting)
        more = counted(len(waiting), "more task")
        text += f", and {more} would add {sized(expected)}"
    return text


def _take(tasks: list[SchedulerTask]) -> str:
    verb = "takes" if len(tasks) == 1 else "take"
    return f"{verb} {sized(sum(task.nbytes for task in tasks))}"


def _fail(state: SchedulerState, victims: list[SchedulerTask], text: str) -> None:
    state.log(
        "warning",
        f"{counted(len(victims), 'task')} of {victims[0].group.prefix.name} and what needs them "
        f"fail with MemoryExceeded: {text}",
    )
    for task in _newest_first(victims):
        if task.state in ACTIVE or task.state == MEMORY:
            err(state, task, memory_exceeded(task.key, f"{text}; {_REMEDY}"))


# -- killed workers --------------------------------------------------------------------------------
def note_kill(state: SchedulerState, ws: WorkerHandle, results: list[SchedulerTask]) -> None:
    """Note that a process was killed for its memory, and whose results were lost with it."""
    if sum(task.nbytes for task in results) < HELD_SHARE * ws.memory_limit:
        return  # what it ran was too large for it
    kills = state.memory.kills
    kills.append(Kill(state.awake_s, ws.name, results))
    while kills[0].when < state.awake_s - KILLS_S:
        kills.popleft()
    if len(kills) < N_KILLS:
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
    _fail(state, _newest_first(most)[: -(-len(most) // 2)], text)
