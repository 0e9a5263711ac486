"""Writes records that the client keeps beyond its memory limit into files; see `core.recipes`.

A file has no name, is written once, and is mapped into memory: what is left of a record is a view,
whose pages the kernel reads when the record is sent, and drops when it likes. A file is gone with
the last of its views.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from ...protocol.host.host_files import HostFile, offsets_of
from ...protocol.values.host_blobs import HostBlob, in_file
from ...protocol.wire.payload import Blob, Payload, blob_nbytes, parts_of
from ..core.events import ClientEvent, RecipesSpilled, SpillRecipes
from ..core.tasks import TaskColumns

#: A part of the file system that is left free.
_LEAST_FREE: Final = 0.05


class SpilledRows(Sequence[Blob]):
    """The arguments of a `map` in a file, one blob per row."""

    __slots__ = ("_ends", "_view")

    def __init__(self, view: memoryview, nbytes: Sequence[int]) -> None:
        self._view = view
        self._ends = array("Q", accumulate(nbytes, initial=0))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, i: Any) -> Any:
        return bytes(self._view[self._ends[i] : self._ends[i + 1]])


def spill(
    action: SpillRecipes, loop: asyncio.AbstractEventLoop, on_event: Callable[[ClientEvent], None]
) -> None:
    """Write records in a thread beside the loop, and report it to the core in the loop."""

    def on_written(written: asyncio.Future[RecipesSpilled]) -> None:
        if not written.cancelled():
            on_event(written.result())

    loop.run_in_executor(None, write, action).add_done_callback(on_written)


def write(action: SpillRecipes) -> RecipesSpilled:
    """Write records; for any thread."""
    try:
        return RecipesSpilled(_written(action))
    except (OSError, ValueError) as error:
        return RecipesSpilled(None, str(error))


def _written(action: SpillRecipes) -> list[Blob | Sequence[Blob]]:
    shared = {
        i: record.args
        for i, record in enumerate(action.records)
        if isinstance(record.args, HostBlob)
    }
    groups = [
        [] if i in shared else [*record.args] if isinstance(record, TaskColumns) else [record.args]
        for i, record in enumerate(action.records)
    ]
    parts = [part for blobs in groups for blob in blobs for part in parts_of(blob)]
    n = sum(memoryview(part).nbytes for part in parts)
    needed = n + sum(blob.nbytes for blob in shared.values())
    usage = shutil.disk_usage(tempfile.gettempdir())
    if usage.free - needed < usage.total * _LEAST_FREE:
        raise OSError(f"{tempfile.gettempdir()} has {usage.free >> 20} MiB left")
    moved = {i: _moved(blob) for i, blob in shared.items()}
    view = memoryview(b"")
    if n:
        with tempfile.TemporaryFile(prefix="weft-recipes-") as file:
            for part in parts:
                file.write(part)
            file.flush()
            view = memoryview(mmap.mmap(file.fileno(), n, access=mmap.ACCESS_READ))
    found: list[Blob | Sequence[Blob]] = []
    for i, (record, blobs) in enumerate(zip(action.records, groups, strict=True)):
        if i in moved:
            found.append(moved[i])
            continue
        group = view[: sum(map(blob_nbytes, blobs))]
        view = view[len(group) :]
        if not isinstance(record, TaskColumns):
            found.append(_viewed(group, blobs[0]))
        elif all(type(blob) is bytes for blob in blobs):
            found.append(SpilledRows(group, list(map(blob_nbytes, blobs))))
        else:
            ends = list(accumulate(map(blob_nbytes, blobs), initial=0))
            found.append(
                [
                    _viewed(group[a:b], blob)
                    for (a, b), blob in zip(pairwise(ends), blobs, strict=True)
                ]
            )
    return found


def _moved(blob: HostBlob) -> HostBlob:
    """Return the same blob in a file on disk, which workers of this host can map, too."""
    with tempfile.TemporaryFile(prefix="weft-recipes-") as file:
        for begin, part in zip(offsets_of(blob.sizes), parts_of(blob), strict=False):
            file.seek(begin)
            file.write(part)
        file.truncate(offsets_of(blob.sizes)[-1])
        file.flush()
        return in_file(HostFile(os.dup(file.fileno()), offsets_of(blob.sizes)[-1]), blob.sizes)


def _viewed(view: memoryview, blob: Blob) -> Payload:
    """Return a blob that is equal to `blob`, of the same bytes in `view`."""
    sizes = [memoryview(part).nbytes for part in parts_of(blob)]
    data, *buffers = [view[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]
    return Payload(data, buffers)
