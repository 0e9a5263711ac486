"""Compares the versions of this program with those of a cluster, when a client connects to it.

Python's minor version is compared by the scheduler, which refuses others. The other packages that
matter are those whose objects or functions are sent: another version may read them wrongly, or not
at all. One warning has them all, once per cluster and program. A `LocalCluster` is not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import WeftError
from ...protocol.host.versions import process_versions
from .asking import ask, ask_each
from .cluster_info import describe_workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..shell.engine import Engine

logger: Final = logging.getLogger("weft.client")

#: How long a client waits for the answers before it opens; later ones are reported all the same.
_PATIENCE_S: Final = 0.5
#: Workers that are asked, of different hosts first: those of one host are installed alike.
_MAX_ASKED: Final = 20
#: Packages whose objects are sent. What this program lacks, or has not imported, does not matter.
_COMPARED: Final = ("weft", "cloudpickle", "numpy", "pandas", "pyarrow", "dask")
#: Packages that are always used.
_ALWAYS: Final = ("weft", "cloudpickle")

#: Ids of the clusters that were compared.
_compared: Final[set[bytes]] = set()


class Comparison:
    """A comparison under way."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(_compare(engine))

    def end(self) -> None:
        """End it: the client is closed. Any thread may call it."""
        if not self.task.done():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.task.cancel)


async def compare_soon(engine: Engine, cluster: Any) -> Comparison | None:
    """Compare, unless that was done or is needless; return when it has ended, or after 0.5 s.

    Args:
        engine: of a client that has just connected.
        cluster: the cluster object that it was given or has started, if any.
    """
    link = engine.link
    if (
        link is None
        or link.cluster_id in _compared
        or getattr(cluster, "shares_installation", False)
    ):
        return None
    if not link.address.startswith(("tcp://", "tls://")):  # within one machine, and one program
        return None
    _compared.add(link.cluster_id)
    comparison = Comparison(engine)
    await asyncio.wait([comparison.task], timeout=_PATIENCE_S)
    return comparison


async def _compare(engine: Engine) -> None:
    with contextlib.suppress(WeftError):
        found: dict[str, dict[str, Any]] = {}
        workers = await describe_workers(engine, 1000)
        if not workers and engine.link is not None:
            _compared.discard(engine.link.cluster_id)  # the next client will find some
        asked = _choose(workers)

        async def ask_one(address: str) -> Any:
            worker = workers[address]
            name = f"worker {worker['name']}"
            async for page in ask(engine, "versions", {}, to=worker["id"], process=name):
                return page
            return {}

        answers = await ask_each(asked, ask_one)
        for address, answer in answers.items():
            if isinstance(answer, dict) and isinstance(answer.get("packages"), dict):
                found[str(workers[address]["name"])] = answer["packages"]
        mine = process_versions()["packages"]
        different = differences(mine, found, sys.modules)
        link = engine.link
        there = link.facts.get("weft") if link is not None else None
        scheduler = (
            (mine["weft"], there[:40]) if isinstance(there, str) and there != mine["weft"] else None
        )
        if different or scheduler:
            address = link.address if link is not None else ""
            text = table_of(different, address, len(found), len(workers), scheduler)
            logger.warning("%s", text)


def _choose(workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return addresses of workers to ask: one of each host, then others."""
    by_host: dict[object, str] = {}
    for address, worker in workers.items():
        by_host.setdefault(worker.get("host"), address)
    chosen = dict.fromkeys([*by_host.values(), *workers])
    return list(chosen)[:_MAX_ASKED]


def differences(
    mine: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]], imported: Any
) -> dict[str, tuple[str, dict[str, int]]]:
    """Return `{package: (version here, {version: number of workers})}` of those that differ.

    Args:
        mine: {package: version, or None} of this program.
        workers: {name: the same} of the workers.
        imported: names of the modules that this program has imported.
    """
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for name in _COMPARED:
        here = mine.get(name)
        if not isinstance(here, str):
            continue
        counts: dict[str, int] = {}
        for versions in workers.values():
            there = versions.get(name)
            if not isinstance(there, str):
                there = "none"
                if name not in _ALWAYS and name not in imported:
                    continue
            if _matters(name, here, there):
                counts[there[:40]] = counts.get(there[:40], 0) + 1
        if counts:
            found[name] = (here, counts)
    return found


def _matters(name: str, here: str, there: str) -> bool:
    if name == "weft":
        return here != there
    return here.split(".")[:2] != there.split(".")[:2]


def table_of(
    different: Mapping[str, tuple[str, Mapping[str, int]]],
    address: str,
    n_asked: int,
    n_workers: int,
    scheduler: tuple[str, str] | None = None,
) -> str:
    """Return the text of the warning.

    Args:
        different: see `differences`.
        address: of the scheduler.
        n_asked: the number of workers that have answered.
        n_workers: the number of all.
        scheduler: the versions of weft here and of the scheduler; None = the same.
    """
    rows: list[Sequence[str]] = [("package", "here", "there")]
    if scheduler:
        rows.append(("weft", scheduler[0], f"{scheduler[1]} (the scheduler)"))
    for name, (here, counts) in different.items():
        of_workers = [f"{v} ({n} of {n_asked} workers)" for v, n in counts.items()]
        rows.append((name, here, ", ".join(of_workers)))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in rows]
    asked = "" if n_asked == n_workers else f" ({n_asked} of {n_workers} workers were asked)"
    return (
        f"this program and the cluster at {address} have different versions of packages{asked}, so "
        "functions, arguments and results may be read wrongly, or not at all:\n"
        + "\n".join(lines)
        + "\nInstall the same versions here and there; client.get_versions() lists all of them"
    )
