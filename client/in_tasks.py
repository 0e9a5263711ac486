"""Clients for tasks: `get_client` and `worker_client`.

A worker's process has one client for all its tasks, which is opened when the first task asks for
it. It registers with the worker's token as a client in tasks, and each of its submissions names the
attempt on whose behalf it is made; the scheduler checks both
(`scheduler/core/members/delegation.py`). Where a worker is a thread of the program
(`processes=False`), its tasks use the program's client.

The package of workers is not imported here; what a task's thread needs is in its `WorkerContext`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import ClientClosed, NotInTask, NotSupported, WeftError
from ..protocol.host.blocking import closed_here
from ..protocol.host.facts import process_facts
from ..protocol.host.process_role import is_worker_process
from ..protocol.net.session import Finder
from ..protocol.settings import client as defaults
from ..protocol.settings.sources import read_settings
from ..protocol.wire.options import TaskOptions
from .client import Client
from .cluster.locating import Location
from .core.events import Borrow, Confirm
from .core.tasks import TaskColumns, TaskRecord
from .shell.current import find_current, made_current, named_current, opened
from .shell.engine import Caller, Engine
from .shell.in_task import context_here
from .shell.watchers import ThreadWaiter

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..protocol.durations import Duration
    from .modes import Mode

#: A worker looks for its scheduler for so long, and so do the tasks that wait there.
_RECONNECT_S: Final = 900.0
#: The end of a task waits so long until the scheduler has read its submissions.
_CONFIRM_S: Final = 10.0

#: The client of this process's tasks; a list, so that no global name has to be rebound.
_clients: list[TaskClient] = []
#: Reentrant: while the client is made, the collector may run a finalizer that asks for it. Then two
#: are made; the first that is there is used.
_lock = threading.RLock()


class _Acting(threading.local):
    """The caller for which a thread acts that runs no task."""

    caller: Caller | None = None


class _TaskEngine(Engine):
    """An engine whose submissions name the attempt that the calling thread runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: (options, caller, both together) of the last submission.
        self._last: tuple[TaskOptions, Caller, TaskOptions] | None = None
        self._acting = _Acting()

    def caller_here(self) -> Caller | None:
        """See `Engine`."""
        context = context_here()
        if context is None:
            return self._acting.caller
        return (context.attempt, context.seat.actor) if context.attempt else None

    @contextlib.contextmanager
    def acting_for(self, caller: Caller) -> Iterator[None]:
        """See `Engine`."""
        self._acting.caller = caller
        try:
            yield
        finally:
            self._acting.caller = None

    def post(self, operation: Any) -> None:
        """See `Engine`."""
        with closed_here():  # the end of the task confirms all that it has begun to submit
            self._name_attempt(operation)
            super().post(operation)

    def post_submission(self, operation: Any) -> None:
        """See `Engine`."""
        with closed_here():
            self._name_attempt(operation)
            super().post_submission(operation)

    def post_later(self, operation: Any) -> None:
        """See `Engine`."""
        with closed_here():  # a finalizer gives up a future: an interrupt there would be lost
            super().post_later(operation)

    def _name_attempt(self, operation: Any) -> None:
        cls = operation.__class__
        if cls is Borrow:
            operation = operation.task
        elif cls is not TaskRecord and cls is not TaskColumns:
            return
        caller = self.caller_here()
        if caller is None:
            raise NotInTask(
                "only a task can submit tasks from the process of a worker, on the thread that "
                "runs it: this thread was started by a task, or by something else. Submit in the "
                "task's own thread, and give this one the futures: it may wait for them"
            )
        context = context_here()
        if context is not None:
            # An end that is reported first would end the right to submit.
            context.seat.when_task_ends(self.confirm_all)
        last, options = self._last, operation.options
        if last is None or last[0] is not options or last[1] != caller:
            self._last = last = (options, caller, options.for_attempt(*caller))
        operation.options = last[2]

    def confirm_all(self) -> None:
        """Wait until the scheduler has read all submissions."""
        if not self.is_gone and not self.is_confirmed:
            waiter = ThreadWaiter(1, wants_data=False)
            with contextlib.suppress(ClientClosed):
                self.wait(waiter, Confirm(waiter), _CONFIRM_S)


class _WorkersLocation(Location):
    """Finds the scheduler as the worker of this process does."""

    def __init__(self, find: Finder) -> None:
        self.cluster = None
        self._find_scheduler = find
        self._owns_cluster = False

    def start_cluster(self) -> None:
        """See `Location`; nothing is to be started."""

    def finder(self) -> Finder:
        """See `Location`."""
        return self._find_scheduler


class TaskClient(Client):
    """The client of all tasks of a worker's process; it ends with the process."""

    def __init__(self, host: Any) -> None:
        settings = read_settings()
        self._host = host
        self.asynchronous = False
        self._prepare(
            _WorkersLocation(host.find),
            f"tasks-of-{host.name}",
            settings.choose(None, defaults.TIMEOUT),
            _RECONNECT_S,
            settings.choose(None, defaults.RECOVERY_MEMORY),
        )
        self._is_made_in_task = False  # but for all of them
        self._open()

    def _make_engine(self, loop: asyncio.AbstractEventLoop) -> Engine:
        engine = _TaskEngine(self.id, self.name, loop, False, lambda: self, self._recovery_nbytes)
        engine.worker_of_tasks = self._worker
        return engine

    def _worker(self) -> tuple[str, str]:
        return self._host.worker_id, self._host.task_pass

    def _open(self) -> None:
        """Begin to connect, which may take long and blocks nobody: calls wait in the engine."""
        loop_thread, engine = self._start()
        asyncio.run_coroutine_threadsafe(
            _connect(engine, self._location.finder()), loop_thread.loop
        )
        self.status = "running"
        self._holdings.engine = engine
        opened(self, self._holdings, self._timeout_s, as_default=False)

    @property
    def is_over(self) -> bool:
        """True if it will never be connected again."""
        engine = self._engine
        return engine is None or engine.is_gone or engine.core.end is not None


async def _connect(engine: Engine, find: Finder) -> None:
    """Connect, for as long as the worker looks for the scheduler; else end all that waits."""
    try:
        await engine.open(find, process_facts(), _RECONNECT_S, _RECONNECT_S)
    except WeftError as error:
        engine.give_up(f"the client of this worker's tasks found no scheduler: {error}")
        await engine.close()


def get_client(
    address: None = None, timeout: Duration | None = None, resolve_address: bool = True
) -> Client[Mode]:
    """Return the client of the calling task, or outside of tasks that of `Client.current`.

    All tasks of a worker's process share one, which is never closed. A task may submit with it
    while it runs, and wait for what it has submitted; its thread runs other tasks meanwhile. In a
    coroutine function its methods are awaited, as those of an asynchronous client, else they block.
    This returns at once: what is submitted before there is a connection waits for it.

    Args:
        address: accepted for compatibility with dask; only None is allowed.
        timeout: accepted for compatibility with dask; the client's own limits are used.
        resolve_address: accepted for compatibility with dask.

    Raises:
        ClientClosed: there is none.
        NotInTask: there is none, because this is a thread in the process of a worker that no task
            runs on.
        NotSupported: an address was given.

    Example:
        >>> def total(numbers):
        ...     client = weft.get_client()
        ...     return sum(client.gather(client.map(abs, numbers)))
        >>> client.submit(total, [-1, -2]).result()
        3
    """
    if address is not None:
        raise NotSupported(
            f"get_client() returns the client of the calling task's own cluster, not one of "
            f"{address!r}: leave the address out, or use weft.Client(address) for another cluster"
        )
    context = context_here()
    if context is None or not is_worker_process():
        return find_current()
    return named_current() or task_client(context.host)


def worker_client(
    timeout: Duration | None = None, separate_thread: bool = True
) -> AbstractContextManager[Client[Mode]]:
    """Make the client of `get_client` the current one in a `with` block of a task.

    Args:
        timeout: accepted for compatibility with dask; the client's own limits are used.
        separate_thread: accepted for compatibility with dask. The thread is given up whenever the
            task waits, and at no other time.
    """
    return made_current(get_client())


def task_client(host: Any) -> Client[Any]:
    """Return the client of the tasks of this process, and open it if there is none."""
    with closed_here(), _lock:  # an interrupt would leave a part of one behind
        if _clients and _clients[0].is_over:
            del _clients[:]
        if not _clients:
            _clients.append(TaskClient(host))
        return _clients[0]
