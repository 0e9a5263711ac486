"""`cancel`: gives up the tasks of futures in nested containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.events import Cancel
from ..future import cancel_reason, checked_running
from ..modes import waits
from ..shell.both_ways import settled
from .gathering import states_in

if TYPE_CHECKING:
    from ..client import Client


@waits
def cancel(
    client: Client[Any],
    futures: Any,
    asynchronous: bool | None = None,
    force: bool = False,
    reason: str | None = None,
    msg: str | None = None,
    running: bool = False,
) -> None:
    """Give up tasks that are not done, and all that depend on them.

    Running functions go on in their threads, and their results are dropped, unless `running`.

    Args:
        futures: one, or containers of them, nested or not, other iterables, or collections
            of dask that were persisted.
        asynchronous: return an awaitable; None = if the client is asynchronous.
        force: even if other clients want their results.
        reason: the text of the errors that waiting callers get.
        msg: added to `reason`.
        running: interrupt those that run: see docs/ending.md.

    Raises:
        ForeignFuture: a future belongs to another client; nothing was cancelled.

    Example:
        >>> waiting = client.map(weft.Event("never").wait, [100, 200])
        >>> client.cancel(waiting, running=True)
        >>> [future.status for future in waiting]
        ['cancelled', 'cancelled']
    """
    engine = client._running()
    why, running = cancel_reason(reason, msg), checked_running(running)
    engine.post(Cancel(states_in(futures, "cancel", engine), force, why, running))
    return settled(engine, asynchronous)
