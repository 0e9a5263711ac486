"""`wait`: many futures at once, with constant work for each."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Coroutine, Generator, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    overload,
)

from ..protocol.durations import Duration, seconds_or_none
from .actors import ActorFuture, split
from .core.tasks import FutureState
from .future import Future
from .modes import Awaited, Blocking, Item, Waited
from .results.future_arguments import engine_of, flat_futures
from .results.lateness import too_late
from .shell.both_ways import result_of, wait_for
from .shell.short_tracebacks import short_tracebacks
from .shell.watchers import pending

if TYPE_CHECKING:
    from .shell.engine import Engine

ALL_COMPLETED: Final = "ALL_COMPLETED"
FIRST_COMPLETED: Final = "FIRST_COMPLETED"
FIRST_EXCEPTION: Final = "FIRST_EXCEPTION"
ReturnWhen: TypeAlias = Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"]

#: A future of a blocking, or of an asynchronous, client.
OneB = TypeVar("OneB", bound="Waited[Any, Blocking]")
OneA = TypeVar("OneA", bound="Waited[Any, Awaited]")


if TYPE_CHECKING:

    class DoneAndNotDone(NamedTuple, Generic[Item]):
        """The result of `wait`: two sets of futures."""

        done: set[Item]
        not_done: set[Item]

else:  # Python 3.10 has no named tuples with a parameter
    DoneAndNotDone = namedtuple("DoneAndNotDone", "done not_done")


class _OfNothing(DoneAndNotDone):
    """The return value of `wait` for no futures, which may be awaited or not.

    Without a future there is no client that is either asynchronous or not.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(DoneAndNotDone(*self))

    def __await__(self) -> Generator[Any, None, DoneAndNotDone]:
        yield from ()
        return DoneAndNotDone(*self)


@overload
def wait(
    fs: OneB | Iterable[OneB],
    timeout: Duration | None = None,
    return_when: ReturnWhen = ALL_COMPLETED,
) -> DoneAndNotDone[OneB]: ...
@overload
def wait(
    fs: OneA | Iterable[OneA],
    timeout: Duration | None = None,
    return_when: ReturnWhen = ALL_COMPLETED,
) -> Coroutine[Any, Any, DoneAndNotDone[OneA]]: ...
def wait(
    fs: Any,
    timeout: Duration | None = None,
    return_when: str = ALL_COMPLETED,
) -> DoneAndNotDone[Any] | Coroutine[Any, Any, DoneAndNotDone[Any]]:
    """Wait until futures are done; an awaitable if their client is asynchronous.

    Args:
        fs: futures of one client; calls of actors, too.
        timeout: seconds, "30s", "1 min" or a timedelta; None = for ever.
        return_when: "ALL_COMPLETED", "FIRST_COMPLETED" or "FIRST_EXCEPTION".

    Returns:
        `DoneAndNotDone(done, not_done)`.

    Raises:
        TimeoutError: the futures were not done in time.
        ValueError: a future was released, or they belong to several clients.

    Example:
        >>> done, not_done = weft.wait(client.map(abs, [-1, -2]), timeout="1 min")
        >>> sorted(future.result() for future in done)
        [1, 2]
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    futures = flat_futures(fs, "wait")
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        text = "'ALL_COMPLETED', 'FIRST_COMPLETED' or 'FIRST_EXCEPTION'"
        raise ValueError(f"return_when= is {text}, not {return_when!r}")
    engine = engine_of(futures)
    if engine is None:
        return _OfNothing(set(), set())
    with short_tracebacks:
        return result_of(engine, lambda: _wait(engine, futures, timeout_s, return_when))


async def _wait(
    engine: Engine, futures: list[Future], timeout_s: float | None, return_when: str
) -> DoneAndNotDone:
    if arguments := _what_to_wait_for(futures, return_when):
        states, calls, n, stops = arguments
        if not await wait_for(
            engine, states, timeout_s, wants_data=False, n=n, stops_at_failure=stops, calls=calls
        ):
            raise await too_late(engine, *_late(futures, timeout_s))
    return _divide(futures)


def _what_to_wait_for(
    futures: list[Future], return_when: str
) -> tuple[list[FutureState], list[ActorFuture], int, bool] | None:
    states = [future._state for future in futures]
    left = pending(states)
    if not left or (return_when == FIRST_COMPLETED and len(left) < len(states)):
        return None
    stops = return_when == FIRST_EXCEPTION
    if stops and any(state.failure is not None for state in states):
        return None
    return *split(left), 1 if return_when == FIRST_COMPLETED else len(left), stops


def _late(futures: list[Future], timeout_s: float | None) -> tuple[str, list[FutureState], float]:
    assert timeout_s is not None
    late = pending([future._state for future in futures])
    text = f"{len(late)} of {count_futures(len(futures))} not done within {timeout_s:g} s"
    return text, split(late)[0], timeout_s


def count_futures(n: int) -> str:
    """Return a number of futures with the verb, as the subject of a sentence."""
    return f"{n} future was" if n == 1 else f"{n} futures were"


def _divide(futures: list[Future]) -> DoneAndNotDone:
    done = {future for future in futures if future._state.status != "pending"}
    return DoneAndNotDone(done, set(futures) - done)
