"""`Client.submit` and `Client.map`: their options, and what users read about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ..actors import check_actor, map_actors, submit_actor
from .annotations import conditions_of_keywords, options_of_keywords
from .call_options import NOT_GIVEN, check_unsupported, checkpointed, printing
from .calling import submit_call, submit_rows
from .conditions import NO_CONDITIONS, check_futures, is_conditional, keep
from .detaching import accepted
from .encoding import rows_of

if TYPE_CHECKING:
    from datetime import datetime

    from ...protocol.values.actors import Actor
    from ...protocol.wire.keys import Key
    from ..client import Client
    from ..future import Future
    from ..modes import Mode, T
    from .recurring import RecurringFuture
    from .retries import Retries


@overload
def submit(
    client: Client[Mode],
    func: Callable[..., T],
    /,
    *args: Any,
    cron: str,
    timezone: str | None = None,
    until: datetime | str | None = None,
    overlap: str | None = None,
    missed: str | None = None,
    detached: Any = NOT_GIVEN,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    **kwargs: Any,
) -> RecurringFuture[T, Mode]: ...
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    cron: Any = NOT_GIVEN,
    timezone: Any = NOT_GIVEN,
    until: Any = NOT_GIVEN,
    overlap: Any = NOT_GIVEN,
    missed: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
        priority: from -9999 to 9999; a task of higher priority runs earlier.
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
        after: others that are to have ended first, without reading their results: {state: future
            or several}, with the states done, failed, cancelled, lost, and ended for any of these.
            If that cannot come any more the task is cancelled, with the reason. It runs in any
            case (`pure=False`). See docs/jobs.md, also for the next four.
        start_at: when it may begin: a datetime, or a text such as "2030-12-24 18:00".
        start_after: ... in so many seconds, or "10 min".
        ttl: it is cancelled if it has not begun after so long.
        deadline: it is cancelled if it has not ended by then: a point in time, or a time from now.
        detached: it is recorded by the scheduler before this returns, and runs to its end without
            this client; see docs/jobs.md.
        no_worker_timeout: it fails with `NoWorker` when no connected worker could run it for so
            long; None = it waits for one.
        cores: the threads of its worker that it takes, 1 by default: 0, a fraction, or several.
        memory: the bytes of its worker's limit that it takes, or "8GB". See docs/tasks.md.
        queue: the name of its queue: it does not begin while that is paused. See docs/jobs.md.
        category: a `weft.Category`, which chooses its memory and cores by what others have used.
        cron: it is run again and again at these times, and a `RecurringFuture` is returned: five
            fields, six with seconds first, or a name such as "@hourly". See docs/jobs.md.
        timezone: the time zone of `cron`; "UTC" without it.
        until: no run is later: a datetime, or a text such as "2030-12-24 18:00".
        overlap: what a run does while an earlier one is under way: "skip", "queue" or "replace".
        missed: which missed runs are made: "one", "all" or "none".
        persist_to: URL or path of a folder, as fsspec has it: the result is a file there, which
            later equal calls read instead of running. See docs/data.md.
        output: where what it prints goes: "keep" = the last 64 KiB are kept for `Future.output`;
            or a `weft.OutputFile`. If the function takes such a keyword, see `timeout`. See
            docs/tasks.md.
        kwargs: its keyword arguments.

    Raises:
        SerializationError: the function or an argument cannot be pickled; the text names it.
        ForeignFuture: a future among the arguments belongs to another cluster.
        InvalidSchedule: `cron` or what belongs to it is wrong.

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
    conditions = NO_CONDITIONS
    if not (
        after is start_at is start_after is ttl is deadline is detached is NOT_GIVEN
        and no_worker_timeout is cores is memory is queue is category is NOT_GIVEN
    ):
        times = (start_at, start_after, ttl, deadline)
        given = (after, *times, detached, no_worker_timeout, cores, memory, queue, category)
        conditions = conditions_of_keywords(func, kwargs, given)
    if not (cron is timezone is until is overlap is missed is NOT_GIVEN):
        from .recurring import check_others, recurring

        recurrence = recurring(func, kwargs, (cron, timezone, until, overlap, missed))
        if recurrence is not None:
            check_others(conditions, persist_to)
            conditions = {**conditions, "cron": recurrence}
    options = options_of_keywords(
        func,
        kwargs,
        timeout,
        meta,
        priority,
        retries,
        workers,
        allow_other_workers,
        resources,
        conditions,
    )
    if actor or actors:
        check_actor(actor or actors, func)
        _check_unconditional({**conditions, "output": None if output is NOT_GIVEN else output})
        return submit_actor(engine, client._encoder, func, args, kwargs, key, options)
    if persist_to is not None:
        func = checkpointed(func, kwargs, persist_to)
    if output is not NOT_GIVEN:
        func = printing(func, kwargs, output)
    if not is_conditional(conditions):
        return submit_call(engine, client._encoder, func, args, kwargs, key, options, pure)
    check_futures(engine, conditions)
    # It is to run then, whatever has run before.
    inline = bool(conditions["detached"])
    future = submit_call(
        engine, client._encoder, func, args, kwargs, key, options, pure=False, inline=inline
    )
    future = accepted(client, keep(engine, [future], conditions), conditions)[0]
    if "cron" in conditions:
        from .recurring import as_recurring

        return as_recurring(future)
    return future


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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    ttl: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    detached: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    category: Any = NOT_GIVEN,
    persist_to: str | os.PathLike[str] | None = None,
    output: Any = NOT_GIVEN,
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
        priority: from -9999 to 9999; tasks of higher priority run earlier.
        allow_other_workers: prefer `workers`, but use others if these cannot run a call.
        fifo_timeout: accepted for compatibility with dask; only dask's default is allowed.
        actor: make objects of a class that live on workers: see docs/actors.md.
        actors: see `actor`.
        pure: share results of equal calls; False = run each one. See `submit`.
        batch_size: the largest number of tasks in one message to the scheduler.
        timeout: how long an attempt of each call may run; see `submit`.
        meta: plain data that says what the calls are for; see `submit`.
        after: others that are to have ended before any of the calls runs; see `submit`.
        start_at: when they may begin; see `submit`.
        start_after: ... in how long.
        ttl: those are cancelled that have not begun after so long.
        deadline: those are cancelled that have not ended by then.
        detached: they are recorded before this returns, and run without this client.
        no_worker_timeout: those fail that no connected worker could run for so long.
        cores: the threads of its worker that a call takes; see `submit`.
        memory: the bytes that a call takes of its worker's limit; see `submit`.
        queue: the name of their queue; see `submit`.
        category: a `weft.Category`, which chooses memory and cores of each call; see `submit`.
        persist_to: a folder for the results, which later runs read; see `submit`.
        output: where what each call prints goes; see `submit`.
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
    conditions = NO_CONDITIONS
    if not (
        after is start_at is start_after is ttl is deadline is detached is NOT_GIVEN
        and no_worker_timeout is cores is memory is queue is category is NOT_GIVEN
    ):
        times = (start_at, start_after, ttl, deadline)
        given = (after, *times, detached, no_worker_timeout, cores, memory, queue, category)
        conditions = conditions_of_keywords(func, kwargs, given)
    options = options_of_keywords(
        func,
        kwargs,
        timeout,
        meta,
        priority,
        retries,
        workers,
        allow_other_workers,
        resources,
        conditions,
    )
    rows = rows_of(iterables)
    if actor or actors:
        check_actor(actor or actors, func)
        _check_unconditional({**conditions, "output": None if output is NOT_GIVEN else output})
        return map_actors(engine, client._encoder, func, rows, kwargs, key, options)
    if persist_to is not None:
        func = checkpointed(func, kwargs, persist_to)
    if output is not NOT_GIVEN:
        func = printing(func, kwargs, output)
    encoder = client._encoder
    if not is_conditional(conditions):
        return submit_rows(engine, encoder, func, rows, kwargs, key, options, pure, batch_size)
    check_futures(engine, conditions)
    # They are to run then, whatever has run before.
    inline = bool(conditions["detached"])
    futures = submit_rows(
        engine, encoder, func, rows, kwargs, key, options, False, batch_size, inline=inline
    )
    return accepted(client, keep(engine, futures, conditions), conditions)


def _check_unconditional(conditions: dict[str, Any]) -> None:
    given = [f"{name}=" for name, value in conditions.items() if value is not None]
    if given:
        raise TypeError(f"{', '.join(given)} cannot be given for an actor: it is made at once")
