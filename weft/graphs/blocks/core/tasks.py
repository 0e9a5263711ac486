"""The record of a task that travels in a block, and the record of a block.

Core. `encoding` fills in what the tasks have in common with those of worker processes.
"""

from __future__ import annotations

from typing import Any

from ...processes.core.tasks import ProcessTask


class BlockTask(ProcessTask):
    """A task on its way through a cluster. WAITING, READY, SENT, then DONE."""

    __slots__ = ("block", "place")

    may_be_plain = True
    #: The block that it was sent with, until that has finished or given it back.
    block: Block | None
    #: The worker that alone can read its value, which cannot be pickled; None = any can.
    place: str | None

    def begin(self) -> None:
        """See `ProcessTask`."""
        self.buffers = self.drops = ()  # type: ignore[assignment]
        self.block = self.exported = self.place = None
        self.group = 0
        self.payload = b""


class Block:
    """Tasks that a worker runs as one task of the cluster, in their order."""

    __slots__ = ("imports", "is_over", "load_s", "n_tasks", "place", "tasks", "waiting")

    def __init__(self, place: str | None) -> None:
        #: The only worker that may run it; None = any may.
        self.place = place
        #: Those that have not finished and were not given back.
        self.tasks: dict[int, BlockTask] = {}
        #: How many it was sent with.
        self.n_tasks = 0
        #: {task outside: uses of its value by tasks here that were not given back}
        self.imports: dict[Any, int] = {}
        #: Tasks that may become ready when tasks here have finished.
        self.waiting: list[BlockTask] = []
        #: Estimate of how long it takes.
        self.load_s = 0.0
        #: It has made its last report.
        self.is_over = False
