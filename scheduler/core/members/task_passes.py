"""The pass that shows that a client is one in the tasks of a certain worker.

Ids of workers are shown to all who may look at the cluster, so the id of a worker proves nothing.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from ....protocol.wire import messages as m
from ....protocol.wire.roles import Role

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Its worker is leaving, or comes after it: it may try again, and nobody is at fault.
NOT_REGISTERED = "this client is in the tasks of a worker that is not registered now"


def pass_of(key: bytes, worker_id: str) -> str:
    """Return the pass of a worker; "" without a key, when each claim is believed."""
    return hmac.digest(key, b"tasks of " + worker_id.encode(), "sha256").hex() if key else ""


def why_refused(state: SchedulerState, peer: int, message: m.RegisterClient) -> str:
    """Return why a client may not register as one in a task, or as one that is not; "" = it may."""
    known = state.clients.get(message.client_id)
    if known is not None and known.user.name != state.strangers[peer]:
        return "its id is that of a client of another user"
    owner = known.worker.worker_id if known is not None and known.worker is not None else ""
    if state.roles[peer] is not Role.TASK_CLIENT:
        return "its id is that of a client in the tasks of a worker" if owner else ""
    ws = state.workers_by_id.get(message.worker_id)
    if ws is None or ws.is_away:
        return NOT_REGISTERED
    right = pass_of(state.epoch_key, message.worker_id)
    if not hmac.compare_digest(message.task_pass.encode(), right.encode()):
        return "this client is not in the tasks of the worker that it names: its pass is wrong"
    if known is not None and owner != message.worker_id:
        return "its id is that of another client"
    return ""
