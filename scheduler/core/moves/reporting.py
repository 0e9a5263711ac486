"""Reports to clients about the states of their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.payload import Blob
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import ERRED, MEMORY, SchedulerTask
from .transitions import send_erred

if TYPE_CHECKING:
    from ..state import SchedulerState


def report_results(
    state: SchedulerState,
    ws: WorkerHandle,
    rows: list[tuple[SchedulerTask, Blob | None]],
    text: str = "",
) -> None:
    """Results that are too large to ride along, or that several clients want.

    `text` is for the story, if there is more to say than where they finished.
    """
    inline: dict[ClientHandle, m.ResultsReady] = {}
    remote: dict[ClientHandle, m.KeysInMemory] = {}
    for task, blob in rows:
        for client in task.wanted_by:
            if blob is not None:
                ready = inline.get(client)
                if ready is None:
                    ready = inline[client] = m.ResultsReady(keys=[], results=[])
                ready.keys.append(task.key)
                ready.results.append(blob)
            else:
                known = remote.get(client)
                if known is None:
                    known = remote[client] = m.KeysInMemory(
                        keys=[], nbytes=[], holder_of=[], holders=[ws.address]
                    )
                known.keys.append(task.key)
                known.nbytes.append(task.nbytes)
                known.holder_of.append(0)
        task.delivered = blob is not None
    for client, ready in inline.items():
        state.send_client(client, ready)
    for client, known in remote.items():
        _add_attempts(state, known)
        state.send_client(client, known)
    state.story.note(state.now, text or f"finished on {ws.name}", [task.key for task, _ in rows])


def _add_attempts(state: SchedulerState, message: m.KeysInMemory) -> None:
    """Name the attempts that made unique results, by which clients tell these from later ones."""
    if not any(function_id in state.functions for function_id in state.features.unique):
        return
    tasks = [state.tasks[key] for key in message.keys]
    attempts = [task.attempt if task.group.function.is_unique else 0 for task in tasks]
    if any(attempts):
        message.attempts = attempts


def send_states(state: SchedulerState, client: ClientHandle, keys: list[str]) -> None:
    """Send a client the present state of some keys."""
    pending = []
    in_memory = m.KeysInMemory(keys=[], nbytes=[], holder_of=[], holders=[])
    holders: dict[str, int] = {}
    for key in keys:
        task = state.tasks.get(key)
        if task is None:
            continue
        if task.state == MEMORY:
            holder = task.replicas[0].address
            in_memory.keys.append(key)
            in_memory.nbytes.append(task.nbytes)
            in_memory.holder_of.append(holders.setdefault(holder, len(holders)))
        elif task.state == ERRED:
            assert task.failure is not None
            send_erred(state, client, [key], task.failure)
        else:
            pending.append(key)
    if in_memory.keys:
        in_memory.holders = list(holders)
        _add_attempts(state, in_memory)
        state.send_client(client, in_memory)
    if pending:
        state.send_client(client, m.KeysPending(keys=pending))
