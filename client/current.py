"""Which clients are open in this process, and which of them is meant when none is named.

The innermost `as_current` of the thread or task decides, else the default client, else the only
one.
Futures that come in pickled data are bound to that client, and what is still open when the program
ends is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..protocol.errors import ClientClosed, ConfigError
from ..protocol.serialize import set_future_binder
from .events import Want
from .future import Future
from .tasks import NEW

if TYPE_CHECKING:
    from .client import Client

_current: ContextVar[Client | None] = ContextVar("weft_client", default=None)
_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: The default client, if there is one: a list, for there is nothing to be rebound then.
_default: list[weakref.ref[Client]] = []


def opened(client: Client, *, as_default: bool) -> None:
    """Note that a client is open."""
    _open_clients.add(client)
    set_future_binder(_bind_future)
    if as_default:
        _default[:] = [weakref.ref(client)]


def closed(client: Client) -> None:
    """Note that a client is not open any more."""
    _open_clients.discard(client)
    _default[:] = [ref for ref in _default if ref() is not client]
    if not _open_clients:
        set_future_binder(None)


def find_current() -> Client:
    """Return the client that is meant.

    Raises:
        ClientClosed: there is none, or there are several and none is the default.
    """
    client = _current.get()
    if client is None and _default:
        client = _default[0]()
    if client is None:
        candidates = list(_open_clients)
        if len(candidates) != 1:
            raise ClientClosed("there is no current client: make one first")
        client = candidates[0]
    return client


@contextlib.contextmanager
def made_current(client: Client) -> Iterator[Client]:
    """Make a client the one that is meant, in this thread or task."""
    token = _current.set(client)
    try:
        yield client
    finally:
        _current.reset(token)


def _bind_future(key: str) -> Any:
    """Make a future of a key that came in pickled data."""
    engine = find_current()._running()
    state = engine.table.find_or_make(key)
    future = Future(engine, state)
    if state.phase == NEW:
        engine.post(Want([state]))
    return future


def _close_all() -> None:
    for client in list(_open_clients):
        if not client.asynchronous:
            with contextlib.suppress(RuntimeError, ClientClosed, ConfigError):
                client._close(1.0)


atexit.register(_close_all)
