"""Passes what tasks print and log on to the clients that have submitted them.

Workers report only what some client wants, and no more lines per second than their limit. What
comes for a client that is not connected is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.wire import messages as m

if TYPE_CHECKING:
    from .peers import ClientHandle, WorkerHandle
    from .state import SchedulerState


def on_want_output(state: SchedulerState, client: ClientHandle, message: m.WantOutput) -> None:
    """A client wants the output of its tasks, from another level on, or not any more."""
    client.output_level = message.level
    announce_output(state)


def announce_output(state: SchedulerState) -> None:
    """Send workers what is wanted now, if that has changed."""
    wanting = [c for c in state.clients_by_peer.values() if c.output_level]
    level = min((client.output_level for client in wanting), default=0)
    wanted = m.WantOutput(clients=sorted(client.number for client in wanting), level=level)
    if wanted != state.output_wanted:
        state.output_wanted = wanted
        for ws in state.workers.values():
            if ws.peer in state.roles:  # else it is greeted when it is back
                state.send(ws.peer, wanted)


def on_output_of_client_ended(state: SchedulerState, client: ClientHandle) -> None:
    """The connection of a client has ended: its next one begins with what it wants."""
    if client.output_level:
        client.output_level = 0
        announce_output(state)


def greet_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker whose session begins what is wanted."""
    if state.output_wanted.level:
        state.send(ws.peer, state.output_wanted)


def on_task_output(state: SchedulerState, ws: WorkerHandle, message: m.TaskOutput) -> None:
    """A worker reports lines: pass each on to the client for which its task ran."""
    for client in state.clients_by_peer.values():
        if not client.output_level:
            continue
        places = [i for i, number in enumerate(message.clients) if number == client.number]
        if places:
            part = m.TaskOutput(
                clients=[client.number] * len(places),
                keys=[message.keys[i] for i in places],
                levels=[message.levels[i] for i in places],
                names=[message.names[i] for i in places],
                texts=[message.texts[i] for i in places],
                worker=ws.name,
            )
            state.send_client(client, part)
