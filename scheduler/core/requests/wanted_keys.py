"""Handles what clients hold: wants, which keep a task, and releases, which end them.

A want is written in two places that always agree: `ClientHandle.wants` and
`SchedulerTask.wanted_by`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import data_lost
from ..moves.reporting import send_states
from ..moves.transitions import activate, release_unneeded, retire_function
from ..moves.without_recipe import make
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, MEMORY, NO_WORKER, RELEASED, Function, SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState

_LOST: Final = data_lost("", "")  #: what becomes of a task without an input


def want(client: ClientHandle, task: SchedulerTask) -> None:
    """Note that a client holds a future of the task (again: no effect)."""
    if task not in client.wants:
        client.wants[task] = None
        task.wanted_by = (*task.wanted_by, client) if task.wanted_by else client.alone
        task.delivered = False


def on_want(state: SchedulerState, client: ClientHandle, message: m.WantKeys) -> None:
    """Record that a client holds futures that it did not submit, or is back; send their states."""
    unknown = []
    known = []
    is_unlinked: dict[SchedulerTask, bool] = {}
    for i, key in enumerate(message.keys):
        task = state.tasks.get(key)
        if task is None:
            spec_hash = message.spec_hashes[i] if message.spec_hashes else m.NO_HASH
            task = want_unknown(state, client, key, spec_hash)
            if task is None:
                unknown.append(key)
                continue
            if task.state == MEMORY:
                continue  # the client was sent that a worker has it
        elif is_other(message, task, i):
            unknown.append(key)
            continue
        if _is_unlinked(task, is_unlinked) or _is_remade(state, message, task, i):
            unknown.append(key)
            continue
        want(client, task)
        task.delivered = False
        if task.state == RELEASED:
            activate(state, task)
        if task.state != NO_WORKER or not (task.is_without_recipe and state.awaits_peers):
            known.append(key)  # else peers may still come with it
    for key, attempt in zip(message.keys, message.attempts, strict=False):
        if attempt and (task := state.tasks.get(key)) in client.wants:
            assert task is not None
            for unique_wanted in state.features.unique_wanted:
                unique_wanted(state, task)
    send_states(state, client, known)
    if unknown:
        # Until the client submits these anew it has no wish that it could withdraw.
        _release(state, client, unknown)
        state.send_client(client, m.KeysUnknown(keys=unknown))


def may_come(state: SchedulerState, key: str, spec_hash: bytes = m.NO_HASH) -> bool:
    """Return whether a key without a task may turn out to be known to a worker or a client."""
    return any(come(state, key, spec_hash) for come in state.features.may_come)


def note_made(state: SchedulerState, keys: Iterable[str]) -> None:
    """Let features follow that keys have got tasks."""
    for tasks_made in state.features.tasks_made:
        tasks_made(state, keys)


def want_unknown(
    state: SchedulerState, client: ClientHandle, key: str, spec_hash: bytes = m.NO_HASH
) -> SchedulerTask | None:
    """Let a client want a key without a task; return that, or None if it is unknown for good."""
    if not may_come(state, key, spec_hash):
        return None
    task = make(state, key, spec_hash)
    want(client, task)
    activate(state, task)
    note_made(state, [key])
    if task.state == NO_WORKER and not may_come(state, key, spec_hash):
        unwant(client, task)
        release_unneeded(state, [task])
        drop_functions(state, client)
        return None
    return task


def _is_unlinked(task: SchedulerTask, known: dict[SchedulerTask, bool]) -> bool:
    """Return whether a task failed because it, or one before it, was submitted without an input.

    Another client did that, or this one in an earlier session: this client may be able to submit it
    together with the input. `known` has the answers so far, so that each task is looked at once.
    """
    if task.state != ERRED and (task.args is not None or task.is_without_recipe):
        return False
    if task not in known:
        seen = [task]
        known[task] = False
        for failed in seen:  # grows while it is walked
            for d in failed.dependencies:
                is_failed = d.state == ERRED or (d.args is None and not d.is_without_recipe)
                if is_failed and d not in known:
                    known[d] = False
                    seen.append(d)
        stack = [t for t in seen if t.args is None and (t.failure or _LOST)[0] == _LOST[0]]
        stack += [t for t in seen if any(known.get(d) for d in t.dependencies)]
        while stack:
            failed = stack.pop()
            known[failed] = True
            stack.extend(d for d in failed.dependents or () if known.get(d) is False)
    return known[task]


def _is_remade(state: SchedulerState, message: m.WantKeys, task: SchedulerTask, row: int) -> bool:
    """Return whether the unique result that a client knows is gone, and not only its failure left.

    The task has another one, which another client had made anew, or would have to make one.
    """
    known = message.attempts[row] if message.attempts else 0
    if not known or task.state == ERRED or task.is_without_recipe:
        return False
    if task.state == MEMORY:
        return task.attempt != known
    return not state.awaits_peers  # else its worker may still come back with it


def is_other(message: m.SubmitTasks | m.WantKeys, task: SchedulerTask, row: int) -> bool:
    """Return whether a task has the name of a row, but another content."""
    if not message.spec_hashes or not task.spec_hash:
        return False
    # A client that holds a future of a named key need not know its hash.
    known, claimed = task.spec_hash, message.spec_hashes[row]
    return m.NO_HASH not in (known, claimed) and known != claimed


def on_release(state: SchedulerState, client: ClientHandle, message: m.ReleaseKeys) -> None:
    """Note that the client's last future of each key is gone."""
    _release(state, client, message.keys)


def on_release_others(
    state: SchedulerState, client: ClientHandle, message: m.ReleaseOthers
) -> None:
    """Release the client's tasks of these names, except those whose content is the given one."""
    hashes = {key: t.spec_hash for key in message.keys if (t := state.tasks.get(key)) is not None}
    pairs = zip(message.keys, message.spec_hashes, strict=True)
    _release(state, client, [k for k, spec_hash in pairs if hashes.get(k) not in (None, spec_hash)])


def _release(state: SchedulerState, client: ClientHandle, keys: list[str]) -> None:
    tasks, refused = state.tasks, client.refused
    for key in keys if refused else ():
        refused.pop(key, None)
    unneeded = []
    for key in keys:
        task = tasks.get(key)
        if task is not None and task in client.wants:
            unwant(client, task)
            if not task.wanted_by and not task.n_waiters:
                unneeded.append(task)
    unneeded.reverse()  # the work list is a stack: first released, first dropped
    release_unneeded(state, unneeded)
    if client.functions:
        drop_functions(state, client)


def unwant(client: ClientHandle, task: SchedulerTask) -> None:
    """Undo `want`."""
    del client.wants[task]
    if task.wanted_by is client.alone:
        task.wanted_by = ()
    else:
        others = [c for c in task.wanted_by if c is not client]
        task.wanted_by = others[0].alone if len(others) == 1 else tuple(others)


def keep_function(client: ClientHandle, function: Function, refused: str = "") -> None:
    """Keep a function of a row that was refused, with its key, or whose task has another one."""
    if refused and client.receive is None:
        client.refused[refused] = None
    if function not in client.functions:
        client.functions[function] = None
        function.n_tasks += 1


def drop_functions(state: SchedulerState, client: ClientHandle) -> None:
    """Drop the kept functions of a client that holds no key any more."""
    if client.wants or client.refused:
        return
    functions, client.functions = client.functions, {}
    for function in functions:
        function.n_tasks -= 1
        if not function.n_tasks:
            retire_function(state, function)
