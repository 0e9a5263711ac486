"""Queries about a client's cluster, for blocking and asynchronous clients (see `client`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final

from ..protocol.errors import ClientClosed, CommClosed, WorkerStartTimeout
from .core.events import AskInfo, WatchCluster
from .shell.engine import Engine
from .shell.watchers import AsyncWaiter, ThreadWaiter

#: Longest time for which the client of a new LocalCluster waits for workers that do not come.
_MAX_START_S: Final = 5.0


def wait_for_workers(engine: Engine, n_workers: int, timeout: float | None) -> Any:
    """See `Client.wait_for_workers`; a coroutine if the client is asynchronous."""
    if type(n_workers) is not int or n_workers < 0:
        raise ValueError(f"n_workers= is a whole number >= 0, not {n_workers!r}")
    if engine.is_asynchronous:
        return _wait_for_workers_async(engine, n_workers, timeout)
    waiter = ThreadWaiter(1, wants_data=False)
    if not engine.wait(waiter, WatchCluster(waiter, n_workers), timeout):
        raise WorkerStartTimeout(n_workers, engine.core.n_workers, timeout or 0.0)
    _check_answer(engine, waiter.answer)
    return None


async def _wait_for_workers_async(engine: Engine, n_workers: int, timeout: float | None) -> None:
    waiter = AsyncWaiter(1, wants_data=False)
    if not await engine.wait_async(waiter, WatchCluster(waiter, n_workers), timeout):
        raise WorkerStartTimeout(n_workers, engine.core.n_workers, timeout or 0.0)
    _check_answer(engine, waiter.answer)


async def expect_workers(engine: Engine, n_workers: int, timeout_s: float) -> None:
    """Wait for workers that are being started. It is no error if some do not come in time.

    They may come later, and the processes of those that fail log the reason.
    """
    timeout_s = min(timeout_s, _MAX_START_S)
    with contextlib.suppress(WorkerStartTimeout):
        await _wait_for_workers_async(engine, n_workers, timeout_s)


async def scheduler_info(engine: Engine, n_workers: int = -1) -> Any:
    """See `Client.scheduler_info`."""
    waiter = AsyncWaiter(1, wants_data=False)
    await engine.wait_async(waiter, AskInfo(waiter), None)
    info = _check_answer(engine, waiter.answer)
    if n_workers >= 0 and "workers" in info:
        info = {**info, "workers": dict(list(info["workers"].items())[:n_workers])}
    return info


async def nthreads(engine: Engine, workers: Iterable[str] | str | None = None) -> dict[str, int]:
    """See `Client.nthreads`."""
    found = (await scheduler_info(engine)).get("workers", {})
    wanted = None if workers is None else {workers} if isinstance(workers, str) else {*workers}
    return {
        address: worker.get("nthreads", 0)
        for address, worker in found.items()
        if wanted is None
        or not wanted.isdisjoint((address, worker.get("name"), worker.get("host")))
    }


def _check_answer(engine: Engine, answer: Any) -> Any:
    """Return the answer, unless the client was closed before one came."""
    if answer is None:
        end = engine.core.end
        if end is not None and end[0] == "connection-lost":
            raise CommClosed(end[2])
        raise ClientClosed("the client was closed before the scheduler answered")
    return answer
