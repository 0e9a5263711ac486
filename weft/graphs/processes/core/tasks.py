"""The record of a task that worker processes run, besides its links.

Core. `encoding` fills the fields in; from then on `state.ProcessRun` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...core.tasks import GraphTask

#: It needs results that no worker has yet, or that are in different workers.
WAITING: Final = 0
#: Its `home` has its inputs, or will have them when it comes to the task.
VIRTUAL: Final = 1
#: All of its inputs have been computed; it is on a ready stack.
READY: Final = 2
#: Like READY, but its `home` lacks an input, which was requested.
FETCHING: Final = 3
#: Its `home` was sent the task.
SENT: Final = 4
#: It has finished; its result is here or in a worker.
DONE: Final = 5


class ProcessTask(GraphTask):
    """A task on its way through worker processes.

    A *literal* is one too: a large value among the arguments of others, DONE from the beginning and
    without links of its own.
    """

    __slots__ = (
        "at",
        "buffers",
        "dropper",
        "drops",
        "exported",
        "group",
        "home",
        "is_output",
        "n_open_uses",
        "n_unassigned",
        "nbytes",
        "number",
        "payload",
        "state",
    )

    #: Payloads of simple calls are left as they are, to be pickled together.
    may_be_plain = False
    #: Its index in the run's list of tasks, by which messages name it.
    number: int
    #: Tasks of one group are assumed to last equally long. Also the number of their function.
    group: int
    #: The pickled call, as the worker gets it; b"" once the task has finished.
    payload: bytes
    #: Numbers of the literals that are buffers of `payload`.
    buffers: Sequence[int]
    state: int
    #: Index of the worker that it was sent to, or is meant for; -1 = none.
    home: int
    #: Bit i is set if worker i has its value, or will have it when it comes to its next chunk.
    at: int
    #: The value in a form that can be sent to any worker; None = it is only in one worker.
    exported: Any
    #: Estimated size of the value if it is not `exported`; 0 = unknown, infinite = not picklable.
    nbytes: float
    #: 1 if the parent wants the value and has not got it, else 0.
    is_output: int
    #: Entries of `dependencies` that were not sent yet.
    n_unassigned: int
    #: Entries of `dependents` that were not sent yet.
    n_open_uses: int
    #: The task after which the only worker that has the value drops it without a message.
    dropper: ProcessTask | None
    #: Numbers of the tasks that have this one as their dropper.
    drops: list[int]

    def begin(self) -> None:
        """Set the fields that are equal for all tasks before the run."""
        self.at = 0
        self.buffers = self.drops = ()  # type: ignore[assignment]
        self.dropper = self.exported = None
        self.group = 0
        self.home = -1
        self.nbytes = 0
        self.payload = b""
