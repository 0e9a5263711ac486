"""Reports about workers whose loops do not run.

To the scheduler, which attempts hold a worker up (`held_up`); to the log, one warning with the
stacks of a worker that does nothing at all (`silence`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

import psutil

from ...protocol.wire.messages import WorkerHeldUp
from ..slots.silence import STACK_SIGNAL, STACK_SUFFIX
from ..slots.started import read_beats, read_started
from .measuring import SUSPENDED
from .places import Place

_log = logging.getLogger("weft.supervisor")

_CHECK_S: Final = 0.1
#: Number of times that the supervisor looks for a stack that it has requested.
_STACK_LOOKS: Final = 20


def held_up(places: Iterable[Place], now: float) -> list[WorkerHeldUp]:
    """Look at the workers; return reports about those that attempts hold up."""
    reports = []
    for place in places:
        record = place.record
        held_s = place.held_up.look(read_beats(record), read_started(record), now)
        with contextlib.suppress(psutil.Error):  # it ends just now
            process = place.process
            if held_s and process is not None and process.status() not in SUSPENDED:
                held_ms = [int(1000 * seconds) for seconds in held_s.values()]
                report = WorkerHeldUp(
                    worker_id=place.worker_id, attempts=[*held_s], held_ms=held_ms
                )
                reports.append(report)
    return reports


async def look_at_silence(place: Place, elapsed_s: float, ask: Callable[..., None]) -> None:
    """Report a worker if it has done nothing for too long; see `report_silence`.

    Args:
        place: its place.
        elapsed_s: time since the last look.
        ask: sends a request to the spawner.
    """
    with contextlib.suppress(psutil.Error):  # it ends just now
        if place.process is None or place.process.status() in SUSPENDED:
            return
        used = place.process.cpu_times()
        if place.silence.look(read_beats(place.record), used.user + used.system, elapsed_s):
            await report_silence(place, ask)


async def report_silence(place: Place, ask: Callable[..., None]) -> None:
    """Log the stacks of a silent worker. It is not killed: it may wait for good reason.

    Args:
        place: its place.
        ask: sends a request to the spawner.
    """
    pid, seconds = place.pid, place.silence.silent_s
    file = place.record.with_suffix(STACK_SUFFIX)
    stack = ""
    if STACK_SIGNAL and file.exists():
        ask("kill", pid, STACK_SIGNAL)
        for _ in range(_STACK_LOOKS):
            await asyncio.sleep(_CHECK_S)
            with contextlib.suppress(FileNotFoundError):
                before, stack = stack, file.read_text(encoding="utf-8", errors="replace")
                if stack and stack == before:
                    break
    _log.warning(
        "worker %s (process %d) has not answered for %.0f s and uses no processor time: "
        "perhaps a task sleeps or waits in C code with the interpreter lock. It is left alone; "
        "to end it: kill -9 %d. Its stacks:\n%s",
        place.spec.name,
        pid,
        seconds,
        pid,
        stack.rstrip() or "(not known)",
        extra={"code": "worker-silent", "worker": place.worker_id},
    )
