"""Withdrawing: a client cancels tasks only if their calls have not begun.

What no worker has is cancelled at once. The unstarted attempts of a worker are asked back, by their
numbers, and the answer is exact: an attempt that it names as given back never starts there. Those
who asked are kept until the worker answers, and go with it: then the client gets no answer, which
its own time limit covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ..assignment.asking_back import take_in
from ..moves.transitions import ACTIVE
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import PROCESSING, SchedulerTask
from ..requests.submission import on_cancel

if TYPE_CHECKING:
    from ..state import SchedulerState


class Withdrawals(dict[WorkerHandle, dict[int, dict[ClientHandle, str]]]):
    """{worker: {attempt: {client: reason}}} that clients have withdrawn, and it was asked for."""


def withdrawals_of(state: SchedulerState) -> Withdrawals:
    """Return what workers were asked for."""
    return state.record(Withdrawals)


def on_withdraw(state: SchedulerState, client: ClientHandle, message: m.WithdrawKeys) -> None:
    """Cancel what has not been given to a worker, and ask the workers for the rest."""
    unassigned: list[str] = []
    started: list[str] = []
    asked: dict[WorkerHandle, list[int]] = {}
    for key in message.keys:
        task = state.tasks.get(key)
        if task is None or task not in client.wants or task.state not in ACTIVE:
            started.append(key)
        elif task.state != PROCESSING:
            unassigned.append(key)
        else:
            ws = task.worker
            assert ws is not None
            if ws.is_away:  # it may be running there
                started.append(key)
                continue
            at_worker = withdrawals_of(state).setdefault(ws, {})
            at_worker.setdefault(task.attempt, {})[client] = message.reason
            asked.setdefault(ws, []).append(task.attempt)
    for ws, attempts in asked.items():
        state.send(ws.peer, m.WithdrawAttempts(attempts=attempts))
    if started:
        state.send_client(client, m.KeysStarted(keys=started))
    if unassigned:
        on_cancel(state, client, m.CancelKeys(keys=unassigned, force=False, reason=message.reason))


def on_withdrawn(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsWithdrawn) -> None:
    """Cancel what a worker gave back for those who asked for it; report to them what has begun."""
    withdrawn = withdrawals_of(state).pop(ws, {})
    started: dict[ClientHandle, list[str]] = {}
    for attempt in message.started:
        task = ws.processing.get(attempt)
        for client in withdrawn.pop(attempt, ()):
            if task is not None:  # else its end was reported
                started.setdefault(client, []).append(task.key)
    for client, keys in started.items():
        state.send_client(client, m.KeysStarted(keys=keys))
    asked: list[tuple[SchedulerTask, dict[ClientHandle, str]]] = []
    for attempt in message.attempts:
        clients = withdrawn.pop(attempt, None)
        task = ws.processing.get(attempt)
        if clients is not None and task is not None:
            asked.append((task, clients))
    if withdrawn:  # it was asked for these later
        withdrawals_of(state)[ws] = withdrawn
    take_in(state, ws, message.attempts)
    cancelled: dict[tuple[ClientHandle, str], list[str]] = {}
    for task, clients in asked:
        for client, reason in clients.items():
            cancelled.setdefault((client, reason), []).append(task.key)
    for (client, reason), keys in cancelled.items():
        on_cancel(state, client, m.CancelKeys(keys=keys, force=False, reason=reason))
