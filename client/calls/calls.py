"""`Client.submit` and `Client.map`: their options, and what users read about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ..actors import check_actor, map_actors, submit_actor
from .annotations import options_of_keywords
from .call_options import NOT_GIVEN, check_unsupported, checkpointed
from .calling import submit_call, submit_rows
from .encoding import rows_of

if TYPE_CHECKING:
    from ...protocol.values.actors import Actor
    from ...protocol.wire.keys import Key
    from ..client import Client
    from ..future import Future
    from ..modes import Mode, T
    from .retries import Retries


@overload
def submit(
    client: Client[Mode],
    func: Callable[..., Any],
    /,
    *args: Any,
    actor: Literal[True],
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    **kwargs: Any,
) -> Future[Actor, Mode]: ...
@overload
def submit(
    client: Client[Mode],
    func: Callable[..., Coroutine[Any, Any, T]],
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    fifo_timeout: object = None,
    allow_other_workers: bool = False,
    actor: Literal[False] = False,
    actors: Literal[False] = False,
    pure: bool = True,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Future[T, Mode]: ...
@overload
def submit(
    client: Client[Mode],
    func: Callable[..., T],
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    fifo_timeout: object = None,
    allow_other_workers: bool = False,
    actor: Literal[False] = False,
    actors: Literal[False] = False,
    pure: bool = True,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Future[T, Mode]: ...
def submit(
    client: Client[Mode],
    func: Callable[..., Any],
    /,
    *args: Any,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    fifo_timeout: object = None,
    allow_other_workers: bool = False,
    actor: bool = False,
    actors: bool = False,
    pure: bool = True,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Future[Any, Any]:
    """Run `func(*args, **kwargs)` on a worker, with futures replaced by their results.

    Futures may be anywhere in the arguments. The function must not change its arguments in
    place: a large input is the same object that the worker keeps for other tasks and for you.

    **Equal calls are one task** (`pure`): a call of the same function with equal arguments
    shares the result of an earlier one while a future of that is alive and has not failed. So
    a function that draws random numbers, reads what changes or has effects needs
    `pure=False`, which runs each call. This holds for `map` as well.

    Args:
        func: the function to run.
        args: its positional arguments.
        key: a name for the task, instead of one that weft makes: a str, or a tuple of str,
            bytes, numbers, None and such tuples.
        workers: names, hosts or addresses of workers that may run it; None = all.
        resources: the amount of each resource that it takes while it runs.
        retries: number of times to run it again if it raises; or `weft.Retries`, with pauses.
        priority: from -512 to 511; a task of higher priority runs earlier.
        fifo_timeout: accepted for compatibility with dask; only dask's default is allowed.
        allow_other_workers: prefer `workers`, but run it on others if these cannot, or have had
            no memory for it for some seconds.
        actor: make an object of a class that lives on one worker: see docs/actors.md.
        actors: see `actor`.
        pure: share the result of an equal call; False = run this one in any case.
        timeout: how long an attempt may run, in seconds or as "30s", ...; None = for ever. If
            the function takes such a keyword, it is given it instead. See docs/ending.md.
        meta: plain data of at most 2 kB that says what the task is for, shown by `attempts`,
            the task stream and its error. If the function takes such a keyword, see `timeout`.
        persist_to: URL or path of a folder, as fsspec has it: the result is a file there, which
            later equal calls read instead of running. See docs/data.md.
        kwargs: its keyword arguments.

    Raises:
        SerializationError: the function or an argument cannot be pickled; the text names it.
        ForeignFuture: a future among the arguments belongs to another cluster.

    Example:
        >>> power = client.submit(pow, 2, 10)
        >>> total = client.submit(sum, [power, 1])      # waits for `power` on the cluster
        >>> total.result(timeout=60)
        1025
    """
    engine = client._running()
    if not callable(func):
        raise TypeError(f"submit needs a function, not {type(func).__name__}")
    if fifo_timeout is not None:
        check_unsupported(fifo_timeout=fifo_timeout)
    options = options_of_keywords(
        func, kwargs, timeout, meta, priority, retries, workers, allow_other_workers, resources
    )
    if actor or actors:
        check_actor(actor or actors, func)
        return submit_actor(engine, client._encoder, func, args, kwargs, key, options)
    if persist_to is not None:
        func = checkpointed(func, kwargs, persist_to)
    return submit_call(engine, client._encoder, func, args, kwargs, key, options, pure)


@overload
def map(
    client: Client[Mode],
    func: Callable[..., Any],
    /,
    *iterables: Iterable[Any],
    actor: Literal[True],
    key: str | Iterable[Key] | None = None,
    workers: str | Iterable[str] | None = None,
    retries: int | Retries | None = None,
    resources: Mapping[str, float] | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    **kwargs: Any,
) -> list[Future[Actor, Mode]]: ...
@overload
def map(
    client: Client[Mode],
    func: Callable[..., Coroutine[Any, Any, T]],
    /,
    *iterables: Iterable[Any],
    key: str | Iterable[Key] | None = None,
    workers: str | Iterable[str] | None = None,
    retries: int | Retries | None = None,
    resources: Mapping[str, float] | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    fifo_timeout: object = None,
    actor: Literal[False] = False,
    actors: Literal[False] = False,
    pure: bool = True,
    batch_size: int | None = None,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> list[Future[T, Mode]]: ...
@overload
def map(
    client: Client[Mode],
    func: Callable[..., T],
    /,
    *iterables: Iterable[Any],
    key: str | Iterable[Key] | None = None,
    workers: str | Iterable[str] | None = None,
    retries: int | Retries | None = None,
    resources: Mapping[str, float] | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    fifo_timeout: object = None,
    actor: Literal[False] = False,
    actors: Literal[False] = False,
    pure: bool = True,
    batch_size: int | None = None,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> list[Future[T, Mode]]: ...
def map(
    client: Client[Mode],
    func: Callable[..., Any],
    /,
    *iterables: Iterable[Any],
    key: str | Iterable[Key] | None = None,
    workers: str | Iterable[str] | None = None,
    retries: int | Retries | None = None,
    resources: Mapping[str, float] | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    fifo_timeout: object = None,
    actor: bool = False,
    actors: bool = False,
    pure: bool = True,
    batch_size: int | None = None,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> list[Future[Any, Any]]:
    """Run `func` once for each row of `zip(*iterables)`; return the futures as a list.

    Args:
        func: the function to run.
        iterables: finite iterables; the shortest determines the number of calls.
        key: a prefix of the keys, or an iterable of keys (a tuple, too, is one).
        workers: names, hosts or addresses of workers that may run them; None = all.
        retries: number of times to run a call again that raises; or `weft.Retries`.
        resources: the amount of each resource that a call takes while it runs.
        priority: from -512 to 511; tasks of higher priority run earlier.
        allow_other_workers: prefer `workers`, but use others if these cannot run a call.
        fifo_timeout: accepted for compatibility with dask; only dask's default is allowed.
        actor: make objects of a class that live on workers: see docs/actors.md.
        actors: see `actor`.
        pure: share results of equal calls; False = run each one. See `submit`.
        batch_size: the largest number of tasks in one message to the scheduler.
        timeout: how long an attempt of each call may run; see `submit`.
        meta: plain data that says what the calls are for; see `submit`.
        persist_to: a folder for the results, which later runs read; see `submit`.
        kwargs: keyword arguments, the same for all calls; they are sent once.

    Example:
        >>> client.gather(client.map(pow, [1, 2, 3], [2, 2, 2]))
        [1, 4, 9]
        >>> client.gather(client.map(int, ["10", "11"], base=2))
        [2, 3]
    """
    engine = client._running()
    if not callable(func):
        raise TypeError(f"map needs a function, not {type(func).__name__}")
    if not iterables:
        raise TypeError("map needs an iterable of arguments beside the function")
    check_unsupported(fifo_timeout=fifo_timeout)
    options = options_of_keywords(
        func, kwargs, timeout, meta, priority, retries, workers, allow_other_workers, resources
    )
    rows = rows_of(iterables)
    if actor or actors:
        check_actor(actor or actors, func)
        return map_actors(engine, client._encoder, func, rows, kwargs, key, options)
    if persist_to is not None:
        func = checkpointed(func, kwargs, persist_to)
    return submit_rows(engine, client._encoder, func, rows, kwargs, key, options, pure, batch_size)
