"""A cluster within one process: scheduler and workers on one event loop, `inproc://` between them.

Everything is called on that loop; `cluster.py` waits for it in other threads.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import Path

from ...protocol.host.facts import process_facts
from ...protocol.net.deadline import unless
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level
from ...scheduler.config import SchedulerConfig
from ...scheduler.server import SchedulerServer
from ...worker.config import WorkerConfig
from ...worker.server import WorkerServer

_log = logging.getLogger("weft.worker")


class EmbeddedCluster:
    """The scheduler and worker servers of a `LocalCluster(processes=False)`."""

    def __init__(
        self,
        security: Security,
        *,
        n_workers: int,
        nthreads: int,
        memory_limit: int,
        resources: dict[str, float],
        name: str,
        local_directory: str | None = None,
    ) -> None:
        self._security = security
        self._n_workers = n_workers
        self._nthreads = nthreads
        self._memory_limit = memory_limit
        self._resources = resources
        self._name = name
        self._local_directory = None if local_directory is None else Path(local_directory)
        self._scheduler: SchedulerServer | None = None
        self._workers: list[WorkerServer] = []
        self._runs: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start all; return the scheduler's address once every worker is registered."""
        self._scheduler = SchedulerServer(
            SchedulerConfig(
                addresses=[f"inproc://scheduler-{uuid.uuid4().hex}"],
                security=self._security,
                facts=process_facts(),
            )
        )
        await self._scheduler.start()
        (address,) = self._scheduler.addresses
        for i in range(self._n_workers):
            worker = WorkerServer(
                WorkerConfig(
                    scheduler=address,
                    security=self._security.lowered(Level.WORKER),
                    name=f"{self._name}-{i}",
                    nthreads=self._nthreads,
                    memory_limit=self._memory_limit,
                    resources=self._resources,
                    local_directory=self._local_directory,
                )
            )
            self._workers.append(worker)
            self._runs.append(asyncio.create_task(worker.run(), name=f"worker {i}"))
        for worker, run in zip(self._workers, self._runs, strict=True):
            await unless(run, worker.registered.wait())
            if run.done():
                run.result()
        return address

    async def stop(self) -> None:
        """Stop all, workers first. Cancelling the caller does not interrupt the shutdown."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        for worker in self._workers:
            worker.stop("the cluster was closed")
        for ended in await asyncio.gather(*self._runs, return_exceptions=True):
            if isinstance(ended, Exception):
                _log.error("a worker ended with an error: %s", ended, exc_info=ended)
        if self._scheduler is not None:
            await self._scheduler.stop("the cluster was closed")
