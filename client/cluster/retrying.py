"""`Client.retry`: failed tasks run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from collections.abc import Iterable

    from ..client import Client


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

    Example:
        >>> import pathlib
        >>> files = [pathlib.Path(name).resolve() for name in ("a.txt", "b.txt")]
        >>> reads = [client.submit(file.read_text) for file in files]
        >>> done, _ = weft.wait(reads)
        >>> [file.write_text("found") for file in files]
        [5, 5]
        >>> client.retry(reads)
        >>> client.gather(reads)
        ['found', 'found']
    """
    return retry_states(client._running(), states_in(futures, "retry"), asynchronous)


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
            why = "has failed unsent or under an earlier scheduler, or was cancelled after that"
        else:
            why = f"has not failed in its task ({failure[0]})"
        raise ValueError(
            f"the future of {state.key!r} cannot be retried: it {why}; submit its call again"
        )
