"""Detached calls: the scheduler has recorded them when `submit` or `map` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import JobNotRecorded, QuestionFailed
from ...protocol.wire.answers import reading
from ..insight.asking import N_KEYS, pages_of
from ..modes import on_loop
from ..results.failures import exception_of

if TYPE_CHECKING:
    from ..client import Client
    from ..future import Future
    from ..shell.engine import Engine


@on_loop
async def wait_recorded(engine: Engine, futures: Iterable[Future[Any, Any]] = ()) -> None:
    """Wait until the scheduler has recorded all detached calls of this client.

    `submit` and `map` of a blocking client do so themselves; an asynchronous one awaits this. A
    call that could not be recorded has failed with `JobNotRecorded`, unless it had ended before
    that was known.

    Args:
        futures: of detached calls, of which it is checked whether they are recorded, also if they
            have ended.

    Raises:
        JobNotRecorded: one of `futures` was not recorded.
    """
    futures = [*futures]
    keys = [future._state.key for future in futures]
    unrecorded: dict[str, str] = {}
    for first in range(0, len(keys) or 1, N_KEYS):
        part = keys[first : first + N_KEYS]
        try:
            for page in await pages_of(engine, "recorded", {"keys": part} if part else {}, None):
                with reading("the scheduler"):
                    unrecorded |= page.get("unrecorded", {})  # earlier versions do not say
        except QuestionFailed as error:  # also `NoAnswer`, which is a TimeoutError
            if not part:
                raise
            text = f"the scheduler does not say whether it is recorded ({error})"
            raise JobNotRecorded(part[0], text) from error
    for future in futures:
        if future._state.status == "error":
            failure = exception_of(future._state)
            if isinstance(failure, JobNotRecorded):
                raise failure
        if future._state.key in unrecorded:
            raise JobNotRecorded(future._state.key, str(unrecorded[future._state.key]))


def accepted(
    client: Client[Any], futures: list[Future[Any, Any]], conditions: Mapping[str, Any]
) -> list[Future[Any, Any]]:
    """Return futures, of detached calls when these are recorded, if the client blocks.

    Raises:
        JobNotRecorded: one was not.
    """
    if conditions["detached"] and not client.asynchronous and futures:
        client.wait_recorded(futures)
    return futures
