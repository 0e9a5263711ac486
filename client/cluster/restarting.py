"""`Client.restart` and `Client.restart_workers`: processes of workers that are replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import NotSupported
from ...protocol.wire.answers import part_of, reading
from ..core.events import Cancel
from ..insight.asking import ask
from ..insight.cluster_info import describe_workers, expect_workers
from ..insight.inspecting import find_workers
from ..modes import Awaited, Blocking, waits
from ..shell.engine import Engine

if TYPE_CHECKING:
    from ..client import Client

T = TypeVar("T")

#: How often it is looked whether the new processes are there: first and at most, seconds.
_FIRST_LOOK_S: Final = 0.02
_LAST_LOOK_S: Final = 0.5
#: Workers that one question names.
_MAX_ASKED: Final = 1000
_REASON: Final = "client.restart() was called"


@waits
def restart_workers(
    client: Client[Any],
    workers: str | Iterable[str] | None = None,
    timeout: Duration | None = None,
    raise_for_error: bool = True,
) -> dict[str, str]:
    """End the processes of workers at once and start others; return when these have joined.

    What ran there is placed again and costs no retry, nor does it count as a death. Results of
    which a worker had the only copy are computed again if they are needed.

    Args:
        workers: their names, hosts or addresses; None = all.
        timeout: time to wait for the new processes; None = that of the client.
        raise_for_error: raise an error if some have not joined in time.

    Returns:
        ``{address: end}`` of the old processes: "OK", "removed" (it had left before), or "timed
        out" (no process of its name has joined in time; it may still come).

    Raises:
        UnknownWorker: no connected worker has this name.
        NotSupported: a worker is a thread of this program (`processes=False`), or has no
            supervisor; nothing was restarted.
        TimeoutError: some have not joined in time, and `raise_for_error`.
        NotPermitted: the client's token is of a lower role than client.
    """
    timeout_s = client._timeout_s if timeout is None else seconds_of(timeout, "timeout")
    return client._run(_restart_workers(client._running(), workers, timeout_s, raise_for_error))


@overload
def restart(
    client: Client[Blocking], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Client[Blocking]: ...
@overload
def restart(
    client: Client[Awaited], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Coroutine[Any, Any, Client[Awaited]]: ...
def restart(
    client: Client[Any], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Client[Any] | Coroutine[Any, Any, Client[Any]]:
    """Cancel all futures of this client, and restart all workers; return the client.

    Results that are in this process stay readable. Tasks of other clients are placed again, and
    their results computed again, so nothing of theirs is lost.

    Args:
        timeout: time to wait for the new processes; None = that of the client.
        wait_for_workers: wait until they have joined.

    Raises:
        NotSupported, TimeoutError, NotPermitted: see `restart_workers`.
    """
    timeout_s = client._timeout_s if timeout is None else seconds_of(timeout, "timeout")
    return client._run(_restart(client, client._running(), timeout_s, wait_for_workers))


async def _restart(client: T, engine: Engine, timeout_s: float, waits: bool) -> T:
    workers = await find_workers(engine, None)
    _check(workers)
    states = engine.table.snapshot()
    engine.post(Cancel(states, False, _REASON, finished=True))
    ends = await _order(engine, workers)
    if waits:
        await _wait(engine, workers, ends, timeout_s, raises=True)
    return client


async def _restart_workers(
    engine: Engine, workers: str | Iterable[str] | None, timeout_s: float, raises: bool
) -> dict[str, str]:
    found = await find_workers(engine, workers)
    _check(found)
    ends = await _order(engine, found)
    return await _wait(engine, found, ends, timeout_s, raises=raises)


def _check(workers: dict[str, dict[str, Any]]) -> None:
    """Refuse workers that cannot be restarted, before anything is done."""
    alone = [worker["name"] for worker in workers.values() if not worker["supervisor"]]
    if alone:
        raise NotSupported(
            f"worker {alone[0]} cannot be restarted: it is a thread of the program that started it "
            "(processes=False), or it has no supervisor. Nothing was restarted; close the cluster, "
            "and make a new one"
        )


async def _order(engine: Engine, workers: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Ask the scheduler to have processes replaced; return what it says, by id."""
    ends: dict[str, str] = {}
    ids = [worker["id"] for worker in workers.values()]
    for i in range(0, len(ids), _MAX_ASKED):
        async for page in ask(engine, "restart", {"workers": ids[i : i + _MAX_ASKED]}):
            with reading("the scheduler"):
                ends |= part_of(page, "workers", dict)
    return ends


async def wait_for_successors(
    engine: Engine, workers: dict[str, dict[str, Any]], timeout_s: float
) -> None:
    """Wait for the processes that take the places of workers whose own have ended.

    Raises:
        TimeoutError: some have not joined in time.
    """
    if workers:
        ends = {worker["id"]: "asked" for worker in workers.values()}
        await _wait(engine, workers, ends, timeout_s, raises=True)


async def _wait(
    engine: Engine,
    workers: dict[str, dict[str, Any]],
    ends: dict[str, str],
    timeout_s: float,
    *,
    raises: bool,
) -> dict[str, str]:
    """Wait for the processes that take the places of these; return the end of each."""
    deadline = time.monotonic() + timeout_s
    asked = [w for w in workers.values() if ends.get(w["id"]) == "asked"]
    look_s = _FIRST_LOOK_S
    while True:
        running = await describe_workers(engine)
        there = {worker["name"]: worker["id"] for worker in running.values()}
        missing = [w for w in asked if there.get(w["name"], w["id"]) == w["id"]]
        left_s = deadline - time.monotonic()
        if not missing or left_s <= 0:
            break
        await asyncio.sleep(min(look_s, left_s))
        look_s = min(2 * look_s, _LAST_LOOK_S)
    if missing and raises:
        names = ", ".join(worker["name"] for worker in missing[:5])
        raise TimeoutError(
            f"{len(missing)} of {len(asked)} workers had not joined again after {timeout_s:g} s "
            f"({names}); they may still come: see client.wait_for_workers and the supervisors' logs"
        )
    if not missing:  # the scheduler tells clients the size of the cluster a moment later
        await expect_workers(engine, len(running), left_s)
    late = {worker["id"] for worker in missing}
    return {
        address: "timed out"
        if worker["id"] in late
        else "OK"
        if ends.get(worker["id"]) == "asked"
        else "removed"
        for address, worker in workers.items()
    }
