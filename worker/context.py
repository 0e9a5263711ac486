"""The description of the worker that a task can read while it runs there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import NotInTask
from ..protocol.values.parts import fetch_parts_here
from ..protocol.values.printed import keep_output_here
from ..protocol.wire.keys import Key, key_of

if TYPE_CHECKING:
    from ..protocol.net.session import Finder
    from ..protocol.values.parts import Fetch
    from .actors.actors import Actors
    from .core.tasks import WorkerTask
    from .output.output import OutputCatcher
    from .slots.interrupting import SlotGate
    from .slots.seats import SlotSeat


@dataclass(slots=True)
class Here:
    """What one thread does: the part of its context that changes with its tasks."""

    #: The task that the thread runs, None between tasks, and in functions of `client.run`.
    task: WorkerTask | None = None
    #: Wakes the event loop in which the task's coroutine runs; None = there is none.
    wake: Callable[[], object] | None = None
    #: The thread in which an actor is made in the place of this one, and its gate.
    stand_in: tuple[int, SlotGate] | None = None
    #: The seat of the thread; None for functions of `client.run`.
    seat: SlotSeat | None = None


class WorkerContext:
    """The worker and the task of one executor thread.

    Plugins and tasks may set attributes of other names than these: all threads of the worker have
    them (`worker.conn = connect()` in a plugin, `weft.get_worker().conn` in tasks), until they are
    deleted, or the worker ends.

    Attributes:
        name: the worker's name, for display.
        address: where peers and clients fetch data from it.
        worker_id: identifies this process, across connections; no other process ever has it.
        local_directory: a folder for files of the worker, removed with it; "" if it has none.
        resources: the amount of each resource that the worker has.
        plugins: those that are set up on the worker, by name.
    """

    # All threads share one `__dict__`. What changes per task is in `here`, which has no
    # `__setattr__` that would cost each task time.
    __slots__ = (
        "__dict__",
        "actors",
        "address",
        "here",
        "host",
        "local_directory",
        "name",
        "output",
        "parts",
        "plugins",
        "resources",
        "worker_id",
    )

    name: str
    address: str
    worker_id: str
    local_directory: str
    resources: dict[str, float]
    plugins: dict[str, Any]
    #: The actors of this worker; None in a worker without a data port.
    actors: Actors | None
    #: What sends lines to clients; None if the worker is in the process of a client.
    output: OutputCatcher | None
    #: Reads parts of values; None = there is no data port.
    parts: Fetch | None
    #: What a client in the tasks of this worker needs; None before the first connection.
    host: TaskHost | None
    here: Here

    def __init__(
        self,
        name: str,
        address: str,
        worker_id: str,
        local_directory: str = "",
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self.set_own(
            name=name,
            address=address,
            worker_id=worker_id,
            local_directory=local_directory,
            resources=dict(resources or {}),
            plugins={},
            actors=None,
            output=None,
            parts=None,
            host=None,
            here=Here(),
        )

    def set_own(self, **values: Any) -> None:
        """Set attributes of weft's own."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            raise AttributeError(_PROTECTED.format(name))
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN:
            raise AttributeError(_PROTECTED.format(name))
        object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:  # only for what was not found
        advice = _ADVICE.get(name)
        raise AttributeError(
            f"the worker has no attribute {name!r}: "
            + (
                f"use {advice}"
                if advice
                else "neither weft nor a plugin or task that has run on this worker has set it"
            )
        )

    def __copy__(self) -> WorkerContext:
        """Return the context for another thread of the worker, with what this one does."""
        other = object.__new__(WorkerContext)
        shared = {name: getattr(self, name) for name in WorkerContext.__slots__}
        other.set_own(**{**shared, "here": replace(self.here)})
        return other

    @property
    def task(self) -> WorkerTask | None:
        """The task that the thread runs."""
        return self.here.task

    @property
    def seat(self) -> SlotSeat | None:
        """See `Here`."""
        return self.here.seat

    @property
    def task_key(self) -> str:
        """The text of `key`, as logs and pages show it."""
        task = self.here.task
        return "" if task is None else task.key

    @property
    def key(self) -> Key:
        """The key of the task that this thread runs, "" between tasks."""
        return key_of(self.task_key)

    @property
    def attempt(self) -> int:
        """The number of this attempt to run the task, which no other has; 0 between tasks."""
        task = self.here.task
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


#: Names of attributes that only weft sets.
_OWN: Final = frozenset(dir(WorkerContext))
_PROTECTED: Final = (
    "the attribute {!r} of a worker is weft's own; keep what is yours under another name"
)


#: {attribute of dask's worker: what to use}
_ADVICE: Final = {
    "id": "worker_id, or name",
    "contact_address": "address",
    "nthreads": "weft.get_client().nthreads()",
    "memory_limit": "weft.get_client().scheduler_info()",
    "client": "weft.get_client()",
    "executors": "an executor of the task's own; a worker has one pool of threads",
    "get_current_task": "weft.get_current_task()",
    "scheduler": "weft.get_client()",
    "log_event": "weft.get_client().log_event",
    "data": "futures as arguments: a task gets the results that it reads",
    "loop": "a coroutine function as the task: it runs in an event loop",
    "io_loop": "a coroutine function as the task: it runs in an event loop",
}


@dataclass(slots=True)
class TaskHost:
    """The addresses and names with which a client in the tasks of a worker connects."""

    name: str
    worker_id: str
    #: Returns the addresses of the scheduler to try, and the secret.
    find: Finder
    #: What the scheduler sent with the last welcome.
    task_pass: str = ""


class _ThreadContext(threading.local):
    context: WorkerContext | None = None


_local = _ThreadContext()


def get_worker() -> WorkerContext:
    """Return the worker that runs the calling task.

    Raises:
        NotInTask: the caller is not in a task, or is in a thread that the task started.

    Example:
        >>> def where():
        ...     return weft.get_worker().name
        >>> client.submit(where).result() in client.run(where).values()
        True
    """
    context = _local.context
    if context is None:
        raise NotInTask("get_worker() works only in a task, on the thread that runs it")
    return context


def wake_here(wake: Callable[[], object] | None) -> None:
    """Note how to wake the event loop that runs on the calling thread, if that runs tasks."""
    if _local.context is not None:
        _local.context.here.wake = wake


def is_in_task() -> bool:
    """Return whether the calling thread is one that runs tasks of a worker."""
    return _local.context is not None


def is_in_coroutine() -> bool:
    """Return whether the task of the calling thread is a coroutine function."""
    context = _local.context
    return context is not None and context.here.wake is not None


def task_here() -> str:
    """Return the key of the task that the calling thread runs, "" if it runs none."""
    context = _local.context
    return "" if context is None else context.task_key


def set_worker(context: WorkerContext | None) -> None:
    """Make `get_worker` on this thread return `context`; its tasks read parts by it, and report.

    What they report is the output of calls that is kept.
    """
    fetch_parts_here(None if context is None else context.parts)
    keep_output_here(getattr(None if context is None else context.seat, "keep_output", None))
    _local.context = context
