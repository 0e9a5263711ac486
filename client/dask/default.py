"""The scheduler that `x.compute()` uses: dask's configuration names the current client while there
is one that blocks.

dask is never imported here. If it is loaded already, its configuration is changed at once, else
right after its module `dask.config` was imported. The configuration belongs to the whole process,
clients belong to threads as well (`as_current`), and other code may change the configuration in
between. So the value put there is no client but a `_ConfiguredClient`, which looks for the client
each time when dask looks the scheduler up; where there is none, as in a thread that a task has
started, it stands for what was configured before.

In the process of a worker the value is put there when dask is imported (`serve_tasks`), unless a
scheduler is configured; the client of its tasks is opened when a task computes a collection.

Each client that opens configures an object of its own, which remembers what it found. A `with
dask.config.set(scheduler=...)` block puts back what it found at its begin, whatever happened
within. The object that is configured when a client closes therefore shows which blocks are still
open: it is replaced, by what it found, only if it belongs to a client that is closed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import ClientClosed
from ...protocol.host.after_import import after_import, forget, loaded_module
from ...protocol.host.forks import after_fork
from ...protocol.host.process_role import is_worker_process
from ..future import join_dask
from ..shell.in_task import context_here, is_awaiting, is_in_task

if TYPE_CHECKING:
    from ..client import Client

_log = logging.getLogger("weft.client")

_CONFIG = "dask.config"
#: The module of the class of references, which futures join.
_REFERENCES = "dask._task_spec"
_SCHEDULER = "scheduler"
_SHUFFLE = "dataframe.shuffle.method"
#: A string object of its own, recognised by identity: a user may have set "tasks" as well.
_TASKS = "".join(["ta", "sks"])
#: Stands for a value where nothing is configured.
_ABSENT: Any = object()

#: Reentrant: a destructor that runs meanwhile may close a client.
_lock = threading.RLock()


class _TasksOfWorker:
    """Stands for the client of a worker's tasks, which is opened when one of them needs it."""

    name = "of the tasks of this worker"


_OF_TASKS: Final[Any] = _TasksOfWorker()
#: The open clients, in the order in which they were registered; changed under the lock.
_entries: list[_ConfiguredClient] = []


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


def _no_client() -> None:
    """Stand for the reference to a client in a copy that came in a pickle."""


class _ConfiguredClient:
    """A client that is open and the default, or the current one of some thread.

    This is the value of dask's `scheduler` setting. dask treats any object as a client whose class
    has "Client" in its name and which has a `get`; and a false object as none.
    """

    def __init__(self, client: Client[Any] | None = None, is_default: bool = False) -> None:
        self.client: Callable[[], Client | None] = _no_client
        if client is not None:
            self.client = weakref.ref(client)
        self.is_default = is_default
        self.pid = os.getpid()
        #: The setting before: a scheduler, or the object of another client.
        self.found: Any = _ABSENT
        self.is_configured = False

    def __bool__(self) -> bool:
        return _find_client(opens=False) is not None or bool(self._find_other())

    @property
    def asynchronous(self) -> bool:
        client = _find_client(opens=False)
        # dask wants values at once. A task may block its own event loop; its seat is given up. So
        # may a coroutine for which a thread of a blocking client waits.
        if client is None or is_in_task() or is_awaiting():
            return False
        is_asynchronous: bool = client.asynchronous
        return is_asynchronous

    @property
    def get(self) -> Callable[..., Any]:
        client = _find_client()
        if client is not None:
            bound: Callable[..., Any] = client._get_for_dask
            return bound  # dask looks for `persist` on its owner
        other = self._find_other()
        if not other:
            raise ClientClosed()  # since dask asked whether there is one
        get: Callable[..., Any] = sys.modules["dask.base"].get_scheduler(scheduler=other)
        return get

    def _find_other(self) -> Any:
        """Return the scheduler that was configured before any client, None if there was none."""
        found = self.found
        while isinstance(found, _ConfiguredClient):
            found = found.found
        return None if found is _ABSENT else found

    def __repr__(self) -> str:
        return f"<the current weft.Client: {_find_client(opens=False)!r}>"

    def __deepcopy__(self, _memo: object) -> _ConfiguredClient:
        return self

    def __reduce__(self) -> tuple[type[_ConfiguredClient], tuple[()]]:
        return _ConfiguredClient, ()


def register(client: Client[Any], *, is_default: bool) -> None:
    """Let dask use a client: in all threads, or only where `as_current` names it."""
    module = loaded_module(_CONFIG)
    with _lock:
        entry = _ConfiguredClient(client, is_default)
        if module is not None:
            _put_back_what_is_lost(module)
            _configure(module, entry)
        _entries.append(entry)
    if module is None:
        after_import(_CONFIG, _configure_all)
    after_import(_REFERENCES, _join)


def serve_tasks(module: ModuleType) -> None:
    """Let the tasks of this worker's process compute collections with their client.

    Called right after the import of dask's configuration. A scheduler that is configured stays.
    """
    with _lock:
        entry = _ConfiguredClient(_OF_TASKS)
        if module.get(_SCHEDULER, None) is None:
            _configure(module, entry)
        _entries.insert(0, entry)
    after_import(_REFERENCES, _join)


def give_back(client: Client[Any], *, is_default: bool) -> None:
    """Undo one `register`; does nothing if there was none."""
    module = loaded_module(_CONFIG)
    with _lock:
        closed = [entry for entry in _entries if entry.client() is None]
        for entry in reversed(_entries):
            if entry.client() is client and entry.is_default == is_default:
                closed.append(entry)
                break
        if not closed:
            return
        if module is not None:
            _put_back_what_is_lost(module)
        for entry in closed:
            _entries.remove(entry)
        for entry in _entries:
            entry.found = _skip_closed(entry.found)
        if module is not None:
            _restore(module)
        if not _entries:
            forget(_CONFIG, _configure_all)
            forget(_REFERENCES, _join)


def _skip_closed(found: Any) -> Any:
    """Return `found`, or if that belongs to a client that is closed what was configured before."""
    while isinstance(found, _ConfiguredClient) and found not in _entries:
        found = found.found
    return found


def _find_client(*, opens: bool = True) -> Any:
    """Return the client that is to compute dask's collections in the calling thread, or None.

    That of a worker's tasks is opened by this; unless `opens`, what stands for it is returned.
    """
    from ..shell.current import named_current

    entries = _entries.copy()
    # A forked child cannot use the clients of its parent.
    if not entries or entries[-1].pid != os.getpid():
        return None
    client = named_current()
    if client is not None:
        return client
    context = context_here()
    if context is not None and not context.attempt:
        return None  # a function of `client.run`, which may submit nothing
    if context is not None and is_worker_process():
        if not opens:
            return _OF_TASKS
        from ..in_tasks import task_client

        return task_client(context.host)
    for entry in reversed(entries):
        client = entry.client()
        if entry.is_default and client is not None:
            return client
    return None


# --- dask's configuration -------------------------------------------------------------------------


def _configure_all(module: ModuleType) -> None:
    """Configure the clients that were opened before dask was imported."""
    with _lock:
        for entry in _entries:
            if not entry.is_configured and entry.client() is not _OF_TASKS:
                _configure(module, entry)


def _join(_module: ModuleType) -> None:
    join_dask()


def _configure(module: Any, entry: _ConfiguredClient) -> None:
    entry.found = _skip_closed(module.get(_SCHEDULER, _ABSENT))
    _place(module, entry)


def _place(module: Any, entry: _ConfiguredClient) -> None:
    entry.is_configured = True
    _put(module, _SCHEDULER, entry)
    # dask's other choice without dask.distributed is the disk of one machine.
    if module.get(_SHUFFLE, None) is None:
        _put(module, _SHUFFLE, _TASKS)


def _restore(module: Any) -> None:
    """Take back what was configured for clients that are closed."""
    configured = module.get(_SCHEDULER, _ABSENT)
    wanted = _skip_closed(configured)
    if wanted is not configured:
        _put(module, _SCHEDULER, wanted)
    if not _entries and module.get(_SHUFFLE, None) is _TASKS:
        _put(module, _SHUFFLE, None)  # as dask's own defaults have it


def _put_back_what_is_lost(module: Any) -> None:
    """Configure the latest client again if no scheduler is configured though clients are open."""
    open_ones = [entry for entry in _entries if entry.is_configured and entry.client() is not None]
    if not open_ones or module.get(_SCHEDULER, None) is not None:
        return
    latest = open_ones[-1]
    _log.warning(
        "compute() of dask did not use the open weft client %r: its place in dask's configuration "
        "was lost, by dask.config.refresh(), or at the end of the `with dask.config.set("
        "scheduler=...)` in which the client was made. Make the client outside of such a block, "
        "and after refresh()",
        getattr(latest.client(), "name", ""),
    )
    found = _ABSENT
    for entry in open_ones:
        entry.found, found = found, entry
    _place(module, latest)


def _put(module: Any, name: str, value: Any) -> None:
    """Assign to dask's configuration.

    `dask.config.set` would take a lock, which the code that a destructor interrupts may hold.
    """
    *sections, last = name.split(".")
    config = module.config
    for section in sections:
        config = config.setdefault(section, {})
    if value is _ABSENT:
        config.pop(last, None)
    else:
        config[last] = value
