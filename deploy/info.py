"""`weft info`: ask a scheduler what it has, and write it for people."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ..protocol import connection_file as connection_files
from ..protocol.connection import Connection
from ..protocol.deadline import within
from ..protocol.errors import CommClosed, CommError, ProtocolError
from ..protocol.handshake import Role
from ..protocol.message import Message
from ..protocol.messages import ClusterInfo, GetClusterInfo
from ..protocol.transport import connect
from .settings import format_bytes


class _Question:
    """The handler of a connection with one question."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, ClusterInfo) and not self.answer.done():
                self.answer.set_result(message.info)

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or CommClosed())


def ask(connection_file: str | None, address: str | None) -> tuple[dict[str, Any], str]:
    """Return a cluster's description and the address at which it answered.

    Raises:
        WeftError: there is none, or it cannot be reached.
    """
    found = connection_files.find(connection_file, address, os.environ)

    async def run() -> dict[str, Any]:
        question = _Question()
        connection = await connect(
            found.addresses[0],
            role=Role.VIEWER,
            server_role=Role.SCHEDULER,
            security=found.to_security(),
            handler=question,
        )
        connection.send([GetClusterInfo(request=1)])
        try:
            return await within(10.0, question.answer)
        except TimeoutError:
            raise CommError("the scheduler does not answer", found.addresses[0]) from None
        finally:
            connection.close()

    return asyncio.run(run()), found.addresses[0]


def _threads(n: int) -> str:
    return f"{n} thread" if n == 1 else f"{n} threads"


def describe(info: dict[str, Any], address: str) -> str:
    """Write a description for people."""
    tasks = ", ".join(f"{n} {state}" for state, n in info["tasks"].items() if n) or "none"
    lines = [
        f"scheduler at {address}, process {info.get('pid')} on {info.get('host')}, "
        f"Python {info.get('python')}",
        f"  workers  {info['n_workers']} with {_threads(info['nthreads'])}",
        f"  clients  {', '.join(info['clients']) or 'none'}",
        f"  tasks    {tasks}",
    ]
    if info.get("dashboard"):
        lines.append(f"  pages    {info['dashboard']}healthz")
    rows = [("worker", "threads", "running", "results", "holds", "memory", "limit", "address")]
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
    return "\n".join(lines)
