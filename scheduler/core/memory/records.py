"""The state of the brake on memory. Records only."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..deadlines import Deadline
    from ..peers import ClientHandle, WorkerHandle
    from ..tasks import SchedulerTask, TaskClass


class Kill(NamedTuple):
    """The end of a process that used more memory than it may, with results in it."""

    when: float
    worker: str
    #: those whose only copy it had
    results: list[SchedulerTask]


class Memory:
    """What the brake knows."""

    __slots__ = ("aside", "full", "kills", "look", "noticed", "stalled")

    def __init__(self) -> None:
        #: {worker: None}: all that are full (`WorkerHandle.is_full`)
        self.full: dict[WorkerHandle, None] = {}
        #: {task: None} in state no_worker, first come first: they would add to full workers
        self.aside: dict[SchedulerTask, None] = {}
        #: when `relief` looks at them next; pending while there are some
        self.look: Deadline | None = None
        #: {class of some of them: since when nothing goes on that could make room for these}, in
        #: waking time
        self.stalled: dict[TaskClass, float] = {}
        #: {client: None}: sent a notice that tasks of it wait for memory, while some do
        self.noticed: dict[ClientHandle, None] = {}
        #: of the last minute, oldest first
        self.kills: deque[Kill] = deque()
