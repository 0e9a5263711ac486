"""`replicate` and `rebalance`: how many copies there are of results, and where."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import NoAnswer
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import Key, key_of
from ..core.tasks import FutureState
from ..insight.asking import ask
from ..insight.cluster_info import describe_workers
from ..insight.inspecting import choose_workers, names_of
from ..modes import waits
from ..results.failures import exception_of
from ..results.gathering import states_in
from ..shell.both_ways import result_of, wait_for
from ..shell.engine import Engine
from ..shell.short_tracebacks import short_tracebacks
from ..shell.watchers import pending

if TYPE_CHECKING:
    from ..client import Client

#: The scheduler handles so many at a time.
_KEYS_PER_ORDER: Final = 100


@waits
def replicate(
    client: Client[Any],
    futures: Any,
    n: int | None = None,
    workers: str | Iterable[str] | None = None,
    *,
    timeout: Duration | None = None,
    asynchronous: bool | None = None,
    branching_factor: int | None = None,
) -> dict[Key, int]:
    """Have several copies of results, or of scattered data; return when they are there.

    The number is kept: when a copy is lost with a worker, or its worker leaves, another one is
    made, as long as one is left and the data is wanted. `n=1` ends that.

    Args:
        futures: one, or containers of them, nested or not; they are waited for.
        n: the number of copies, with the first; None = as many as there are workers.
        workers: names, hosts or addresses of those that the copies shall be at; None = all.
        timeout: seconds, "30s", ...; the copies are made all the same, later.
        asynchronous: return an awaitable; None = if the client is asynchronous.
        branching_factor: accepted for compatibility with dask; copies always spread as a tree.

    Returns:
        ``{key: number of copies}``: fewer than `n` where there are fewer workers.

    Raises:
        UnknownWorker: no connected worker has this name.
        TimeoutError: not all copies were there in time.
        ValueError: a future is of another client, or was released.

    Example:
        >>> (table,) = client.scatter([{"a": 1}])
        >>> client.replicate(table, n=2) == {table.key: 2}
        True
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    check_number("n", n)
    check_number("branching_factor", branching_factor)
    names = names_of(workers)
    if names is not None and not names:
        raise ValueError("workers= is empty, so no worker may have copies; None allows all")
    engine = client._running()
    states = usable_states(engine, futures, "replicate")
    arguments = {} if n is None else {"n": n}
    with short_tracebacks:
        return result_of(
            engine,
            lambda: order_copies(engine, "replicate", arguments, states, names, timeout_s),
            asynchronous,
        )


@waits
def rebalance(
    client: Client[Any],
    futures: Any = None,
    workers: str | Iterable[str] | None = None,
    *,
    timeout: Duration | None = None,
    asynchronous: bool | None = None,
) -> None:
    """Move results from workers with many bytes to those with few; return when it is done.

    What has several copies, or shall have some, stays where it is, and so do actors.

    Args:
        futures: one, or containers of them, nested or not; they are waited for. None = all
            futures of this client that have finished.
        workers: names, hosts or addresses of those that take part; None = all.
        timeout: seconds, "30s", ...; the data moves all the same, later.
        asynchronous: return an awaitable; None = if the client is asynchronous.

    Raises:
        UnknownWorker: no connected worker has this name.
        TimeoutError: not everything had moved in time.
        ValueError: a future is of another client, or was released.
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    names = names_of(workers)
    if names is not None and not names:
        raise ValueError("workers= is empty, so no worker takes part; None lets all take part")
    engine = client._running()
    if futures is None:
        states = [state for state in engine.table.snapshot() if state.status == "finished"]
    else:
        states = usable_states(engine, futures, "rebalance")

    async def move() -> None:
        await order_copies(engine, "rebalance", {}, states, names, timeout_s)

    with short_tracebacks:
        return result_of(engine, move, asynchronous)


def check_number(name: str, value: object) -> None:
    """Raise unless this is a number of copies, or None.

    Raises:
        TypeError, ValueError: it is not.
    """
    if value is not None and type(value) is not int:
        raise TypeError(f"{name}= is a number of copies, not {value!r}")
    if isinstance(value, int) and value < 1:
        raise ValueError(f"{name}= is a number of copies, at least 1, not {value}")


def usable_states(engine: Engine, futures: Any, call: str) -> list[FutureState]:
    """Return the states of futures in containers, each once.

    Raises:
        TypeError: there are other objects.
        ValueError: a future is of another client, or was released.
    """
    states = list(dict.fromkeys(states_in(futures, call)))
    for state in states:
        if engine.table.states.get(state.key) is not state:
            raise ValueError(
                f"the future of {state.key!r} belongs to another client, or was released: {call} "
                "takes futures of this client that are not released"
            )
    return states


def _not_there(states: list[FutureState], timeout_s: float | None) -> TimeoutError:
    late = pending(states)
    return TimeoutError(
        f"{len(late)} results were not there after {timeout_s or 0.0:g} s, and so have no copies"
    )


async def order_copies(
    engine: Engine,
    question: str,
    arguments: dict[str, Any],
    states: list[FutureState],
    names: set[str] | None,
    timeout_s: float | None,
) -> dict[Key, int]:
    """Wait for states, give the scheduler an order about copies, and return their numbers."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    left = pending(states)
    if left and not await wait_for(engine, left, timeout_s, wants_data=False):
        raise _not_there(left, timeout_s)
    for state in states:
        if state.failure is not None:
            raise exception_of(state)
    if names is not None:
        found = choose_workers(await describe_workers(engine), names)
        arguments["workers"] = list(found)
        if question == "replicate":
            arguments["n"] = min(arguments.get("n", len(found)), len(found))
    keys = [state.key for state in states]
    n_copies: dict[Key, int] = {key_of(key): 0 for key in keys}
    for i in range(0, len(keys), _KEYS_PER_ORDER):
        arguments["keys"] = keys[i : i + _KEYS_PER_ORDER]
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            async for page in ask(engine, question, arguments, left_s):
                with reading("the scheduler"):
                    numbers = part_of(page, "n_copies", list)
                    named = map(key_of, part_of(page, "keys", list))
                    n_copies.update(zip(named, numbers, strict=True))
        except NoAnswer as error:
            raise TimeoutError(
                f"not all copies were there after {timeout_s or 0.0:g} s; they are made all the "
                "same, as long as the data is wanted"
            ) from error
    return n_copies
