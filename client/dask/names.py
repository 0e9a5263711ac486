"""Names of dask.distributed for what has another name in weft, or is Python's own.

They are found as `weft.KilledWorker` and so on, so that the `except` clauses and imports of a
script for dask need no change. The documentation of weft uses the other names only.
"""

from __future__ import annotations

import builtins
import concurrent.futures
from enum import Enum

from ...protocol.errors import WorkerDied
from ...protocol.plugins.base import SupervisorPlugin
from ..actors import ActorFuture
from ..in_tasks import worker_client

__all__ = [
    "BaseActorFuture",
    "CancelledError",
    "KilledWorker",
    "NannyPlugin",
    "Status",
    "TimeoutError",
    "local_client",
]

BaseActorFuture = ActorFuture
#: Of tasks (`TaskCancelled`), and of the futures of executors.
CancelledError = concurrent.futures.CancelledError
KilledWorker = WorkerDied
NannyPlugin = SupervisorPlugin
TimeoutError = builtins.TimeoutError
local_client = worker_client


class Status(str, Enum):
    """What `status` of a client, cluster or worker may be: each is equal to its text."""

    undefined = "undefined"
    created = "created"
    init = "init"
    connecting = "connecting"
    starting = "starting"
    running = "running"
    paused = "paused"
    stopping = "stopping"
    stopped = "stopped"
    closing = "closing"
    closing_gracefully = "closing_gracefully"
    failed = "failed"
    closed = "closed"
    dont_reply = "dont_reply"
