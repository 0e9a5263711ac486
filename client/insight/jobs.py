"""Detached jobs: what the journal of the scheduler has recorded of them, for any client."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgpack

from ...protocol.array_rows import row_of_key
from ...protocol.durations import Duration, moment_of, seconds_of, seconds_or_none
from ...protocol.errors import DataLost, InvalidDuration, TaskCancelled
from ...protocol.values.serialize import loads
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import Key, key_of, text_of
from ...protocol.wire.messages import Answer
from ...protocol.wire.options import ENDS
from ..core.events import Cancel
from ..core.features.questions import AskScheduler
from ..modes import on_loop
from ..results.failures import exception_from
from ..shell.both_ways import wait, waiter_here
from ..shell.current import future_of
from ..shell.engine import Engine
from .asking import TIMEOUT_S, ask, checked, pages_of

#: The states of a job: those in which it ends, and one before.
STATES: Final = ("pending", *ENDS[:-1])


@dataclass(frozen=True)
class Job:
    """A detached job, as the journal has it.

    Attributes:
        key: of its task; `Future(key, client)` is a future of it while `state` is "pending".
        name: of its function.
        state: "pending", "done", "failed", "cancelled" or "lost".
        client: the name of the client that submitted it.
        submitted: when it was recorded.
        ended: when its end was recorded; None = it has not ended.
        nbytes: the size of its result, in bytes.
        is_recorded: its result or failure is in the journal, not only with workers.
        cron: the times of a recurring job that has not ended; "" of all others.
        next_time: of its next run, in local time; None = it has none.
        user: the user in the token of that client; "" = it had none.
        queue: the name that it was given by `queue=`; "" = none.
        rows: of an array, how many of its rows have which state: `{state: number}`; else {}.
        array: of a row of an array, the key of that; "" of all others.
    """

    key: Key
    name: str
    state: str
    client: str
    submitted: datetime
    ended: datetime | None
    nbytes: int
    is_recorded: bool
    cron: str = ""
    next_time: datetime | None = None
    user: str = ""
    queue: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    array: str = ""


@on_loop
async def jobs(
    engine: Engine,
    state: str | None = None,
    name: str | re.Pattern[str] | None = None,
    client: str | None = None,
    limit: int = 1000,
    *,
    since: datetime | Duration | None = None,
    until: datetime | Duration | None = None,
    recurring: bool = False,
    user: str | None = None,
) -> list[Job]:
    """Return detached jobs of the cluster, the latest first, of whichever client.

    Args:
        state: only those in this state: pending, done, failed, cancelled or lost.
        name: only those of the function of this name; or, with a compiled regular expression,
            those in whose name or key it is found.
        client: only those that the client of this name has submitted.
        limit: the most jobs.
        since: only those that were submitted then or later: a datetime, a text such as
            "2030-12-24 18:00", or so long ago, like "2 h".
        until: only those that were submitted before.
        recurring: only recurring jobs that have not ended; without their runs, which are jobs, too.
            They are picked here, out of all jobs that have not ended.
        user: only those of the user of this name: its clients, and its tasks, have submitted them.

    Raises:
        ValueError: there is no such state, or a time is none.
        QuestionFailed: the scheduler has no journal, or cannot read it.
    """
    if state is not None and state not in STATES:
        raise ValueError(f"state= is one of {', '.join(STATES)}, not {state!r}")
    if recurring and state not in (None, "pending"):
        raise ValueError(f"a recurring job that has not ended is pending, and not {state}")
    pattern = name if isinstance(name, re.Pattern) else None
    wanted = {
        "state": "pending" if recurring else state,
        "name": None if pattern else name,
        "client": client,
        "user": user,
        "since": None if since is None else _past(since, "since"),
        "until": None if until is None else _past(until, "until"),
    }
    arguments = {key: value for key, value in wanted.items() if value is not None}
    found: list[Job] = []
    async for page in ask(engine, "jobs", arguments):
        # Here, since a pattern may take for ever, and the journal is everybody's.
        found += [
            job
            for job in _jobs_in(page)
            if (pattern is None or _matches(pattern, job))
            and (job.cron or not recurring)
            and user in (None, job.user)  # an earlier scheduler knows no users of jobs
        ]
        if len(found) >= limit:
            break
    return found[:limit]


@on_loop
async def job_counts(engine: Engine) -> dict[str, dict[str, int]]:
    """Return how many detached jobs there are: `{name: {state: number}}`, the latest name first.

    Raises:
        QuestionFailed: the scheduler has no journal, or cannot read it.
    """
    counts: dict[str, dict[str, int]] = {}
    for page in await pages_of(engine, "job_counts", {}, None):
        with reading("the scheduler"):
            for name, state, n in part_of(page, "counts", list):
                counts.setdefault(name, {})[state] = n
    return counts


@on_loop
async def job(engine: Engine, key: Key) -> Job:
    """Return what is recorded of a detached job.

    Raises:
        KeyError: the journal has no job of this key.
        QuestionFailed: the scheduler has no journal, or cannot read it.
    """
    found, _ = await ask_job(engine, key)
    return found


@on_loop
async def job_result(engine: Engine, key: Key, timeout: Duration | None = None) -> Any:
    """Return the result of a detached job, or raise its exception; wait for it if need be.

    Args:
        key: of its task.
        timeout: time to wait, in seconds or as "30s", ...; None = for ever.

    Raises:
        KeyError: the journal has no job of this key.
        TimeoutError: the job has not ended in time; it goes on.
        DataLost: it is a row of an array, and its result was too large to be recorded, or is one of
            the oldest.
    """
    timeout_s = seconds_or_none(timeout, "timeout")
    found, answer = await ask_job(engine, key)
    if found.array:
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while found.state == "pending":  # it may have been asked to run again
            found, answer = await _ended_row(engine, found, deadline_s)
        if not found.is_recorded:
            raise _unkept(found)
    elif not found.is_recorded:
        try:
            return await future_of(engine, text_of(key))._result_async(timeout_s)
        except DataLost:  # of the job itself, or it has ended since it was asked for
            found, answer = await ask_job(engine, key)
            if not found.is_recorded:
                raise
    result, failure = answer.blobs
    if result is not None:
        return loads(result)
    raise exception_from(read_failure(failure), text_of(key))


async def _ended_row(engine: Engine, row: Job, deadline_s: float) -> tuple[Job, Answer]:
    """Wait for the end of a row of an array; return what is recorded of it then."""
    waiter = waiter_here()
    arguments = {"key": row.array, "rows": _names([row])}
    question = AskScheduler(waiter, "row_ended", arguments, "", "")
    is_bounded = deadline_s < math.inf
    timeout_s = max(deadline_s - time.monotonic(), 0.0) if is_bounded else None
    is_done = await wait(engine, waiter, question, timeout_s)
    if not is_done and not engine.is_closed:
        raise TimeoutError(f"{row.key} has not ended in time; it goes on")
    checked(engine, question, is_done, timeout_s)
    return await ask_job(engine, row.key)


def _unkept(row: Job) -> Exception:
    key = str(row.key)
    if row.state == "cancelled":
        return TaskCancelled(key)
    if row.state in ("done", "lost") and row.nbytes:
        return DataLost(key, "a row of an array has recorded results of at most 1 MiB: use files")
    return DataLost(key, f"it is {row.state}, and no more is kept of it")


def _names(rows: list[Job]) -> list[str]:
    return [row_of_key(text_of(row.key))[1] for row in rows]


@on_loop
async def cancel_job(engine: Engine, key: Key, reason: str = "") -> None:
    """Cancel a detached job that has not ended, also while it runs.

    Raises:
        KeyError: the journal has no job of this key.
    """
    found, _ = await ask_job(engine, key)
    if found.array:
        arguments = {"key": found.array, "rows": _names([found]), "reason": reason}
        await pages_of(engine, "cancel_rows", arguments, None)
    elif found.state == "pending":
        state = future_of(engine, text_of(key))._state
        engine.post(Cancel([state], force=True, reason=reason, running=True))
        await pages_of(engine, "recorded", {}, None)


@on_loop
async def retry_job(engine: Engine, key: Key) -> None:
    """Run a detached job again that has failed, with those that it reads and that have failed, too.

    It runs as it was submitted, but at once: without its conditions, start, `ttl` and deadline. Of
    an array all rows run again that have not succeeded, or the row that is named.

    Raises:
        KeyError: the journal has no job of this key.
        QuestionFailed: it has not ended, or is done.
    """
    found, _ = await ask_job(engine, key)
    if found.array:
        arguments: dict[str, Any] = {"key": found.array, "rows": _names([found])}
        await pages_of(engine, "retry_rows", arguments, None)
    else:
        name = "retry_rows" if found.rows else "retry_job"
        await pages_of(engine, name, {"key": text_of(key)}, None)


@on_loop
async def forget_job(engine: Engine, key: Key) -> None:
    """Forget a detached job that has ended: what is recorded of it, and its result.

    Raises:
        QuestionFailed: it has not ended, or a job reads its result that has not.
    """
    await pages_of(engine, "forget_jobs", {"keys": [text_of(key)]}, None)


async def ask_job(engine: Engine, key: Key) -> tuple[Job, Answer]:
    waiter = waiter_here()
    question = AskScheduler(waiter, "job", {"key": text_of(key)}, "", "")
    is_done = await wait(engine, waiter, question, TIMEOUT_S)
    answer = checked(engine, question, is_done, TIMEOUT_S)
    found = _jobs_in(answer.info)
    if not found:
        raise KeyError(f"the journal of the scheduler has no job {key!r}")
    return found[0], answer


def read_failure(packed: Any) -> list[Any]:
    """Read the failure of a job."""
    with reading("the scheduler"):
        failure = msgpack.unpackb(packed)
        if not isinstance(failure, list) or len(failure) < 2:
            raise TypeError("a failure is a list")
    return failure


def _past(value: Any, name: str) -> float:
    """Return a point in time; a duration is that long ago."""
    try:
        return moment_of(value, name)
    except (TypeError, ValueError):
        pass
    try:
        return time.time() - seconds_of(value, name)
    except InvalidDuration:
        text = "give a point in time ('2030-12-24 18:00'), or how long ago it was ('30s', '2h')"
        raise InvalidDuration(f"{value!r:.80} is not a time; {text}", name) from None


def _matches(pattern: re.Pattern[str], job: Job) -> bool:
    return any(map(pattern.search, (job.name, str(job.key))))


def _jobs_in(page: dict[str, Any]) -> list[Job]:
    with reading("the scheduler"):
        return [read_job(one) for one in part_of(page, "jobs", list)]


def read_job(one: dict[str, Any]) -> Job:
    """Return a job as the scheduler describes it."""
    ended, next_time = one["ended"], one.get("next")
    return Job(
        key=key_of(one["key"]),
        name=one["name"],
        state=one["state"],
        client=one["client"],
        submitted=datetime.fromtimestamp(one["submitted"]),
        ended=None if ended is None else datetime.fromtimestamp(ended),
        nbytes=one["nbytes"],
        is_recorded=one["is_recorded"],
        user=one.get("user", ""),
        queue=one.get("queue", ""),
        cron=one.get("cron", ""),
        next_time=None if next_time is None else datetime.fromtimestamp(next_time),
        rows=one.get("rows", {}),
        array=one.get("array", ""),
    )
