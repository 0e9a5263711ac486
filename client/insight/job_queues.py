"""Queues of jobs: the names that calls give by `queue=`, which users pause and resume."""

from __future__ import annotations

from typing import Any

from ...protocol.wire.answers import part_of, reading
from ..modes import on_loop
from ..shell.engine import Engine
from .asking import pages_of


@on_loop
async def pause_queue(engine: Engine, name: str) -> None:
    """Let no task of a queue begin from now on, of whichever client; those that run go on.

    If the scheduler has a journal, the queue is still paused when it is started again. A queue that
    is paused already stays so.

    Args:
        name: of the queue, as calls have it in `queue=`.

    Raises:
        QuestionFailed: it is no name, or too many queues are paused.
    """
    await pages_of(engine, "pause_queue", {"name": name}, None)


@on_loop
async def resume_queue(engine: Engine, name: str) -> None:
    """Let the tasks of a queue begin again.

    Args:
        name: of the queue.

    Raises:
        QuestionFailed: it is not paused.
    """
    await pages_of(engine, "resume_queue", {"name": name}, None)


@on_loop
async def paused_queues(engine: Engine) -> dict[str, int]:
    """Return the paused queues: `{name: number of tasks that could begin but for that}`."""
    queues: dict[str, Any] = {}
    for page in await pages_of(engine, "paused_queues", {}, None):
        with reading("the scheduler"):
            queues |= part_of(page, "queues", dict)
    return queues
