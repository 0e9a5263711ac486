"""`weft logs`: the latest log records of the scheduler and the workers, merged by time."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from ...client.insight.inspecting import choose_workers
from ...protocol.errors import QuestionFailed
from ...protocol.wire.answers import reading
from ..http.viewer import Viewer

#: The name of the scheduler's process in a record.
SCHEDULER: Final = "scheduler"
#: A record: seconds since 1970, process, level, logger, text.
Row = tuple[float, str, str, str, str]


async def ask_logs(
    viewer: Viewer,
    names: tuple[str, ...],
    n: int,
    level: str = "",
    *,
    of_scheduler: bool = False,
) -> tuple[list[Row], list[QuestionFailed]]:
    """Return the last `n` records of all asked processes, and the errors of those without answer.

    Args:
        viewer: the connection.
        names: of workers: names, hosts or addresses; () = the scheduler and all workers.
        n: how many records, of all processes together.
        level: the least level, "" = all.
        of_scheduler: also those of the scheduler, and of no worker without `names`.

    Raises:
        UnknownWorker: no connected worker has this name.
    """
    arguments: dict[str, Any] = {"n": n}
    if level:
        arguments["level"] = level
    workers = (await viewer.ask_all("workers"))["workers"]
    chosen = choose_workers(workers, set(names) if names or of_scheduler else None).values()

    async def ask_one(process: str, to: str) -> list[Row]:
        answer = await viewer.ask_all("logs", arguments, to=to, process=process)
        with reading(process):
            return read_rows(process, answer)

    asked = [ask_one(f"worker {worker['name']}", worker["id"]) for worker in chosen]
    if of_scheduler or not names:
        asked.append(ask_one(SCHEDULER, ""))
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


def read_rows(process: str, page: dict[str, Any]) -> list[Row]:
    """Return the records of a page of a process."""
    return [
        (float(when), process, str(level), str(logger), str(text))
        for when, level, logger, text in page["records"]
    ]


def show(row: Row) -> str:
    """Format a record for display."""
    when, process, level, logger, text = row
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    return f"{clock},{int(when % 1 * 1000):03d} {process} {logger} {level}: {text}"


def as_plain(row: Row) -> dict[str, Any]:
    """Return a record for programs."""
    return dict(zip(("time", "process", "level", "logger", "text"), row, strict=True))
