"""Clients in the tasks of workers: what they may do, on whose behalf, and until when.

The process of a worker has the token of a worker, which permits no submission. A client in its
tasks registers in a role of its own (`Role.TASK_CLIENT`), with the id of the worker and the pass
that the scheduler has sent to that worker alone. It may send fewer messages than a client, as they
declare. Each of its submissions names the attempt on whose behalf it is made: that of a task which
runs on that worker now, and which a client has submitted, or such a task. So the right to submit
follows from that client's, through any number of tasks, and ends with each of them. An attempt
that has ended, or runs beside the current one, may count further (`Feature.may_submit`).

What is submitted on behalf of a task belongs to the turns of the client for which that task runs,
and has its place in the queue: right behind it. So recursion goes depth first, and few tasks wait
at a time.

The client ends with its worker, at once. While only the worker's connection is broken, both are
kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, not_permitted
from ....protocol.wire.levels import Level
from ..records.peers import ClientHandle
from ..records.permissions import deny
from ..records.priority import rank_of
from ..requests import submission

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_submit(state: SchedulerState, client: ClientHandle, message: m.SubmitTasks) -> None:
    """Create the tasks of those rows that name an attempt which runs on the client's worker."""
    ws = client.worker
    assert ws is not None, "the role says so"
    all_options = message.options or [{}]
    attempts = [options.get("attempt", 0) for options in all_options]
    runs = [
        attempt in ws.processing
        or any(may_submit(state, ws, options, attempt) for may_submit in state.features.may_submit)
        for attempt, options in zip(attempts, all_options, strict=True)
    ]
    option_of = message.option_of or [0] * len(message.keys)
    refused: dict[int, Failure] = {}
    if not all(runs):
        state.counters.denied += 1
        refused = {
            row: not_permitted(message.keys[row], attempts[place])
            for row, place in enumerate(option_of)
            if not runs[place]
        }
    if not message.ranks:
        parents = [ws.processing.get(attempt) for attempt in attempts]
        if all(parents):  # so no row was refused, and `option_of` is that of the message
            ranks = [0 if parent is None else rank_of(parent.priority) for parent in parents]
            message = replace(message, ranks=[ranks[place] for place in option_of])
    submission.on_submit(state, client, message, refused)


def on_cancel(state: SchedulerState, client: ClientHandle, message: m.CancelKeys) -> None:
    """End the want of the client; those of others take the token of a client."""
    if message.force:
        assert client.peer is not None, "messages come over connections"
        deny(state, client.peer, message, Level.CLIENT)
    else:
        submission.on_cancel(state, client, message)
