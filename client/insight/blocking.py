"""Blocked workers: hosts and workers that users give no tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ...protocol.durations import seconds_of
from ...protocol.wire.answers import part_of, reading
from ..modes import on_loop
from ..shell.engine import Engine
from .asking import pages_of


@on_loop
async def block_workers(
    engine: Engine,
    workers: str | list[str],
    duration: float | str | timedelta | None = None,
    *,
    reason: str = "",
) -> int:
    """Give workers no tasks from now on; what they run goes on, and their results can be read.

    A name counts also for workers that join later. A name that is blocked already is blocked anew.
    A scheduler that is started again knows of no block.

    Args:
        workers: names or addresses of workers, or of hosts with all their workers.
        duration: seconds, or "10 min"; None = until `unblock_workers`.
        reason: shown where the worker is shown, and by `weft explain`; at most 200 characters.

    Returns:
        How many of the workers that are connected are blocked now, all blocks together.

    Raises:
        InvalidDuration: it is no length of time.
        QuestionFailed: of the names or the reason, or too much is blocked.
    """
    names = [workers] if isinstance(workers, str) else list(workers)
    for_ms = 0
    if duration is not None:
        for_ms = max(1, int(seconds_of(duration, "duration") * 1000))
    arguments: dict[str, Any] = {"names": names, "for_ms": for_ms, "reason": reason}
    n_workers = 0
    for page in await pages_of(engine, "block_workers", arguments, None):
        with reading("the scheduler"):
            n_workers = part_of(page, "n_workers", int)
    return n_workers


@on_loop
async def unblock_workers(engine: Engine, workers: str | list[str]) -> None:
    """Give workers tasks again.

    Args:
        workers: names, as they were blocked.

    Raises:
        QuestionFailed: one of them is not blocked.
    """
    names = [workers] if isinstance(workers, str) else list(workers)
    await pages_of(engine, "unblock_workers", {"names": names}, None)


@on_loop
async def blocked_workers(engine: Engine) -> dict[str, dict[str, Any]]:
    """Return what is blocked: `{name: {"by": user, "reason": text, "left_s": seconds or None}}`."""
    blocked: dict[str, Any] = {}
    for page in await pages_of(engine, "blocked_workers", {}, None):
        with reading("the scheduler"):
            blocked |= part_of(page, "blocked", dict)
    return blocked
