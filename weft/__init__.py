"""Weft runs Python functions on many machines.

    import weft

    with weft.Client() as client:                       # nothing to start; or Client("tcp://host:port")
        futures = client.map(len, ["a", "bb", "ccc"])
        print(client.gather(futures))

This module is the façade: it loads each public name from its module at first use (PEP 562), so that
``import weft`` alone takes milliseconds. No module inside the five folders imports it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .client import upper_packages as _above
from .protocol import errors
from .protocol.errors import *  # noqa: F403 - its __all__ is the list of weft's exceptions

if TYPE_CHECKING:
    from . import multiprocessing, threaded, timeline
    from .client import (
        Client,
        Executor,
        Future,
        as_completed,
        default_client,
        futures_of,
        get_client,
        progress,
        wait,
        worker_client,
    )
    from .client.actors import Actor, ActorFuture
    from .client.background import fire_and_forget
    from .client.calls.categories import Category
    from .client.calls.recurring import RecurringFuture
    from .client.calls.retries import Retries
    from .client.calls.spans import span
    from .client.coordination.concurrency_limits import limit
    from .client.coordination.count_down import CountDown
    from .client.coordination.event import Event
    from .client.coordination.locks import Lock, MultiLock, Semaphore
    from .client.coordination.queue import Queue
    from .client.coordination.variable import Variable
    from .client.dask.names import *  # noqa: F403 - re-exported, as `errors` is
    from .client.insight.performance_report import performance_report
    from .client.insight.task_stream import get_task_stream
    from .client.modes import Awaited, Blocking
    from .client.printing import print, warn
    from .deploy.local.cluster import LocalCluster
    from .graphs.drivers.executors import SynchronousExecutor
    from .graphs.get import get
    from .graphs.pool.thread_pool import ThreadPool
    from .protocol.errors.commands import CommandResult
    from .protocol.plugins.base import SupervisorPlugin, WorkerPlugin
    from .protocol.plugins.environment import Environ, InstallPlugin, PipInstall
    from .protocol.plugins.uploads import UploadDirectory, UploadFile
    from .protocol.values.printed import CallOutput, OutputFile
    from .worker.commands.command import Command
    from .worker.context import get_worker
    from .worker.gang import Gang, get_gang
    from .worker.slots.interrupting import TaskInterrupted
    from .worker.slots.scratch import get_scratch_directory
    from .worker.slots.seats import get_current_task, rejoin, secede

    __version__: str

__all__ = [
    "Actor",
    "ActorFuture",
    "Awaited",
    "Blocking",
    "CallOutput",
    "Category",
    "Client",
    "Command",
    "CommandResult",
    "CountDown",
    "Environ",
    "Event",
    "Executor",
    "Future",
    "Gang",
    "InstallPlugin",
    "LocalCluster",
    "Lock",
    "MultiLock",
    "OutputFile",
    "PipInstall",
    "Queue",
    "RecurringFuture",
    "Retries",
    "Semaphore",
    "SupervisorPlugin",
    "SynchronousExecutor",
    "TaskInterrupted",
    "ThreadPool",
    "UploadDirectory",
    "UploadFile",
    "Variable",
    "WorkerPlugin",
    "__version__",
    "as_completed",
    "default_client",
    "fire_and_forget",
    "futures_of",
    "get",
    "get_client",
    "get_current_task",
    "get_gang",
    "get_scratch_directory",
    "get_task_stream",
    "get_worker",
    "limit",
    "multiprocessing",
    "performance_report",
    "print",
    "progress",
    "rejoin",
    "secede",
    "span",
    "threaded",
    "timeline",
    "wait",
    "warn",
    "worker_client",
]
__all__ += errors.__all__

#: {public name: module below weft that defines it}. The same names as under TYPE_CHECKING.
_HOMES = {
    "Actor": "client.actors",
    "ActorFuture": "client.actors",
    "Awaited": "client.modes",
    "Blocking": "client.modes",
    "CallOutput": "protocol.values.printed",
    "Category": "client.calls.categories",
    "Client": "client",
    "Command": "worker.commands.command",
    "CommandResult": "protocol.errors.commands",
    "CountDown": "client.coordination.count_down",
    "Environ": "protocol.plugins.environment",
    "Event": "client.coordination.event",
    "Executor": "client",
    "Future": "client",
    "Gang": "worker.gang",
    "InstallPlugin": "protocol.plugins.environment",
    "LocalCluster": "deploy.local.cluster",
    "Lock": "client.coordination.locks",
    "MultiLock": "client.coordination.locks",
    "OutputFile": "protocol.values.printed",
    "PipInstall": "protocol.plugins.environment",
    "Queue": "client.coordination.queue",
    "RecurringFuture": "client.calls.recurring",
    "Retries": "client.calls.retries",
    "Semaphore": "client.coordination.locks",
    "SupervisorPlugin": "protocol.plugins.base",
    "SynchronousExecutor": "graphs.drivers.executors",
    "TaskInterrupted": "worker.slots.interrupting",
    "ThreadPool": "graphs.pool.thread_pool",
    "UploadDirectory": "protocol.plugins.uploads",
    "UploadFile": "protocol.plugins.uploads",
    "Variable": "client.coordination.variable",
    "WorkerPlugin": "protocol.plugins.base",
    "as_completed": "client",
    "default_client": "client",
    "fire_and_forget": "client.background",
    "futures_of": "client",
    "get": "graphs.get",
    "get_client": "client",
    "get_current_task": "worker.slots.seats",
    "get_gang": "worker.gang",
    "get_scratch_directory": "worker.slots.scratch",
    "get_task_stream": "client.insight.task_stream",
    "get_worker": "worker.context",
    "limit": "client.coordination.concurrency_limits",
    "performance_report": "client.insight.performance_report",
    "print": "client.printing",
    "progress": "client",
    "rejoin": "worker.slots.seats",
    "secede": "worker.slots.seats",
    "span": "client.calls.spans",
    "wait": "client",
    "warn": "client.printing",
    "worker_client": "client",
}

#: Names of dask.distributed that are here for its scripts: not in `__all__`, so neither listed nor
#: imported by `from weft import *`.
_DASK_NAMES = (
    "BaseActorFuture",
    "CancelledError",
    "KilledWorker",
    "NannyPlugin",
    "Status",
    "TimeoutError",
    "local_client",
)
_HOMES.update(dict.fromkeys(_DASK_NAMES, "client.dask.names"))

#: Modules of the façade itself.
_MODULES = frozenset({"joblib", "multiprocessing", "threaded", "timeline"})


def _local_cluster() -> type[LocalCluster]:
    from .deploy.local.cluster import LocalCluster

    return LocalCluster


def _joblib_backend(**options: Any) -> object:
    from .joblib import WeftBackend

    return WeftBackend(**options)


def _note_what_to_install(begins: bool) -> None:
    from .compat.notes import note_what_to_install, take_notes_back

    if begins:
        note_what_to_install()
    else:
        take_notes_back()


_above.local_cluster = _local_cluster
_above.joblib_backend = _joblib_backend
_above.note_what_to_install = _note_what_to_install

if _as_distributed := os.environ.get("WEFT_AS_DISTRIBUTED"):
    from .compat.distributed import install_if_set

    install_if_set(_as_distributed)

if not TYPE_CHECKING:  # a checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f".{name}", __name__)  # which also sets the attribute
        if name == "__version__":
            from .protocol.host.versions import weft_version

            return weft_version("")
        home = _HOMES.get(name)
        if home is None:
            import sys

            from .client.dask.absent_names import ABSENT, missing_attribute

            error = missing_attribute("weft", name)
            is_known = name in ABSENT["weft"] or name in ABSENT["Ray"]
            if is_known and sys._getframe(1).f_code.co_name == "_handle_fromlist":
                # `from weft import name`, which replaces the text of an AttributeError.
                raise ImportError(str(error), name=__name__)
            raise error
        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value  # the next access does not come here
        return value

    def __dir__() -> list[str]:
        # Of the exceptions, which are more than all other names, completion proposes `errors`.
        return sorted({*__all__, "errors"} - {*errors.__all__})
