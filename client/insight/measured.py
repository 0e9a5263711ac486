"""Numbers of what an attempt of a task has used: the answer to `Future.measured`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..shell.engine import Engine
from .asking import ask


@dataclass(frozen=True)
class Measured:
    """Numbers of the last attempt of a task that has ended, with a result or an error.

    All but the wall time is measured of attempts that ran for 10 ms or longer, of a
    `weft.Command`, and of others that run in a process of their own. None = it is not known.

    Attributes:
        wall_s: how long it ran, seconds.
        cpu_s: time of CPUs, user and system, seconds: of its processes, or else of its thread.
            Threads that a function has started itself do not count.
        peak_rss: the largest resident memory, bytes: of its processes, or else of the whole
            process of the worker since that was started. Only where a function of a category ran
            alone there, it is how much that has grown.
        read_bytes: read from disks, not from the cache of the system: by its processes, or else
            by its thread.
        written_bytes: written to disks, likewise.
        is_shared: True where it had no process of its own. So `peak_rss` is that of its worker's.
    """

    wall_s: float | None = None
    cpu_s: float | None = None
    peak_rss: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    is_shared: bool = True


async def measured_of(engine: Engine, key: str) -> Measured:
    """Return what the last attempt of a task has used."""
    async for info in ask(engine, "measured", {"keys": [key]}):
        for _, row in info["measured"]:
            return _read(row)
    return Measured()


def _read(row: list[Any]) -> Measured:
    wall_us, cpu_us, *others = row
    return Measured(wall_us / 1e6, None if cpu_us is None else cpu_us / 1e6, *others)
