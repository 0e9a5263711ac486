"""The open clients of this process, and the current one, which is used when none is named.

The current client is that of the innermost `as_current` of the thread or task, else the default
client, else the only one. Futures that come in pickled data are bound to that client. Clients that
are still open when the program ends are closed.

The default client is kept alive until it is closed or another takes its place: so a bare
`weft.Client(address)` is the one that `Client.current` returns, and a cell of a notebook that is
run again replaces its client, which then is dropped and closed (see `leaving`). Other clients live
as long as there are references to them. When the default client is closed, the one before it is the
default again, if it is still open.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import ClientClosed, ConfigError, NotInTask
from ...protocol.host.process_role import is_worker_process
from ...protocol.values.serialize import set_future_binder
from .. import upper_packages
from ..core.events import Want
from ..core.tasks import NEW
from ..dask import default as dask_default
from ..future import Future
from ..joblib_offer import offer_backend
from .callbacks import finish_callbacks
from .in_task import context_here
from .leaving import Holdings, give_back_dropped, watch

if TYPE_CHECKING:
    from ..client import Client
    from ..modes import Mode
    from .engine import Engine

#: At the end of the program: for a client to leave its cluster, and for all callbacks, in seconds.
_EXIT_TIMEOUT_S: Final = 5.0
_CALLBACKS_TIMEOUT_S: Final = 1.0

_current: ContextVar[Client[Any] | None] = ContextVar("weft_client", default=None)
#: {open client: function that stops it from being closed when it is dropped}.
_open_clients: weakref.WeakKeyDictionary[Client[Any], Callable[[], object]] = (
    weakref.WeakKeyDictionary()
)
#: The default client, if there is one; a list, so that no global name has to be rebound.
_default: list[Client[Any]] = []
#: Clients that were the default before, the latest one last.
_earlier: list[weakref.ref[Client[Any]]] = []


def opened(client: Client[Any], holdings: Holdings, timeout: float, *, as_default: bool) -> None:
    """Register an open client; if it is dropped, give `holdings` back within `timeout`."""
    _open_clients[client] = watch(client, holdings, timeout)
    set_future_binder(bind_future)
    offer_backend()
    upper_packages.note_what_to_install(True)
    if as_default:
        still_open = [ref for ref in _earlier if ref() in _open_clients]
        _earlier[:] = [*still_open, *map(weakref.ref, _default)]
        _default[:] = [client]
        # `x.compute()` would block the loop of an asynchronous one.
        if not client.is_in_callers_loop:
            dask_default.register(client, is_default=True)


def closed(client: Client[Any]) -> None:
    """Remove a client that is not open any more."""
    stop_watching = _open_clients.pop(client, None)
    if stop_watching is not None:
        stop_watching()
    dask_default.give_back(client, is_default=True)
    if client in _default:
        _default[:] = _take_earlier()
    if not _open_clients:
        upper_packages.note_what_to_install(False)
        set_future_binder(None)


def _take_earlier() -> list[Client[Any]]:
    """Return the client that was the default most recently and is still open, if there is one."""
    while _earlier:
        client = _earlier.pop()()
        if client is not None and client in _open_clients:
            return [client]
    return []


def find_current(*, allow_global: bool = True) -> Client[Any]:
    """Return the current client; by `as_current` alone if not `allow_global`.

    Raises:
        ClientClosed: there is none, or there are several and none is the default.
        NotInTask: there is none, in a thread in the process of a worker that runs no task.
    """
    client = _current.get()
    if client is not None:
        return client
    if not allow_global:
        raise ClientClosed("no client was made the current one here: use `client.as_current()`")
    if _default:
        return _default[0]
    candidates = all_open()
    if len(candidates) > 1:
        raise ClientClosed(
            f"{len(candidates)} clients are open, and none of them is the default: "
            "use `client.as_current()`"
        )
    if not candidates:
        if is_worker_process():
            return _of_the_task()
        raise ClientClosed("there is no current client in this process: make one first")
    return candidates[0]


def _of_the_task() -> Client[Any]:
    context = context_here()
    if context is None:
        raise NotInTask(
            "there is no client here: in the process of a worker only tasks have one, on the "
            "threads that run them. Submit in the task's own thread, and give this one the "
            "futures: it may wait for them"
        )
    from ..in_tasks import task_client

    return task_client(context.host)


def default_client(client: Client[Mode] | None = None) -> Client[Mode]:
    """Return `client`, or if that is None the one that `Client.current` returns."""
    return find_current() if client is None else client


@contextlib.contextmanager
def made_current(client: Client[Mode]) -> Iterator[Client[Mode]]:
    """Make a client the current one, in this thread or task."""
    token = _current.set(client)
    try:
        if not client.is_in_callers_loop:
            dask_default.register(client, is_default=False)
        yield client
    finally:
        _current.reset(token)
        dask_default.give_back(client, is_default=False)


def named_current() -> Client[Any] | None:
    """Return the client of the innermost `as_current` here, if there is one."""
    return _current.get()


def bind_future(key: str) -> Any:
    """Make a future of a key that came in pickled data."""
    future = future_of(find_current()._running(), key)
    context = context_here()
    confirm = getattr(future._engine, "confirm_all", None)
    if confirm is not None and context is not None and context.seat is not None:
        # The scheduler must have read of this hold before the giver lets go of its own.
        context.seat.when_task_ends(confirm)
    return future


def future_of(engine: Engine, key: str) -> Future:
    """Return a future of this client for a key, which another one may have submitted."""
    state = engine.table.find_or_make(key)
    future = Future(engine, state)
    if state.phase == NEW:
        engine.post(Want([state]))
    return future


def all_open() -> list[Client[Any]]:
    # `keyrefs` copies in one step; iterating over the dictionary fails if entries are added.
    return [client for ref in _open_clients.keyrefs() if (client := ref()) is not None]


def close_all() -> None:
    """Close the open clients, because the program ends. Clusters end after them."""
    for client in all_open():
        if not client.is_in_callers_loop:
            with contextlib.suppress(RuntimeError, ClientClosed, ConfigError):
                client._close(_EXIT_TIMEOUT_S)
    with contextlib.suppress(RuntimeError, ClientClosed, ConfigError):
        give_back_dropped(_EXIT_TIMEOUT_S)
    finish_callbacks(_CALLBACKS_TIMEOUT_S)


atexit.register(close_all)
