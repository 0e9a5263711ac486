"""`scatter`: puts data at workers.

A value is pickled and named by its content in the user's thread. It is submitted as a task without
a function, as large arguments are (`shared_arguments`), with the option `scattered`: the scheduler
chooses a worker, and the client's core puts the value there directly (`core.features.puts`). Two
things differ from a large argument:

- Nothing is kept of the value once it is at a worker. So a call that must never be lost gets its
  data as an argument; data that many calls read is scattered.
- Tasks share the value as they share a result: it is unpickled once per worker, not per call.

A client that blocks sends the memory of the caller's object as it is, since the object cannot
change meanwhile. An asynchronous client sends a copy, and so does one whose workers are threads of
its own process, which would otherwise share that memory.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, overload

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.values.digests import digest_of
from ...protocol.values.host_blobs import share
from ...protocol.values.serialize import dumps_with_dependencies
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.payload import Blob, Payload, blob_nbytes, parts_of
from ...protocol.wording import sized
from ..core.tasks import LOST, FutureState, TaskRecord
from ..future import Future
from ..insight.inspecting import find_workers, names_of
from ..modes import Awaited, Blocking, T
from ..results.failures import exception_of, last_notice
from ..results.future_arguments import is_named
from ..shell.both_ways import result_of, wait_for
from ..shell.engine import Engine
from ..shell.short_tracebacks import short_tracebacks
from ..shell.watchers import pending
from .call_options import check_unsupported
from .copies import check_number, order_copies
from .encoding import Encoder
from .shared_arguments import MAX_NBYTES, is_near, unchanging

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..client import Client

K = TypeVar("K")

#: So much is sent before more is pickled: an iterator of large values needs no more memory.
_BATCH_NBYTES: Final = 128 << 20
_BATCH_ITEMS: Final = 512
#: A value whose copy is lost before `scatter` returns is sent again so often.
_MAX_TIMES: Final = 3
_MAX_TYPE_CHARS: Final = 40
#: Containers whose items are scattered one by one; others, and subclasses, are one value.
_SEQUENCES: Final = (list, tuple, set, frozenset)


class ScatterOptions(TypedDict, total=False):
    """The other options of `scatter`."""

    direct: bool | None
    hash: bool
    timeout: Duration | None
    allow_other_workers: bool


@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    data: Mapping[K, T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> dict[K, Future[T, Blocking]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    data: list[T] | Iterator[T] | range,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> list[Future[T, Blocking]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    data: tuple[T, ...],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> tuple[Future[T, Blocking], ...]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    data: set[T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> set[Future[T, Blocking]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    data: frozenset[T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> frozenset[Future[T, Blocking]]: ...
@overload
def scatter(
    client: Client[Blocking],
    data: T,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Future[T, Blocking]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    data: Mapping[K, T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, dict[K, Future[T, Awaited]]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    data: list[T] | Iterator[T] | range,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, list[Future[T, Awaited]]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    data: tuple[T, ...],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, tuple[Future[T, Awaited], ...]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    data: set[T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, set[Future[T, Awaited]]]: ...
@overload
def scatter(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    data: frozenset[T],
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, frozenset[Future[T, Awaited]]]: ...
@overload
def scatter(
    client: Client[Awaited],
    data: T,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, Future[T, Awaited]]: ...
@overload
def scatter(
    client: Client[Any],
    data: object,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    *,
    asynchronous: Literal[True],
    **options: Unpack[ScatterOptions],
) -> Coroutine[Any, Any, Any]: ...
def scatter(
    client: Client[Any],
    data: Any,
    workers: str | Iterable[str] | None = None,
    broadcast: bool | int = False,
    direct: bool | None = None,
    hash: bool = True,
    *,
    timeout: Duration | None = None,
    asynchronous: bool | None = None,
    allow_other_workers: bool = False,
) -> Any:
    """Put data at workers, and return when it is there.

    Calls take its futures as those of other calls. The data is sent to the workers directly,
    and this client keeps nothing of it: if its last copy is lost with a worker, the futures
    fail with `DataLost`, and so do the calls that need them. See docs/data.md.

    Args:
        data: a list, tuple, named tuple, set or dict gives the same with a future in the place
            of each value; an iterator or range gives a list; anything else is one value.
        workers: names, hosts or addresses of the workers that may get it; None = all.
        broadcast: True: each of these workers gets a copy; a number: so many do. It is restored
            as by `replicate`.
        direct: data always goes straight to the workers; False is not supported.
        hash: name each value by its content, so that equal values are sent once; False gives
            each a name of its own.
        timeout: seconds, "30s", ... to wait for workers and until the data is there; None = for
            ever.
        asynchronous: return an awaitable; None = if the client is asynchronous.
        allow_other_workers: the data may go elsewhere while none of `workers` is there.

    Raises:
        TypeError: the data has futures in it, whose results are at workers already.
        ValueError: a value is too large to be sent at once.
        SerializationError: a value cannot be pickled.
        UnknownWorker: no connected worker has this name, and no other one is allowed.
        TimeoutError: not everything was there in time; what was is released.

    Example:
        >>> parts = client.scatter({"a": 1, "b": 2})    # a dict of futures
        >>> client.submit(max, parts["a"], parts["b"]).result()
        2
        >>> (names,) = client.scatter([["b", "a"]])     # a list, item by item
        >>> client.submit(sorted, names).result()
        ['a', 'b']
    """
    check_unsupported(direct=direct)
    timeout_s = seconds_or_none(timeout, "timeout")
    names = names_of(workers)
    if names is not None and not names:
        raise ValueError("workers= is empty, so no worker may get the data; None allows all")
    for name, value in (("hash", hash), ("allow_other_workers", allow_other_workers)):
        if type(value) is not bool:
            raise TypeError(f"{name}= is True or False, not {value!r}")
    n_copies = 1 if broadcast is False else None if broadcast is True else broadcast
    check_number("broadcast", n_copies)
    engine = client._running()
    options = TaskOptions(
        workers=sorted(names or ()), allow_other_workers=allow_other_workers, scattered=True
    )
    is_async = client.asynchronous if asynchronous is None else asynchronous
    scattering = Scattering(engine, client._encoder, data, options, hash, copies=is_async)
    with short_tracebacks:
        return result_of(engine, lambda: scattering.run(timeout_s, n_copies), asynchronous)


class _Scattered:
    """One value of a call of `scatter`, until it is at a worker."""

    __slots__ = ("blob", "future", "key", "n_times")

    def __init__(self, key: str, blob: Blob) -> None:
        self.key = key
        self.blob = blob
        self.future: Future | None = None
        self.n_times = 0

    @property
    def state(self) -> FutureState:
        assert self.future is not None, "it was submitted"
        return self.future._state


class Scattering:
    """One call of `scatter`."""

    def __init__(
        self,
        engine: Engine,
        encoder: Encoder,
        data: Any,
        options: TaskOptions,
        is_hashed: bool,
        *,
        copies: bool,
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self._data = data
        self._options = options
        self._is_hashed = is_hashed
        link = engine.link
        self._is_near = is_near(engine)
        self._copies = copies or (link is not None and link.address.startswith("inproc:"))
        self._futures: list[Future] = []
        self._deadline: float | None = None
        self._timeout_s: float | None = None

    async def run(self, timeout_s: float | None, n_copies: int | None) -> Any:
        """Send the data, wait until it is at workers, and return the futures in their places.

        Args:
            timeout_s: seconds; None = for ever.
            n_copies: of all values; None = one at each worker that may have them.
        """
        names = self._options.workers
        if names and not self._options.allow_other_workers:
            await find_workers(self._engine, names)  # they must be there
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            for left in self._steps():
                states = [value.state for value in left]
                if not await wait_for(self._engine, states, self._left_s(), wants_data=False):
                    raise self._late(states)
            if n_copies != 1:
                states = [future._state for future in self._futures]
                number = {} if n_copies is None else {"n": n_copies}
                where, left_s = set(names) or None, self._left_s()
                await order_copies(self._engine, "replicate", number, states, where, left_s)
        except BaseException:
            self._give_up()
            raise
        return self._shape()

    def _left_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _late(self, states: list[FutureState]) -> TimeoutError:
        late = pending(states)
        notice = last_notice(self._engine.core, late)
        return TimeoutError(
            f"{len(late)} values were not at workers within {self._timeout_s:g} s, {late[0].key!r} "
            f"for one{notice or '; look at client.scheduler_info() for the workers that there are'}"
        )

    def _give_up(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            future.release()

    # --- Sending ----------------------------------------------------------------------------------

    def _steps(self) -> Iterator[list[_Scattered]]:
        """Submit the values, batch by batch; yield those that the caller has to wait for."""
        for batch in self._batches():
            left = batch
            while left:
                self._submit(left)
                under_way = [value for value in left if value.state.status == "pending"]
                if under_way:
                    yield under_way
                left = [value for value in left if self._is_to_send_again(value)]
            self._futures += [value.future for value in batch if value.future is not None]

    def _batches(self) -> Iterator[list[_Scattered]]:
        batch: list[_Scattered] = []
        nbytes = 0
        for item in self._items():
            value = self._encode(item)
            batch.append(value)
            nbytes += blob_nbytes(value.blob)
            if nbytes >= _BATCH_NBYTES or len(batch) >= _BATCH_ITEMS:
                yield batch
                batch, nbytes = [], 0
        if batch:
            yield batch

    def _items(self) -> Iterable[Any]:
        data = self._data
        if type(data) is dict:
            return list(data.values())
        if type(data) in _SEQUENCES or is_named(data) or _is_listed(data):
            return data  # type: ignore[no-any-return]
        return [data]

    def _encode(self, item: Any) -> _Scattered:
        blob, dependencies = dumps_with_dependencies(item, "data of scatter")
        if dependencies:
            raise TypeError(
                f"the data has the future of {dependencies[0]!r} in it, and scatter puts values at "
                "workers: results are there already; use the future as an argument of a call, or "
                "its result() as the data"
            )
        nbytes = blob_nbytes(blob)
        if nbytes > MAX_NBYTES:
            raise ValueError(
                f"a value takes {sized(nbytes)}, and at most {sized(MAX_NBYTES)} can be sent at "
                "once; scatter it in parts, or read it in a task"
            )
        shared = share(blob) if self._is_near else None
        if shared is not None:
            blob = shared
        elif self._copies and isinstance(blob, Payload):
            blob = Payload(blob.data, [unchanging(buffer) for buffer in blob.buffers])
        name = type(item).__name__
        name = f"scattered-{name[:_MAX_TYPE_CHARS] if name.isascii() else 'object'}"
        if self._is_hashed:
            return _Scattered(f"{name}-{digest_of(parts_of(blob))}", blob)
        return _Scattered(self._encoder.number_key(name), blob)

    def _submit(self, values: list[_Scattered]) -> None:
        engine = self._engine
        function = self._encoder.shared.function
        for value in values:
            (state,), replaced = engine.table.attach([value.key])
            value.future = Future(engine, state)
            value.n_times += 1
            failed = replaced[0] if replaced else None
            engine.post(TaskRecord(state, function, value.blob, [], self._options, None, failed))
        engine.check_open()

    def _is_to_send_again(self, value: _Scattered) -> bool:
        """Return whether the only copy was lost at once; raise another failure."""
        state = value.state
        if state.failure is None:
            value.blob = b""
            return False
        if state.status == LOST and state.failure[0] == "data-lost" and value.n_times < _MAX_TIMES:
            return True
        raise exception_of(state)

    # --- The futures ------------------------------------------------------------------------------

    def _shape(self) -> Any:
        data, futures = self._data, self._futures
        if type(data) is dict:
            return dict(zip(data, futures, strict=True))
        if is_named(data):
            return type(data)(*futures)
        if type(data) in _SEQUENCES:
            return type(data)(futures)
        return futures if _is_listed(data) else futures[0]


def _is_listed(data: object) -> bool:
    """Return whether this is an iterator, or a range, whose items are listed."""
    return isinstance(data, (Iterator, range))
