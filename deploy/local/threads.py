"""A cluster within one process: scheduler and workers on one event loop, `inproc://` between them.

Everything is called on that loop; `cluster.py` waits for it in other threads.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from ...protocol.host.facts import process_facts
from ...protocol.net.deadline import unless
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level
from ...scheduler.config import SchedulerConfig
from ...scheduler.journal.journal import Journal
from ...scheduler.journal.places import store_at
from ...scheduler.server import SchedulerServer
from ...worker.config import WorkerConfig
from ...worker.server import WorkerServer
from ..processes.preloading import preload

_log = logging.getLogger("weft.worker")


class EmbeddedCluster:
    """The scheduler and worker servers of a `LocalCluster(processes=False)`."""

    def __init__(
        self,
        security: Security,
        *,
        n_workers: int,
        name: str,
        modules: Sequence[str] = (),
        journal: str = "",
        no_worker_timeout_s: float = 0.0,
        **options: Any,
    ) -> None:
        """Prepare; `options` are those of the workers, see `WorkerConfig`."""
        self._security = security
        self._n_workers = n_workers
        self._name = name
        self._modules = modules
        self._journal = journal
        self._no_worker_timeout_s = no_worker_timeout_s
        self._options = options
        self._preloaded: list[ModuleType] | None = None
        self._scheduler: SchedulerServer | None = None
        self._workers: list[WorkerServer] = []
        self._runs: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self._address = ""
        self._n_started = 0
        #: Addresses of workers that leave.
        self._leaving: set[str] = set()

    async def start(self) -> str:
        """Start all; return the scheduler's address once every worker is registered."""
        self._scheduler = SchedulerServer(
            SchedulerConfig(
                addresses=[f"inproc://scheduler-{uuid.uuid4().hex}"],
                security=self._security,
                facts=process_facts(),
                journal=Journal(store_at(self._journal)) if self._journal else None,
                no_worker_timeout_s=self._no_worker_timeout_s,
            )
        )
        await self._scheduler.start()
        (address,) = self._scheduler.addresses
        self._address = address
        await self.grow(self._n_workers)
        return address

    async def grow(self, n: int) -> None:
        """Start workers until there are `n`, and wait until all are registered."""
        living = [entry for entry in zip(self._workers, self._runs, strict=True) if _lives(*entry)]
        if self._preloaded is None:
            self._preloaded = preload(self._modules)
        n_more = n - sum(not self._leaves(worker) for worker, _ in living)
        for _ in range(n_more):
            worker = WorkerServer(
                WorkerConfig(
                    scheduler=self._address,
                    security=self._security.lowered(Level.WORKER),
                    name=f"{self._name}-{self._n_started}",
                    preloaded=self._preloaded,
                    **self._options,
                )
            )
            run = asyncio.create_task(worker.run(), name=f"worker {self._n_started}")
            self._n_started += 1
            living.append((worker, run))
        self._workers = [worker for worker, _ in living]
        self._runs = [run for _, run in living]
        for worker, run in living:
            if not self._leaves(worker):
                await unless(run, worker.registered.wait())
                if run.done():
                    run.result()

    def note_leaving(self, addresses: Iterable[str]) -> None:
        """Note workers that the scheduler lets leave; they may not have read it yet."""
        self._leaving.update(addresses)

    def _leaves(self, worker: WorkerServer) -> bool:
        return worker.is_leaving or worker.address in self._leaving

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
                _log.error(
                    "a worker ended with an error: %s",
                    ended,
                    exc_info=ended,
                    extra={"code": "worker-failed"},
                )
        if self._scheduler is not None:
            await self._scheduler.stop("the cluster was closed")


def _lives(worker: WorkerServer, run: asyncio.Task[None]) -> bool:
    """Return whether a worker has not ended; the error of one that has is logged."""
    if run.done() and not run.cancelled() and run.exception() is not None:
        _log.error(
            "worker %s ended with an error: %s",
            worker.name,
            run.exception(),
            extra={"code": "worker-failed"},
        )
    return not run.done()
