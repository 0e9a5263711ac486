"""The record of a task that travels in a block, and the record of a block.

Core. `encoding` fills the fields in; from then on `state.BlockRun` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...core.tasks import GraphTask

#: It needs results that are not there yet.
WAITING: Final = 0
#: All of its inputs have been computed; it is on a ready stack.
READY: Final = 1
#: It was sent in a block.
SENT: Final = 2
#: It has finished; its result is here or at a worker.
DONE: Final = 3


class BlockTask(GraphTask):
    """A task on its way through worker processes.

    A *literal* is one too: a large value among the arguments of others, DONE from the beginning and
    without links of its own.
    """

    __slots__ = (
        "block",
        "buffers",
        "drops",
        "exported",
        "group",
        "is_output",
        "n_open_uses",
        "n_unassigned",
        "number",
        "payload",
        "place",
        "state",
    )

    #: Its index in the run's list of tasks, by which messages name it.
    number: int
    #: Tasks of one group are assumed to last equally long. Also the number of their function.
    group: int
    #: The call, as the worker gets it: pickled unless it is simple; b"" once the task has finished.
    payload: Any
    #: Numbers of the literals that are buffers of `payload`.
    buffers: Sequence[int]
    state: int
    #: The block that it was sent with, until that has finished or given it back.
    block: Block | None
    #: The worker that alone can read its value, which cannot be pickled; None = any can.
    place: str | None
    #: The value in a form that can be sent to any worker; None = there is none, or none is needed.
    exported: Any
    #: 1 if the caller wants the value and has not got it, else 0.
    is_output: int
    #: Entries of `dependencies` that were not sent yet.
    n_unassigned: int
    #: Entries of `dependents` that were not sent yet.
    n_open_uses: int
    #: Numbers of the tasks whose value nothing reads after this one.
    drops: Sequence[int]

    def begin(self) -> None:
        """Set the fields that are equal for all tasks before the run."""
        self.buffers = self.drops = ()
        self.block = self.exported = self.place = None
        self.group = 0
        self.payload = b""


class Block:
    """Tasks that a worker runs as one call, in their order."""

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
