"""Methods of `Client` that end work or have it done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ...protocol.durations import seconds_of
from ...protocol.errors import ForeignFuture, NotPermitted
from ..core.events import RetryFailed
from ..core.retrying import can_retry
from ..core.tasks import FAILED, GONE, NEW, FutureState, is_unreadable
from ..insight.asking import error_of_end
from ..modes import waits
from ..results.gathering import states_in
from ..shell.both_ways import settled
from ..shell.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from ...protocol.durations import Duration
    from ..client import Client
    from ..modes import Awaited, Blocking


@waits
def retry(client: Client[Any], futures: Any, asynchronous: bool | None = None) -> None:
    """Run the tasks of failed futures again, with those of their inputs that failed.

    The futures are pending again. Futures that have not failed are left as they are. Each task
    has all its `retries=` again.

    Args:
        futures: one, or containers of them, nested or not, or other iterables.
        asynchronous: return an awaitable; None = if the client is asynchronous.

    Raises:
        ValueError: a future was released or cancelled, or has failed for a reason that is not
            one of its task; nothing is run again.
        ForeignFuture: a future belongs to another client.
    """
    return retry_states(client._running(), states_in(futures, "retry"), asynchronous)


@waits
def restart_workers(
    client: Client[Any],
    workers: str | Iterable[str] | None = None,
    timeout: Duration | None = None,
    raise_for_error: bool = True,
) -> dict[str, str]:
    """End the processes of workers at once and start others; return when these have joined.

    What ran there is placed again and costs no retry, nor does it count as a death. Results of
    which a worker had the only copy are computed again if they are needed.

    Args:
        workers: their names, hosts or addresses; None = all.
        timeout: time to wait for the new processes; None = that of the client.
        raise_for_error: raise an error if some have not joined in time.

    Returns:
        ``{address: end}`` of the old processes: "OK", "removed" (it had left before), or "timed
        out" (no process of its name has joined in time; it may still come).

    Raises:
        UnknownWorker: no connected worker has this name.
        NotSupported: a worker is a thread of this program (`processes=False`), or has no
            supervisor; nothing was restarted.
        TimeoutError: some have not joined in time, and `raise_for_error`.
        NotPermitted: the client's token is of a lower role than client.
    """
    from .restarting import restart_workers

    timeout_s = client._timeout_s if timeout is None else seconds_of(timeout, "timeout")
    return client._run(restart_workers(client._running(), workers, timeout_s, raise_for_error))


@overload
def restart(
    client: Client[Blocking], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Client[Blocking]: ...
@overload
def restart(
    client: Client[Awaited], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Coroutine[Any, Any, Client[Awaited]]: ...
def restart(
    client: Client[Any], timeout: Duration | None = None, wait_for_workers: bool = True
) -> Any:
    """Cancel all futures of this client, and restart all workers; return the client.

    Results that are in this process stay readable. Tasks of other clients are placed again, and
    their results computed again, so nothing of theirs is lost.

    Args:
        timeout: time to wait for the new processes; None = that of the client.
        wait_for_workers: wait until they have joined.

    Raises:
        NotSupported, TimeoutError, NotPermitted: see `restart_workers`.
    """
    from .restarting import restart

    timeout_s = client._timeout_s if timeout is None else seconds_of(timeout, "timeout")
    return client._run(restart(client, client._running(), timeout_s, wait_for_workers))


def retry_states(
    engine: Engine, states: list[FutureState], asynchronous: bool | None = None
) -> None:
    """Run the tasks of failed states again: see `retry`."""
    if engine.core.end is not None:
        raise error_of_end(engine)
    if engine.worker_of_tasks is not None:
        raise NotPermitted("to retry a future in a task", "client", "worker")
    _check_retry(engine, states)
    engine.post(RetryFailed(states))
    return settled(engine, asynchronous)


def _check_retry(engine: Engine, states: Iterable[FutureState]) -> None:
    for state in states:
        if state.phase == NEW and state.status in FAILED:
            raise ValueError(f"the future of {state.key!r} was released; submit its call again")
        known = engine.table.states.get(state.key)
        if known is not state and state.phase != GONE:
            raise ForeignFuture(
                f"the future of {state.key!r} belongs to another client, or was released; call "
                "retry of the client that has submitted it"
            )
        failure = state.failure
        if failure is None or can_retry(state):
            continue
        if is_unreadable(state):
            why = "has a result, which cannot be read here; the text of its error says why"
        elif failure[0] == "cancelled":
            why = "was cancelled"
        elif state.phase == GONE:
            why = "has failed under an earlier scheduler, or before it was sent"
        else:
            why = f"has not failed in its task ({failure[0]})"
        raise ValueError(
            f"the future of {state.key!r} cannot be retried: it {why}; submit its call again"
        )
