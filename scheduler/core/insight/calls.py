"""The call of a task, sent to a client that runs it by itself, for instance in a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import BadArgument, keys_of
from ..records.tasks import ERRED, SchedulerTask

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_ask_call(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Send the function and the arguments of a task; of one that failed with an input, of that.

    Raises:
        BadArgument: it is not known, or has no call.
    """
    keys = keys_of(message.arguments)
    if len(keys) != 1:
        raise BadArgument("keys= is one key")
    task = state.tasks.get(keys[0])
    if task is None:
        raise BadArgument(
            f"the scheduler does not have the call of task {keys[0]!r} (any more); submit it again"
        )
    task = _culprit(state, task)
    blob = task.group.function.blob
    if not blob or task.args is None:
        raise BadArgument(
            f"{task.key!r} is data, or its function is not here: there is no call to send"
        )
    info = {
        "key": task.key,
        "function": task.group.prefix.name,
        "inputs": [one.key for one in task.dependencies],
    }
    state.send(peer, m.Answer(request=message.request, info=info, blobs=[blob, task.args]))


def _culprit(state: SchedulerState, task: SchedulerTask) -> SchedulerTask:
    """Return the task by whose failure a task has failed, if it is known; else the task."""
    if task.state != ERRED or task.failure is None:
        return task
    found = state.tasks.get(str(task.failure[1]))
    return task if found is None or found.state != ERRED else found
