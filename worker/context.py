"""The description of the worker that a task can read while it runs there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..protocol.errors import NotInTask
from ..protocol.wire.keys import Key, key_of

if TYPE_CHECKING:
    from ..protocol.net.session import Finder
    from .actors import Actors
    from .core.tasks import WorkerTask
    from .interrupting import SlotGate
    from .output import OutputCatcher
    from .seats import SlotSeat

__all__ = ["WorkerContext", "get_worker"]


class WorkerContext:
    """The worker and the task of one executor thread.

    Attributes:
        name: the worker's name, for display.
        address: where peers and clients fetch data from it.
        worker_id: identifies this process, across connections; no other process ever has it.
        local_directory: a folder for files of the worker, removed with it; "" if it has none.
        resources: the amount of each resource that the worker has.
        plugins: those that are set up on the worker, by name.
    """

    __slots__ = (
        "actors",
        "address",
        "host",
        "local_directory",
        "name",
        "output",
        "plugins",
        "resources",
        "seat",
        "stand_in",
        "task",
        "wake",
        "worker_id",
    )

    def __init__(
        self,
        name: str,
        address: str,
        worker_id: str,
        local_directory: str = "",
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.worker_id = worker_id
        self.local_directory = local_directory
        self.resources = dict(resources or {})
        #: The actors of this worker; None in a worker without a data port.
        self.actors: Actors | None = None
        self.plugins: dict[str, Any] = {}
        #: What sends lines to clients; None if the worker is in the process of a client.
        self.output: OutputCatcher | None = None
        #: What a client in the tasks of this worker needs; None before the first connection.
        self.host: TaskHost | None = None
        #: The task that the thread runs, None between tasks, and in functions of `client.run`.
        self.task: WorkerTask | None = None
        #: Wakes the event loop in which the task's coroutine runs; None = there is none.
        self.wake: Callable[[], object] | None = None
        #: The thread in which an actor is made in the place of this one, and its gate.
        self.stand_in: tuple[int, SlotGate] | None = None
        #: That of the thread; None for functions of `client.run`.
        self.seat: SlotSeat | None = None

    @property
    def task_key(self) -> str:
        """The text of `key`, as logs and pages show it."""
        task = self.task
        return "" if task is None else task.key

    @property
    def key(self) -> Key:
        """The key of the task that this thread runs, "" between tasks."""
        return key_of(self.task_key)

    @property
    def attempt(self) -> int:
        """The number of this attempt to run the task, which no other has; 0 between tasks."""
        task = self.task
        return 0 if task is None else task.attempt

    @property
    def is_cancelled(self) -> bool:
        """True if the task is to end: a long one looks at this now and then, and ends by itself.

        One that has looked has a second before it is interrupted by `weft.TaskInterrupted`.
        """
        seat, task = self.seat, self.task
        return seat is not None and task is not None and seat.is_cancelled(task.attempt)

    def show(self, level: int, name: str, text: str) -> bool:
        """Show lines at all clients; False if the worker cannot send them, or no task runs here."""
        if self.output is None or self.task is None:
            return False
        self.output.show(self.task_key, level, name, text)
        return True

    def __repr__(self) -> str:
        return f"<WorkerContext of {self.name!r} at {self.address}>"


class TaskHost:
    """The addresses and names with which a client in the tasks of a worker connects."""

    __slots__ = ("find", "name", "task_pass", "worker_id")

    def __init__(self, name: str, worker_id: str, find: Finder) -> None:
        self.name = name
        self.worker_id = worker_id
        #: Returns the addresses of the scheduler to try, and the secret.
        self.find = find
        #: What the scheduler sent with the last welcome.
        self.task_pass = ""


class _ThreadContext(threading.local):
    context: WorkerContext | None = None


_local = _ThreadContext()


def get_worker() -> WorkerContext:
    """Return the worker that runs the calling task.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started.
    """
    context = _local.context
    if context is None:
        raise NotInTask("get_worker() works only in a task, on the thread that runs it")
    return context


def wake_here(wake: Callable[[], object] | None) -> None:
    """Note how to wake the event loop that runs on the calling thread, if that runs tasks."""
    if _local.context is not None:
        _local.context.wake = wake


def is_in_task() -> bool:
    """Return whether the calling thread is one that runs tasks of a worker."""
    return _local.context is not None


def is_in_coroutine() -> bool:
    """Return whether the task of the calling thread is a coroutine function."""
    context = _local.context
    return context is not None and context.wake is not None


def task_here() -> str:
    """Return the key of the task that the calling thread runs, "" if it runs none."""
    context = _local.context
    return "" if context is None else context.task_key


def set_worker(context: WorkerContext) -> None:
    """Make `get_worker` on this thread return `context`."""
    _local.context = context
