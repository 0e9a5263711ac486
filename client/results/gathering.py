"""`gather`: collects the results of futures in nested containers, in the same containers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, overload

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import ForeignFuture
from ..actors import ActorFuture, split
from ..calls.call_options import check_unsupported, unexpected
from ..core.tasks import FutureState
from ..display.progress import wait_showing
from ..future import Future, load, try_load
from ..modes import Awaited, Blocking, T, Waited
from ..shell.both_ways import result_of, wait_for
from ..shell.short_tracebacks import short_tracebacks
from ..shell.watchers import unready
from .failures import exception_of
from .future_arguments import (
    futures_in,
    is_collection,
    is_named,
    is_of_an_executor,
    items_of,
    no_future,
)
from .lateness import too_late

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..client import Client
    from ..shell.engine import Engine

#: The place of a result that `errors="skip"` leaves out.
_SKIPPED = object()


K = TypeVar("K")
Errors: TypeAlias = Literal["raise", "skip"]


class GatherOptions(TypedDict, total=False):
    """The other options of `gather`."""

    direct: bool | None
    timeout: Duration | None
    progress: bool


@overload
def gather(
    client: Client[Blocking],
    futures: Waited[T, Any],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> T: ...
@overload
def gather(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    futures: Mapping[K, Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> dict[K, T]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    client: Client[Blocking],
    futures: AbstractSet[Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> set[T]: ...
@overload
def gather(
    client: Client[Blocking],
    futures: Iterable[Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> list[T]: ...
@overload
def gather(
    client: Client[Blocking],
    futures: Iterable[Iterable[Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Any: ...
@overload
def gather(
    client: Client[Awaited],
    futures: Waited[T, Any],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, T]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    futures: Mapping[K, Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, dict[K, T]]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    client: Client[Awaited],
    futures: AbstractSet[Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, set[T]]: ...
@overload
def gather(
    client: Client[Awaited],
    futures: Iterable[Waited[T, Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, list[T]]: ...
@overload
def gather(
    client: Client[Awaited],
    futures: Iterable[Iterable[Any]],
    errors: Errors = "raise",
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, Any]: ...
@overload
def gather(
    client: Client[Any],
    futures: object,
    errors: Errors = "raise",
    *,
    asynchronous: Literal[True],
    **options: Unpack[GatherOptions],
) -> Coroutine[Any, Any, Any]: ...
def gather(
    client: Client[Any],
    futures: Any,
    errors: str = "raise",
    direct: bool | None = None,
    asynchronous: bool | None = None,
    *,
    timeout: Duration | None = None,
    progress: bool = False,
    **unknown: Any,
) -> Any:
    """Return the results of futures in nested lists, tuples, sets and dicts, in their places.

    Args:
        futures: one, or containers of them, or another iterable, which gives a list. A
            collection of dask that was persisted gives its value.
        errors: "raise": raise the first failure; "skip": leave failed ones out.
        direct: large results always come straight from the workers; False is not supported.
        asynchronous: return an awaitable; None = if the client is asynchronous.
        timeout: seconds, "30s", ...; None = for ever.
        progress: show how many results are here, as `weft.progress` does.
        unknown: names that are refused.

    Example:
        >>> one, two = client.map(abs, [-1, -2])
        >>> client.gather({"first": one, "both": [one, two]})
        {'first': 1, 'both': [1, 2]}
    """
    for name in unknown:
        raise unexpected("gather", name, ("errors", "direct", "timeout", "progress"))
    timeout_s = seconds_or_none(timeout, "timeout")
    check_unsupported(direct=direct)
    gathering = Gathering(
        client._usable(), futures, errors, progress=progress, future_of=client._future_of
    )
    if client.asynchronous if asynchronous is None else asynchronous:
        return gathering.awaited(timeout_s)
    with short_tracebacks:
        result, error = gathering.run(timeout_s)
    if error is not None:
        __tracebackhide__ = True
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
    return result


class Gathering:
    """One call of `gather`: the futures to wait for, and the containers to fill."""

    def __init__(
        self,
        engine: Engine,
        futures: Any,
        errors: str,
        *,
        takes_values: bool = False,
        progress: bool = False,
        future_of: Callable[[Any], Future] | None = None,
    ) -> None:
        if errors not in ("raise", "skip"):
            raise ValueError(f'errors= is "raise" or "skip", not {errors!r}')
        if not takes_values:
            futures = _shape_of(futures)
        #: Makes a future of the value of a collection.
        self._future_of = future_of
        self._engine = engine
        self._shape = futures
        self._skips = errors == "skip"
        #: Other objects among the futures are left in their places, collections of dask too.
        self._takes_values = takes_values
        #: Show how far it is while it waits.
        self._shows = progress
        #: In the order of the futures, calls of actors among them.
        self._states: list[Any] = []
        self._is_flat = type(futures) is list and {*map(type, futures)} <= {Future}
        if self._is_flat:
            if futures and any([f._engine is not engine or f._is_released for f in futures]):  # noqa: C419
                for future in futures:
                    self._check(future)
            self._states = [future._state for future in futures]
        else:
            if future_of is not None:
                self._shape = futures = self._with_futures(futures)
            self._collect(futures)

    async def outcome(self, timeout: float | None = None) -> tuple[Any, BaseException | None]:
        """Wait; return the results, or else the error that the caller is to raise.

        The caller raises it, so that the traceback of a task's error has one frame of ours.
        """
        left = self._to_wait_for()
        if left:
            self._engine.check_open()
            if not await self._wait(left, timeout):
                raise await too_late(self._engine, *self._late(timeout))
        return self._outcome()

    def run(self, timeout: float | None = None) -> tuple[Any, BaseException | None]:
        """Do what `outcome` does, in the caller's thread."""
        return result_of(self._engine, lambda: self.outcome(timeout), asynchronous=False)

    async def awaited(self, timeout: float | None = None) -> Any:
        """Return the results, for a caller that awaits them."""
        result, error = await self.outcome(timeout)
        if error is not None:
            __tracebackhide__ = True
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return result

    async def _wait(self, left: list[FutureState], timeout: float | None) -> bool:
        stops = not self._skips
        states, calls = split(left)
        if self._shows and not calls:
            return await wait_showing(self._engine, self._states, timeout, stops=stops)
        return await wait_for(
            self._engine, states, timeout, wants_data=True, stops_at_failure=stops, calls=calls
        )

    def _to_wait_for(self) -> list[FutureState]:
        states = self._states
        left = unready(states)
        if left and not self._skips and any([s.failure is not None for s in states]):  # noqa: C419
            return []  # the error to be raised is here already
        return left

    def _late(self, timeout: float | None) -> tuple[str, list[FutureState], float]:
        assert timeout is not None
        late = unready(self._states)
        text = f"{len(late)} of {len(self._states)} results did not arrive within {timeout:g} s"
        return text, split(late)[0], timeout

    def _outcome(self) -> tuple[Any, BaseException | None]:
        error = None if self._skips else self._first_failure()
        if error is None:
            try:
                return self._results(), None
            except Exception:  # most often, a result could not be unpickled
                error = self._first_failure()
                if error is None:
                    raise
        return None, error

    def _first_failure(self) -> BaseException | None:
        for state in self._states:
            if state.failure is not None:
                return state._error() if isinstance(state, ActorFuture) else exception_of(state)
        return None

    def _results(self) -> Any:
        states = self._states
        if self._is_flat:
            engine = self._engine
            if self._skips:
                states = [state for state in states if try_load(state, engine)]
            return [load(state, engine) for state in states]
        result = self._fill(self._shape)
        return None if result is _SKIPPED else result

    # --- Nested containers, subclasses included; other objects in them are left as they are -------

    def _with_futures(self, item: Any) -> Any:
        """Return the containers with futures in the places of collections."""
        if isinstance(item, dict):
            if any(is_collection(part) or _is_container(part) for part in item.values()):
                filled = copy.copy(item)
                for key, part in item.items():
                    filled[key] = self._with_futures(part)
                return filled
        elif is_named(item):
            return type(item)(*[self._with_futures(part) for part in item])
        elif _is_container(item):
            if any(is_collection(part) or _is_container(part) for part in item):
                return type(item)([self._with_futures(part) for part in item])
        elif is_collection(item):
            assert self._future_of is not None
            return self._future_of(item)
        return item

    def _collect(self, item: Any) -> None:
        if isinstance(item, (Future, ActorFuture)):
            self._check(item)
            self._states.append(item._state)
        elif isinstance(item, (list, set, frozenset)) or type(item) is tuple or is_named(item):
            for part in item:
                self._collect(part)
        elif isinstance(item, dict):
            for part in item.values():
                self._collect(part)
        elif not self._takes_values and (is_collection(item) or is_of_an_executor(item)):
            raise no_future(item, "gather")

    def _fill(self, item: Any) -> Any:
        if isinstance(item, Future):
            if self._skips and not try_load(item._state, self._engine):
                return _SKIPPED
            return load(item._state, self._engine)
        if isinstance(item, ActorFuture):
            return _SKIPPED if self._skips and item.failure is not None else item._load()
        if isinstance(item, dict):
            # A copy keeps what a subclass adds: an order, a default.
            filled = copy.copy(item)
            filled.clear()
            for key, value in item.items():
                part = self._fill(value)
                if part is not _SKIPPED:
                    filled[key] = part
            return filled
        if is_named(item):
            parts = [self._fill(part) for part in item]
            return type(item)(*[None if part is _SKIPPED else part for part in parts])
        if isinstance(item, (list, set, frozenset)) or type(item) is tuple:
            parts = [self._fill(part) for part in item]
            return type(item)([part for part in parts if part is not _SKIPPED])
        return item

    def _check(self, future: Future | ActorFuture) -> None:
        if future._engine is not self._engine:
            owner = future._engine
            raise ValueError(
                f"the future of {future.key!r} belongs to another client, {owner.name} "
                f"({'closed' if owner.is_closed else 'open'}): gather it with that client, or use "
                "its result()"
            )
        if future._is_released:
            raise ValueError(f"the future of {future.key!r} was released; submit its call again")


def _is_container(item: object) -> bool:
    return isinstance(item, (list, set, frozenset, dict, tuple))


def _shape_of(futures: Any) -> Any:
    kinds = (Future, ActorFuture, list, tuple, set, frozenset, dict)
    if isinstance(futures, kinds) or is_collection(futures):
        return futures
    return list(items_of(futures, "gather"))


def states_in(futures: Any, call: str, engine: Engine | None = None) -> list[FutureState]:
    """Return the states of the futures in nested containers and other iterables.

    Args:
        futures: a future, or any of these.
        call: the name of the function that takes them, for the error.
        engine: of the client whose futures they have to be; None = of any.

    Raises:
        TypeError: there are other objects among them.
        ForeignFuture: one is of another client.
    """
    found: list[FutureState] = []
    for future in futures_in(futures, call):
        if engine is not None and future._engine is not engine:
            raise ForeignFuture(
                f"{call} takes futures of this client, {engine.name}, and that of {future.key!r} "
                f"is of {future._engine.name}: use that client"
            )
        found.append(future._state)
    return found
