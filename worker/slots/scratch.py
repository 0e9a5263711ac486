"""Folders of attempts: made where the worker has its files, and removed with the attempt."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...protocol.errors import NotInTask
from ...protocol.host.blocking import closed_here
from ..config import scratch_folder
from ..context import get_worker, is_in_task
from .seats import SlotSeat, task_seat


def scratch_parent() -> Path | None:
    """Make the folder for folders of the calling task; None = that of the system.

    It is removed with the worker, by its supervisor if it was killed.
    """
    if not is_in_task() or not (here := get_worker()).local_directory:
        return None
    seat: Any = here.seat
    if getattr(seat, "make_scratch", None) is not None and seat.attempt:
        # Of an isolated task: its worker removes what a crash leaves.
        return Path(seat.make_scratch())
    above = scratch_folder(Path(here.local_directory), here.worker_id)
    above.mkdir(parents=True, exist_ok=True)
    return above


def get_scratch_directory() -> Path:
    """Return a folder for files of the calling task; the first call makes it.

    Each attempt has its own, at the worker's local directory. It is removed when the attempt has
    ended, however that was, so a result must not name files in it.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started, or in a
            call of an actor.
        OSError: it cannot be made.

    Example:
        >>> def work(url):
        ...     path = weft.get_scratch_directory() / "data"
        ...     path.write_bytes(download(url))
        ...     return evaluate(path)
    """
    seat: Any = task_seat("get_scratch_directory")
    if isinstance(seat, SlotSeat):
        return Path(scratch_of(seat))
    make: Callable[[], str] | None = getattr(seat, "make_scratch", None)  # of an isolated task
    if make is None:
        raise NotInTask("get_scratch_directory() works only in a task, and not in an actor")
    return Path(make())


def scratch_of(seat: SlotSeat) -> str:
    """Return the folder of the task on this thread, which has this seat."""
    if seat.scratch is None:
        with closed_here():  # an interrupt between two steps would leave it
            seat.scratch = tempfile.mkdtemp(prefix="task-", dir=scratch_parent())
            seat.when_task_ends(partial(_remove, seat, seat.scratch))
    return seat.scratch


def _remove(seat: SlotSeat, folder: str) -> None:
    seat.scratch = None
    shutil.rmtree(folder, ignore_errors=True)
