"""`weft info`: the description of a cluster or of one task, formatted for display."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Any, Final, TypeVar

from ...protocol.errors import CommError, NoAnswer
from ...protocol.tables import Column, as_lines
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.wording import counted, sized
from ..http.viewer import Viewer, viewing
from ..overview.wording import states_text

T = TypeVar("T")

#: A process that has not answered after this is reported.
TIMEOUT_S: Final = 10.0


def asking(found: ConnectionFile, question: Callable[[Viewer], Awaitable[T]]) -> tuple[T, str]:
    """Connect as a viewer, ask, and return the answer and the address at which it was given.

    Raises:
        WeftError: the scheduler cannot be reached, or it does not answer.
    """

    async def run() -> T:
        async with viewing(found, TIMEOUT_S) as viewer:
            try:
                return await question(viewer)
            except NoAnswer:
                raise
            except TimeoutError:
                raise CommError("the scheduler does not answer", found.addresses[0]) from None

    return asyncio.run(run()), found.addresses[0]


_WORKERS: Final = (
    Column("worker", lambda w: w["name"] + (" (away)" if w.get("is_away") else "")),
    Column("threads", itemgetter("nthreads")),
    Column("assigned", itemgetter("n_processing")),
    Column("results", itemgetter("n_in_memory")),
    Column("holds", lambda w: sized(w["nbytes"])),
    Column("memory", lambda w: sized(w["metrics"].get("rss", 0))),
    Column("limit", lambda w: sized(w["memory_limit"]) if w["memory_limit"] else "none"),
    Column("address", itemgetter("address")),
)


def describe(info: dict[str, Any], address: str) -> str:
    """Format a description for display."""
    lines = [
        f"scheduler at {address}, process {info.get('pid')} on {info.get('host')}, "
        f"Python {info.get('python')}",
        f"  workers  {info['n_workers']} with {counted(info['nthreads'], 'thread')}",
        f"  clients  {', '.join(info['clients']) or 'none'}",
        f"  tasks    {states_text(info['tasks'])}",
    ]
    if info.get("recovering"):
        lines.append(f"  phase    {info['recovering']}")
    if info.get("dashboard"):
        lines.append(f"  pages    {info['dashboard']}")
    if info["workers"]:
        workers = ({**worker, "address": where} for where, worker in info["workers"].items())
        lines += ["", *as_lines(_WORKERS, workers)]
        barred = [worker for worker in info["workers"].values() if worker.get("is_blocked")]
        if barred:
            lines += ["", *(f"no tasks  {one['name']}: {one['why_not']}" for one in barred)]
    refused = info.get("refused_workers") or []
    if refused:
        lines.append("")
        lines += [
            f"refused  {worker['name']} on {worker['host']}: {worker['why']}" for worker in refused
        ]
    return "\n".join(lines)
