"""`weft.Executor`: the interface of `concurrent.futures` on a cluster.

Its futures are real `concurrent.futures.Future`s, for all code that knows nothing of weft:
`concurrent.futures.wait`, `asyncio.wrap_future`, `loop.run_in_executor`, other libraries.
"""

from __future__ import annotations

import functools
import itertools
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from ..protocol.durations import Duration, seconds_or_none
from ..protocol.errors import NotSupported
from ..protocol.wire.options import KEYWORDS
from .calls.annotations import options_of_call
from .calls.call_options import check_keywords, unexpected
from .calls.calling import submit_call, submit_rows
from .calls.encoding import rows_of
from .calls.options import DEFAULTS
from .core.features.cluster import cluster_of
from .shell.executor_calls import Calls, Rows
from .shell.interruptible import SLICE_S

if TYPE_CHECKING:
    import threading

    from .client import Client
    from .cluster.locating import ClusterLike

T = TypeVar("T")

_OPTIONS: Final = (*KEYWORDS, "pure")
#: Of one executor, whose wrappers are kept.
_MAX_FUNCTIONS: Final = 100
#: {parameter of the executors of the standard library: what serves its purpose}.
_ELSEWHERE: Final = {
    "max_tasks_per_child": "worker processes live as long as their cluster; memory_limit= of "
    "LocalCluster restarts those that grow",
    "mp_context": "workers are processes of a cluster, which are started anew and never forked "
    "from this one",
    "thread_name_prefix": "the calls run in worker processes; for threads of this process there is "
    "weft.ThreadPool",
}


class Executor(futures.Executor):
    """Runs calls on the workers of a cluster.

    Args:
        max_workers: number of worker processes, with one thread each, of a cluster that is started
            for this executor and ends with it; None: as many as there are cores. Not with
            `client=`: a cluster that exists has its own workers.
        client: a blocking client, which stays open; or the address of a scheduler or a cluster
            object, as for `Client`. None: see `max_workers`; if `$WEFT_CONNECTION_FILE` is set, and
            max_workers is None, that cluster is used.
        initializer: called in each worker process before the first call that it gets of this
            executor. If it raises, all calls fail with `InitializerFailed`.
        initargs: its arguments.
        options: those of `Client.submit` for each task: workers, resources, retries, priority,
            allow_other_workers, timeout.

    Raises:
        ValueError: max_workers is less than one, or was given with a client.

    Example:
        >>> with weft.Executor(2) as executor:           # two worker processes, which end with it
        ...     executor.submit(pow, 2, 10).result()
        1024
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        client: Client | str | ClusterLike | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        from .client import Client

        self._options = _submit_options(options)
        self._wrap = _wrapper(initializer, tuple(initargs))
        if max_workers is not None:
            if isinstance(max_workers, bool) or not isinstance(max_workers, int):
                hint = "; did you mean client=?" if _names_cluster(max_workers) else ""
                raise TypeError(f"max_workers= is a whole number, not {max_workers!r}{hint}")
            if max_workers < 1:
                raise ValueError(f"max_workers must be greater than 0, not {max_workers}")
            if client is not None:
                raise ValueError(
                    "max_workers= is the number of workers of a new cluster, and client= is one "
                    "that has its own: leave one of the two out"
                )
        if isinstance(client, Client):
            if client.is_in_callers_loop:
                raise NotSupported(
                    "an executor needs a blocking client, and this one is asynchronous: use "
                    "weft.Executor(client=client.scheduler_address), or await client.submit(...)"
                )
            owns, opened = False, client
        else:
            owns = True
            started: dict[str, Any] = {}
            if max_workers is not None:
                started = {"n_workers": max_workers, "threads_per_worker": 1}
            opened = Client(client, set_as_default=False, **started)
        self._client = opened
        self._calls = Calls(opened._running(), opened, owns)
        #: Ends it as `shutdown(wait=False)` does.
        self._finalizer = weakref.finalize(self, Calls.end, self._calls, wait=False)
        self._finalizer.atexit = False  # the program waits for the calls

    @property
    def _broken(self) -> str | bool:
        """Why the executor takes no more calls after a failed initializer; False before that."""
        return self._calls.broken or False

    @property
    def _max_workers(self) -> int:
        """The number of calls that the cluster runs at once now; other libraries read it."""
        return max(1, cluster_of(self._client._usable().core).nthreads)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        """Run `fn(*args, **kwargs)` on a worker; return its future.

        Futures of weft in the arguments are replaced by their results, as `Client.submit` does.

        Raises:
            RuntimeError: the executor was shut down, or its initializer has failed, or the program
                ends.
            SerializationError: the function or an argument cannot be pickled.
        """
        calls = self._calls
        calls.check_open()
        if not callable(fn):
            raise TypeError(f"submit needs a function, not {type(fn).__name__}")
        if kwargs:
            check_keywords(fn, kwargs, of_executor=True)
        if self._wrap is not None:
            fn = self._wrap(fn)
        encoder, options = self._client._encoder, self._options()
        handle = submit_call(calls.engine, encoder, fn, args, kwargs, None, options, pure=False)
        return calls.follow(handle)

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: Duration | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Run `fn` for each row of `zip(*iterables)`; iterate over the results in that order.

        All calls are submitted now, and run also if no result is read. Leaving the iteration early
        cancels those that have not begun.

        Args:
            fn: the function to run.
            iterables: they are read now, as far as `buffersize` allows.
            timeout: for the whole iteration, from now on, in seconds or as "30s", ...
            chunksize: number of rows of one task.
            buffersize: the largest number of tasks whose results were not read; None = no limit.

        Raises:
            TimeoutError: by the iterator: a result was not there in time.

        Example:
            >>> with client.get_executor() as executor:
            ...     list(executor.map(pow, range(4), [2] * 4, chunksize=2))
            [0, 1, 4, 9]
        """
        calls = self._calls
        calls.check_open()
        if not callable(fn):
            raise TypeError(f"map needs a function, not {type(fn).__name__}")
        deadline = _Deadline(timeout)
        if isinstance(chunksize, bool) or not isinstance(chunksize, int):
            raise TypeError(f"chunksize= is a whole number, not {chunksize!r}")
        if chunksize < 1:
            raise ValueError(f"chunksize must be >= 1, not {chunksize}")
        if buffersize is not None:
            if isinstance(buffersize, bool) or not isinstance(buffersize, int):
                raise TypeError(f"buffersize must be an integer or None, not {buffersize!r}")
            if buffersize < 1:
                raise ValueError(f"buffersize must be None or > 0, not {buffersize}")
        if not iterables:
            return iter(())
        if self._wrap is not None:
            fn = self._wrap(fn)
        each = rows_of(iterables)
        submitted = functools.partial(_submit_rows, weakref.ref(self), fn)
        if chunksize > 1:
            submitted = functools.partial(
                _submit_rows, weakref.ref(self), functools.partial(_call_rows, fn)
            )
            each = ((chunk,) for chunk in _chunks(each, chunksize))
        rows = Rows(calls)
        rows.add(submitted(each if buffersize is None else itertools.islice(each, buffersize)))
        more = None if buffersize is None else _More(submitted, each, buffersize)
        results = _results(rows, deadline, more)
        return results if chunksize == 1 else _flattened(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls.

        Args:
            wait: wait until all calls are done; then end the cluster that was started for this
                executor. Otherwise both happen later; the end of the program waits for it, too.
            cancel_futures: cancel the calls that have not begun.
        """
        calls = self._calls
        calls.refusal = calls.refusal or "cannot schedule new futures after shutdown"
        if cancel_futures and not calls.engine.is_gone:
            calls.cancel_all()
        self._finalizer.detach()
        calls.end(wait=wait)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an executor cannot be pickled: it belongs to this process")


def _submit_options(given: Mapping[str, Any]) -> Callable[[], Any]:
    """Check the options of an executor; return a function that combines them with the context's."""
    for name in given:
        if name in _ELSEWHERE:
            raise TypeError(f"{name}= is not an option of weft.Executor: {_ELSEWHERE[name]}")
        if name not in _OPTIONS:
            names = ("max_workers", "client", "initializer", "initargs", *_OPTIONS)
            raise unexpected("Executor", name, names)
    if given.get("pure"):
        raise NotSupported(
            "the calls of an executor are never pure: each has a future of its own. Leave pure= "
            "out, or use client.submit"
        )
    named = {name: value for name, value in given.items() if name != "pure"}
    make = functools.partial(options_of_call, **{**DEFAULTS, **named})
    make()
    return make


def _names_cluster(given: object) -> bool:
    return hasattr(given, "scheduler_address") or (isinstance(given, str) and ":" in given)


def _wrapper(
    initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
) -> Callable[[Callable[..., Any]], Callable[..., Any]] | None:
    """Return what adds the initializer to a function; None if there is none."""
    if initializer is None:
        return None
    if not callable(initializer):
        raise TypeError(f"initializer must be a callable, not {type(initializer).__name__}")
    from ..protocol.values.initialized import initialized

    token = uuid.uuid4().hex
    known: dict[Any, Callable[..., Any]] = {}

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            found = known.get(function)
        except TypeError:  # it cannot be hashed
            return initialized(function, initializer, initargs, token)
        if found is None:
            if len(known) >= _MAX_FUNCTIONS:
                known.clear()
            found = known[function] = initialized(function, initializer, initargs, token)
        return found

    return wrap


class _Deadline:
    """The time limit of one iteration."""

    def __init__(self, timeout: Duration | None) -> None:
        self.timeout_s = seconds_or_none(timeout, "timeout")
        self._end = None if self.timeout_s is None else time.monotonic() + self.timeout_s

    def wait(self, event: threading.Event) -> None:
        """Wait for the event for a while.

        Raises:
            TimeoutError: the time is over.
        """
        left = SLICE_S
        if self._end is not None:
            left = min(left, self._end - time.monotonic())
            if left <= 0:
                raise futures.TimeoutError(f"a result was not there within {self.timeout_s:g} s")
        event.wait(left)


class _More:
    """The rows of a `map` that are not submitted yet, because its buffer is full."""

    def __init__(
        self, submit: Callable[[Iterable[Any]], list[Any]], each: Iterator[Any], size: int
    ) -> None:
        self._submit = submit
        self._each = each
        self._size = size

    def fill(self, rows: Rows) -> None:
        """Submit rows if a good part of the buffer is free."""
        n_free = self._size - len(rows.handles)
        if n_free >= max(1, self._size // 4):
            rows.add(self._submit(itertools.islice(self._each, n_free)))


def _submit_rows(
    executor: weakref.ref[Executor], fn: Callable[..., Any], each: Iterable[Any]
) -> list[Any]:
    """Submit rows of a `map`, unless its executor was dropped."""
    found = executor()
    if found is None:
        return []
    calls = found._calls
    calls.check_open()
    return submit_rows(
        calls.engine,
        found._client._encoder,
        fn,
        iter(each),
        {},
        None,
        found._options(),
        pure=False,
        batch_size=None,
    )


def _results(rows: Rows, deadline: _Deadline, more: _More | None) -> Iterator[Any]:
    try:
        while rows.handles:
            # No name here refers to a result after it was yielded.
            yield rows.next_result(deadline.wait)
            if more is not None:
                more.fill(rows)
    finally:
        rows.drop()


def _flattened(results: Iterator[list[Any]]) -> Iterator[Any]:
    try:
        for chunk in results:
            chunk.reverse()
            while chunk:
                yield chunk.pop()
    finally:
        results.close()  # type: ignore[attr-defined]  # a generator


def _chunks(each: Iterator[Any], size: int) -> Iterator[tuple[Any, ...]]:
    while chunk := tuple(itertools.islice(each, size)):
        yield chunk


def _call_rows(fn: Callable[..., T], chunk: tuple[tuple[Any, ...], ...]) -> list[T]:
    return [fn(*row) for row in chunk]
