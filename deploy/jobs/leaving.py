"""Lets whole jobs go: all workers of each leave together, and nothing that is needed is lost."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

from ...client.cluster import scaling
from ...client.insight.asking import ask
from .ledger import Ledger

if TYPE_CHECKING:
    from ...client.client import Client

#: Groups of workers of which the scheduler is asked at once whether they may leave.
_MAX_ASKED: Final = 1000


async def recount(client: Client[Any], ledger: Ledger, lock: threading.Lock) -> None:
    """Note the workers of each job, as some may have joined or left."""
    workers: dict[str, tuple[str, str]] = {}
    async for page in ask(client._running(), "workers"):
        for worker in page["workers"].values():
            if not worker["is_leaving"]:
                workers[worker["name"]] = worker["id"], worker["supervisor"]
    with lock:
        ledger.note_workers(workers)


async def let_leave(
    client: Client[Any], ledger: Ledger, lock: threading.Lock, n: int, losses: str
) -> dict[str, Any]:
    """Let the workers of `n` jobs leave, of those first whose end costs least.

    Return `{worker: what becomes of it}`, as `scaling.scale_to` does; `losses` is as for that, also
    for workers that leave already. Of those that are kept it has a row, too.
    """
    engine = client._running()
    order: list[str] = []
    async for page in ask(engine, "leaving_order"):
        order += page["names"]
    with lock:
        jobs = ledger.with_workers(order)
    rows = await scaling.let_drop(engine, scaling.is_leaving) if losses == "drop" else {}
    if losses == "keep":
        candidates = jobs[:_MAX_ASKED]
        groups = [[*job.workers] for job in candidates]
        async for page in ask(engine, "leaving_losses", {"groups": groups, "n": n}):
            jobs = [candidates[i] for i in page["leaving"]]
            for i, reason in page["kept"]:
                rows |= {name: _kept(name, reason) for name in candidates[i].workers}
    jobs = jobs[:n]
    have_joined = False
    for job in jobs:
        job.is_ending = True
        if len(job.workers) < ledger.n_processes:  # the others may be on their way
            for supervisor in {supervisor for _, supervisor in job.workers.values()}:
                names = await scaling.have_places(engine, supervisor, len(job.workers))
                have_joined = have_joined or len(names) > len(job.workers)
    if have_joined:  # a supervisor gives up only those that have not
        await recount(client, ledger, lock)
    arguments: dict[str, Any] = {"order": uuid.uuid4().hex, "wait": False}
    arguments["losses"] = "drop" if losses == "drop" else "wait"
    arguments["workers"] = [worker for job in jobs for worker, _ in job.workers.values()]
    async for page in ask(engine, "retire", arguments):
        rows |= page["workers"]
    return rows


def _kept(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "end": "kept", "reason": reason, "n_recomputed": 0, "n_moved": 0}
