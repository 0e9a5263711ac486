"""`weft logs`: the latest log records of the scheduler and the workers, merged by time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ...protocol.errors import QuestionFailed, UnknownWorker
from ..http.viewer import Viewer
from .info import TIMEOUT_S

#: A record: seconds since 1970, process, level, logger, text.
Row = tuple[float, str, str, str, str]


async def ask_logs(
    viewer: Viewer, names: tuple[str, ...], n: int
) -> tuple[list[Row], list[QuestionFailed]]:
    """Return the last `n` records of all asked processes, and the errors of those without answer.

    Args:
        viewer: the connection.
        names: of workers: names, hosts or addresses; () = the scheduler and all workers.
        n: how many records, of all processes together.

    Raises:
        UnknownWorker: no connected worker has this name.
    """
    arguments = {"n": n}
    workers: dict[str, dict[str, Any]] = {}
    async for page in viewer.ask("workers", timeout_s=TIMEOUT_S):
        workers |= page["workers"]
    chosen = _choose(workers, names)

    async def ask_one(process: str, to: str) -> list[Row]:
        pages = viewer.ask("logs", arguments, TIMEOUT_S, to=to, process=process)
        return [
            (when, process, level, logger, text)
            async for page in pages
            for when, level, logger, text in page["records"]
        ]

    asked = [ask_one(f"worker {worker['name']}", worker["id"]) for worker in chosen]
    if not names:
        asked.append(ask_one("scheduler", ""))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    rows: list[Row] = []
    errors: list[QuestionFailed] = []
    for answer in answers:
        if isinstance(answer, QuestionFailed):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            rows += answer
    rows.sort(key=lambda row: row[0])
    return rows[-n:] if n else [], errors


def _choose(workers: dict[str, dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    known = {
        name: None for a, worker in workers.items() for name in (a, worker["name"], worker["host"])
    }
    for name in names:
        if name not in known:
            there = ", ".join(worker["name"] for worker in list(workers.values())[:10]) or "none"
            raise UnknownWorker(
                f"no connected worker has the name, address or host {name!r}; connected: {there}"
            )
    return [
        worker
        for address, worker in workers.items()
        if not names or not {address, worker["name"], worker["host"]}.isdisjoint(names)
    ]


def show(row: Row) -> str:
    """Format a record for display."""
    when, process, level, logger, text = row
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    return f"{clock},{int(when % 1 * 1000):03d} {process} {logger} {level}: {text}"


def as_plain(row: Row) -> dict[str, Any]:
    """Return a record for programs."""
    return dict(zip(("time", "process", "level", "logger", "text"), row, strict=True))
