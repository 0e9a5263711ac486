"""Names that a weft client has while it stands for one of dask.distributed.

Libraries call these of any client: `sync`, `scheduler`, `futures_of`; and `run_on_scheduler` for
work that only has to be done in one place, as xgboost does to find its processes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ..client import Client, Future, futures_of
from ..client.shell.current import all_open
from ..client.shell.in_task import awaiting, is_in_task
from ..protocol.errors import NotSupported
from ..protocol.host.blocking import blocked

T = TypeVar("T")


def connect(address: Any, **options: Any) -> Client[Any]:
    """Make a client for what `distributed.Client` was given: the address or a cluster of weft.

    An address is that of an open client; the new one proves the same token.
    """
    if isinstance(address, str):
        link = next(
            client._usable().link for client in all_open() if client.scheduler_address == address
        )
        options.setdefault("security", None if link is None else link.security)
    return Client(address, **options)


def sync(
    client: Client[Any],
    func: Callable[..., Any],
    /,
    *args: Any,
    asynchronous: Any = None,
    callback_timeout: Any = None,
    **kwargs: Any,
) -> Any:
    """Run a coroutine function, in which the methods of clients and futures are awaited.

    Args:
        client: a client.
        func: the coroutine function.
        args: its arguments.
        asynchronous: return the coroutine; None = if the client is asynchronous.
        callback_timeout: time for the whole, in seconds.
        kwargs: its keyword arguments.
    """
    engine = client._usable()
    if engine.is_asynchronous if asynchronous is None else asynchronous:
        return func(*args, **kwargs)
    engine.may_be_asynchronous = True

    async def call() -> Any:
        with awaiting():
            made = func(*args, **kwargs)
            if not inspect.isawaitable(made):
                return made
            if callback_timeout is None:
                return await made
            done, _ = await asyncio.wait([asyncio.ensure_future(made)], timeout=callback_timeout)
            if not done:
                raise TimeoutError(f"{func} was not done within {callback_timeout} s")
            return done.pop().result()

    if is_in_task():
        with blocked():
            return _run(call())
    if asyncio._get_running_loop() is None:
        return _run(call())
    return _run_beside(call)


def _run(made: Coroutine[Any, Any, Any]) -> Any:
    """Do what `asyncio.run` does, which also takes away the event loop that is set here."""
    if sys.version_info < (3, 11):
        return asyncio.run(made)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(made)


def _run_beside(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in a thread of its own: an event loop runs in this one, as in a notebook."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append((True, _run(call())))
        except BaseException as error:
            ended.append((False, error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="weft-sync")
    thread.start()
    thread.join()
    is_result, value = ended.pop()
    if not is_result:
        raise value
    return value


class _Scheduler:
    """The questions to the scheduler that libraries ask by `client.scheduler`."""

    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    @property
    def address(self) -> str:
        """The address at which the scheduler was found."""
        return self._client.scheduler_address

    async def identity(self, **_options: Any) -> dict[str, Any]:
        """Return the description of the cluster."""
        return await _awaited(self._client.scheduler_info)

    async def who_has(self, keys: Any = None) -> dict[Any, tuple[str, ...]]:
        """Return which workers hold the results of keys."""
        return await _awaited(self._client.who_has, keys)

    async def ncores(self, workers: Any = None) -> dict[str, int]:
        """Return the number of threads of workers."""
        return await _awaited(self._client.nthreads, workers)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"weft has no client.scheduler.{name}: what the scheduler knows is asked by methods of "
            "the client, such as client.scheduler_info()"
        )


async def _awaited(method: Callable[..., T], *args: Any) -> T:
    made: Any = method(*args)
    found: T = await made if inspect.isawaitable(made) else made
    return found


def run_on_scheduler(
    _client: Client[Any], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Run a function, or a coroutine function, in this process: the scheduler of weft runs none.

    Raises:
        NotSupported: the function has a parameter `dask_scheduler`.
    """
    if _takes_scheduler(function):
        raise NotSupported(
            "the scheduler runs no functions of users, so there is no dask_scheduler to give "
            "them: client.scheduler_info() and client.story(key) show its state"
        )

    async def call() -> Any:
        made = function(*args, **kwargs)
        return await made if inspect.isawaitable(made) else made

    # Awaited in the coroutine that `sync` runs, where calls to the scheduler would be.
    if _client._usable().is_asynchronous or inspect.iscoroutinefunction(function):
        return sync(_client, call)
    return function(*args, **kwargs)


def _takes_scheduler(function: Callable[..., Any]) -> bool:
    try:
        return "dask_scheduler" in inspect.signature(function).parameters
    except ValueError:  # functions of Python's own may have no signature
        return False


_compute: Final = Client.compute


def compute(client: Client[Any], /, collections: Any, *args: Any, **options: Any) -> Any:
    """Do what `Client.compute` does; and return a future as it is, which dask does."""
    if isinstance(collections, Future):
        return collections
    return _compute(client, collections, *args, **options)


#: {name: attribute of the class of clients}
CLIENT_NAMES: Final[dict[str, Any]] = {
    "compute": compute,
    "futures_of": lambda client, futures: futures_of(futures, client),
    "run_on_scheduler": run_on_scheduler,
    "scheduler": property(_Scheduler),
    "sync": sync,
}
