"""Detached calls: the scheduler has recorded them when `submit` or `map` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import JobNotRecorded
from ..insight.asking import pages_of
from ..modes import on_loop
from ..results.failures import exception_of

if TYPE_CHECKING:
    from ..client import Client
    from ..future import Future
    from ..shell.engine import Engine


@on_loop
async def wait_recorded(engine: Engine) -> None:
    """Wait until the scheduler has recorded all detached calls of this client.

    `submit` and `map` of a blocking client do so themselves; an asynchronous one awaits this. What
    could not be recorded has failed with `JobNotRecorded`.
    """
    await pages_of(engine, "recorded", {}, None)


def accepted(
    client: Client[Any], futures: list[Future[Any, Any]], conditions: Mapping[str, Any]
) -> list[Future[Any, Any]]:
    """Return futures, of detached calls when these are recorded, if the client blocks.

    Raises:
        JobNotRecorded: one was not.
    """
    if conditions["detached"] and not client.asynchronous and futures:
        client.wait_recorded()
        for future in futures:
            if future._state.status == "error":
                error = exception_of(future._state)
                if isinstance(error, JobNotRecorded):
                    raise error
    return futures
