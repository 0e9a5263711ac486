"""Queries about a client's cluster, for blocking and asynchronous clients (see `client`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import NotPermitted, WeftError, WorkerStartTimeout
from ...protocol.wire.messages import Denied
from ...protocol.wording import named_with_user
from ..core.features.cluster import WatchCluster, cluster_of
from ..core.features.questions import ShutDown
from ..display.describing import DescribedWorkers, worker_row
from ..modes import on_loop, waits
from ..shell.both_ways import result_of, wait, waiter_here
from ..shell.engine import Engine
from ..shell.short_tracebacks import short_tracebacks
from .asking import ask, error_of_end

if TYPE_CHECKING:
    from ..client import Client

#: Longest time for which the client of a new LocalCluster waits for workers that do not come.
_MAX_START_S: Final = 5.0
#: The table of workers is asked for at most this often.
_REFRESH_S: Final = 1.0
#: No more workers are asked about: no table has room for more.
_MAX_WORKERS: Final = 50


@waits
def wait_for_workers(
    client: Client[Any], n_workers: int = 1, timeout: Duration | None = None
) -> None:
    """Wait until the cluster has at least `n_workers`.

    Raises:
        WorkerStartTimeout: the cluster had fewer after `timeout`.

    Example:
        >>> client.wait_for_workers(2, timeout="1 min")
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    engine = client._running()
    _check_number(n_workers)
    # A cluster object knows more about workers that do not come.
    wait_for = getattr(client.cluster, "_wait_for", None)
    with short_tracebacks:
        if wait_for is not None:
            waited: None = client._run(wait_for(client, n_workers, timeout_s))
            return waited
        return result_of(engine, lambda: workers_there(engine, n_workers, timeout_s))


async def workers_there(engine: Engine, n_workers: int, timeout: float | None) -> None:
    """Do what `wait_for_workers` does, in a coroutine of the engine's loop."""
    _check_number(n_workers)
    waiter = waiter_here()
    if not await wait(engine, waiter, WatchCluster(waiter, n_workers), timeout):
        raise WorkerStartTimeout(n_workers, cluster_of(engine.core).n_workers, timeout or 0.0)
    if waiter.answer is None:
        raise error_of_end(engine)


def _check_number(n_workers: object) -> None:
    if type(n_workers) is not int or n_workers < 0:
        raise ValueError(f"n_workers= is a whole number >= 0, not {n_workers!r}")


async def expect_workers(engine: Engine, n_workers: int, timeout_s: float) -> None:
    """Wait for workers that are being started. It is no error if some do not come in time.

    They may come later, and the processes of those that fail log the reason.
    """
    timeout_s = min(timeout_s, _MAX_START_S)
    with contextlib.suppress(WorkerStartTimeout):
        await workers_there(engine, n_workers, timeout_s)


@on_loop
async def scheduler_info(engine: Engine, n_workers: int = -1) -> dict[str, Any]:
    """Return the scheduler's description of itself, its tasks and `n_workers` (-1 = all).

    Example:
        >>> len(client.scheduler_info()["workers"])
        2
    """
    info: dict[str, Any] = {"type": "Scheduler", "id": "", "address": ""}
    async for page in ask(engine, "cluster"):
        info |= page
    link = engine.link
    assert link is not None, "it has answered"
    dashboard = info.get("dashboard")
    info |= {
        "id": f"Scheduler-{info['epoch']}",
        "address": link.address,
        "services": {"dashboard": dashboard} if dashboard else {},
        "started": info["epoch"] / 1e9,
        "total_threads": info["nthreads"],
        "total_memory": info["memory"],
        "workers": await describe_workers(engine, n_workers),
        "clients": await describe_clients(engine),
    }
    return info


async def describe_workers(engine: Engine, n_workers: int = -1) -> dict[str, dict[str, Any]]:
    """Return `{address: description}` of the first `n_workers`; -1 = of all."""
    workers = DescribedWorkers()
    if n_workers == 0:
        return workers
    async for page in ask(engine, "workers"):
        for address, worker in page["workers"].items():
            workers[address] = {
                "type": "Worker",
                **worker,
                "status": _status_of(worker),
                "last_seen": time.time() - worker["last_seen_s"],
                "nanny": worker["supervisor"] or None,
                "services": {},
            }
            if len(workers) == n_workers:
                return workers
    return workers


def _status_of(worker: dict[str, Any]) -> str:
    """Return the status of a worker, in dask's words where they fit."""
    if worker.get("is_away"):
        return "away"  # its connection has ended, and it may come back
    if worker["is_leaving"]:
        return "closing_gracefully"
    is_closed = worker.get("is_paused") or worker.get("is_blocked")
    return "paused" if is_closed else "running"


async def describe_clients(engine: Engine) -> list[str]:
    """Return the names of all clients that are connected, or expected back."""
    return [
        named_with_user(client)
        async for page in ask(engine, "clients")
        for client in page["clients"]
    ]


async def shut_down(engine: Engine) -> None:
    """See `Client.shutdown`."""
    waiter = waiter_here()
    await wait(engine, waiter, ShutDown(waiter, "a client asked for it"), None)
    denied = waiter.answer
    if isinstance(denied, Denied):
        raise NotPermitted("shutdown()", denied.needed, denied.level)


class Glimpse:
    """The workers of a cluster, as they were seen last.

    They are asked for in the background when a notebook shows the client, for the next time.
    """

    def __init__(self) -> None:
        #: See `display/html.py`.
        self.workers: list[dict[str, Any]] = []
        self.as_of = ""
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None

    def keep(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep a description of workers: `{address: what the scheduler reports}`."""
        self.workers = [worker_row(address, one) for address, one in workers.items()]
        self.as_of = time.strftime("%X")

    def refresh_soon(self, engine: Engine) -> None:
        """Ask in the background, if that was not done just now. Any thread may call it."""
        now = time.monotonic()
        if now - self._asked < _REFRESH_S or engine.is_gone or engine.core.end is not None:
            return
        self._asked = now
        with contextlib.suppress(RuntimeError):  # the loop is closed
            if engine.is_own_thread:
                self._begin(engine)
            else:
                engine.loop.call_soon_threadsafe(self._begin, engine)

    def _begin(self, engine: Engine) -> None:
        if self._task is None or self._task.done():
            self._task = engine.loop.create_task(self.refresh(engine))

    async def refresh(self, engine: Engine) -> None:
        """Ask the scheduler for its workers."""
        with contextlib.suppress(WeftError):
            self.keep(await describe_workers(engine, _MAX_WORKERS))
