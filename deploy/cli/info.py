"""`weft info`: requests a scheduler's description and formats it for display."""

from __future__ import annotations

import asyncio
from typing import Any

from ...protocol.errors import CommError
from ...protocol.wording import counted
from ..http.viewer import Viewer, describe_cluster
from ..settings import format_bytes
from .finding import find_scheduler


def ask(connection_file: str | None, address: str | None) -> tuple[dict[str, Any], str]:
    """Return a cluster's description and the address at which it answered.

    Raises:
        WeftError: there is none, or it cannot be reached.
    """
    found = find_scheduler(connection_file, address)

    async def run() -> dict[str, Any]:
        viewer = Viewer()
        await viewer.open(found.addresses[0], found.to_security())
        try:
            return await describe_cluster(viewer, timeout_s=10.0)
        except TimeoutError:
            raise CommError("the scheduler does not answer", found.addresses[0]) from None
        finally:
            viewer.close()

    return asyncio.run(run()), found.addresses[0]


def describe(info: dict[str, Any], address: str) -> str:
    """Format a description for display."""
    tasks = ", ".join(f"{n} {state}" for state, n in info["tasks"].items() if n) or "none"
    lines = [
        f"scheduler at {address}, process {info.get('pid')} on {info.get('host')}, "
        f"Python {info.get('python')}",
        f"  workers  {info['n_workers']} with {counted(info['nthreads'], 'thread')}",
        f"  clients  {', '.join(info['clients']) or 'none'}",
        f"  tasks    {tasks}",
    ]
    if info.get("dashboard"):
        lines.append(f"  pages    {info['dashboard']}healthz")
    rows = [("worker", "threads", "assigned", "results", "holds", "memory", "limit", "address")]
    for where, worker in info["workers"].items():
        rows.append(
            (
                worker["name"],
                str(worker["nthreads"]),
                str(worker["n_processing"]),
                str(worker["n_in_memory"]),
                format_bytes(worker["nbytes"]),
                format_bytes(worker["metrics"].get("rss", 0)),
                format_bytes(worker["memory_limit"]),
                where,
            )
        )
    if len(rows) > 1:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines.append("")
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
    refused = info.get("refused_workers") or []
    if refused:
        lines.append("")
        lines += [
            f"refused  {worker['name']} on {worker['host']}: {worker['why']}" for worker in refused
        ]
    return "\n".join(lines)
