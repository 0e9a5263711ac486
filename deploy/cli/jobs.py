"""Commands for detached jobs: `weft queue`, `wait`, `output`, `cancel`, `retry` and `forget`."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from .group import Chosen, scheduler_options, weft
from .hints import CommandWithCodes
from .options import Count, Time

if TYPE_CHECKING:
    from datetime import datetime

    from ...client.client import Client
    from ...client.insight.jobs import Job
    from ...protocol.values.printed import CallOutput

EXIT_TIMEOUT: Final = 124
#: More jobs than a journal keeps.
_ALL: Final = 1 << 40
_STATES: Final = ("pending", "done", "failed", "cancelled", "lost")
#: What those that are pending do: the journal does not know, the scheduler does.
_PENDING: Final = ("waiting", "running")
_ENDED: Final = {"failed": "has failed", "cancelled": "was cancelled", "lost": "was lost"}
_HEADER: Final = (
    "KEY", "STATE", "NAME", "CLIENT", "USER", "QUEUE", "SUBMITTED", "TOOK", "SIZE", "ROWS", "NEXT"
)  # fmt: skip
#: Columns that are there only if a job has them.
_RARE: Final = ("USER", "QUEUE", "ROWS", "NEXT")
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def connected(chosen: Chosen, command: str) -> Client[Any]:
    """Return a client for a command that asks about jobs."""
    from ...client.client import Client
    from ...protocol.wire.levels import Level

    found = chosen.demand(Level.CLIENT, command)
    return Client(
        found.addresses[0], security=found.to_security(), name=command, set_as_default=False
    )


# -- weft queue ------------------------------------------------------------------------------------
@weft.command(short_help="List detached jobs, the latest first.")
@click.option(
    "--state",
    type=click.Choice((*_STATES, *_PENDING)),
    help="Only those in this state; pending ones are waiting or running.",
)
@click.option("--name", metavar="NAME", help="Only those of the function of this name.")
@click.option("--client", "of_client", metavar="NAME", help="Only those of this client.")
@click.option("--user", metavar="NAME", help="Only those of this user, as in its token.")
@click.option("--match", metavar="REGEX", help="Only those in whose name or key it is found.")
@click.option("--since", metavar="TIME", help="Only those submitted then or later; or '2 h' ago.")
@click.option("--until", metavar="TIME", help="Only those submitted before.")
@click.option("--recurring", is_flag=True, help="Only recurring ones that go on: no runs of them.")
@click.option("--limit", type=Count(1), default=50, show_default=True, help="At most so many.")
@click.option("--summary", is_flag=True, help="Count all jobs by name and state instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each job.")
@scheduler_options
def queue(
    state: str | None,
    name: str | None,
    of_client: str | None,
    user: str | None,
    match: str | None,
    since: str | None,
    until: str | None,
    recurring: bool,
    limit: int,
    summary: bool,
    as_json: bool,
    chosen: Chosen,
) -> None:
    """List the detached jobs that the journal of the scheduler has, the latest first.

    A job that is pending waits or runs: --state waiting and --state running tell these apart, and
    'weft explain KEY' says why it waits. One that a worker was given counts as running.

    A job in a queue is shown with the queue's name, and whether that is paused; see 'weft
    pause'. A recurring job is shown with the time of its next run. Each run is a job of its
    own, whose key begins with that of the recurring one and "@".

    \b
    Examples:
      weft queue
      weft queue --state failed --limit 10
      weft queue --state running
      weft queue --match 'train|test' --since '2030-12-24 18:00'
      weft queue --user ann --state pending
      weft queue --summary
      weft queue --recurring
      weft queue --state pending --json | jq -r .key
    """
    import json

    from ...protocol.errors import InvalidDuration

    is_filtered = state or name or of_client or user or match or since or until or recurring
    if summary and is_filtered:
        raise click.UsageError("--summary counts all jobs: leave the other options out")
    if name and match:
        raise click.UsageError("give --name or --match, not both")
    pattern = _pattern(match)
    with connected(chosen, "weft queue") as client:
        if summary:
            counts = client.job_counts()
            click.echo(json.dumps(counts) if as_json else counted(counts))
            return
        try:
            found = client.jobs(
                state=_STATES[0] if state in _PENDING else state,
                name=pattern or name,
                client=of_client,
                limit=_ALL if state in _PENDING else limit + 1,
                since=since,
                until=until,
                recurring=recurring,
                user=user,
            )
        except InvalidDuration as error:
            raise click.UsageError(f"--{error}") from None
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if state in _PENDING:
            found = _told_apart(client, found, state)
        is_cut, found = len(found) > limit, found[:limit]
        paused = {} if as_json else client.paused_queues()
        n_all = _number(client.job_counts()) if is_cut and not (is_filtered or as_json) else 0
    if as_json:
        for job in found:
            click.echo(json.dumps(plain(job)))
    elif found:
        click.echo(table(found, paused))
    else:
        click.echo("no such jobs" if is_filtered else "no jobs", err=True)
    if is_cut:
        which = f"{limit} of {n_all}" if n_all else f"the latest {limit}"
        click.echo(f"{which} jobs; --limit N shows more", err=True)
    if not is_filtered and (others := sorted(set(paused) - {job.queue for job in found})):
        click.echo(f"paused, and none of these jobs is in it: {', '.join(others)}", err=True)


def _told_apart(client: Client[Any], pending: list[Job], state: str) -> list[Job]:
    """Return those pending jobs that wait, or run; an array runs while one of its rows does."""
    from ...protocol.array_rows import row_of_key
    from ...protocol.wire.keys import text_of

    given = {text_of(key) for keys in client.processing().values() for key in keys}
    given |= {row_of_key(key)[0] for key in given}
    found = [job for job in pending if (text_of(job.key) in given) is (state == _PENDING[1])]
    return [replace(job, state=state) for job in found]


def _number(counts: dict[str, dict[str, int]]) -> int:
    """Return how many jobs there are."""
    return sum(sum(of_name.values()) for of_name in counts.values())


def _pattern(match: str | None) -> re.Pattern[str] | None:
    """Return the expression of `--match`."""
    try:
        return re.compile(match) if match else None
    except re.error as error:
        raise click.UsageError(f"--match {match}: {error}") from None


def plain(job: Job) -> dict[str, Any]:
    """Return a job for programs."""
    return {
        "key": job.key if isinstance(job.key, str) else list(job.key),
        "state": job.state,
        "name": job.name,
        "client": job.client,
        "user": job.user,
        "queue": job.queue,
        "submitted": job.submitted.isoformat(),
        "ended": None if job.ended is None else job.ended.isoformat(),
        "nbytes": job.nbytes,
        "is_recorded": job.is_recorded,
        "cron": job.cron,
        "next": None if job.next_time is None else job.next_time.isoformat(),
        "rows": job.rows,
    }


def table(jobs: list[Job], paused: Container[str] = ()) -> str:
    """Return the table that users read; some columns are there only if a job has them.

    `paused` are the queues that are.
    """
    rows = [_HEADER, *(_row(job, paused) for job in jobs)]
    places = [
        place
        for place, name in enumerate(_HEADER)
        if name not in _RARE or any(row[place] for row in rows[1:])
    ]
    return _in_columns([tuple(row[place] for place in places) for row in rows])


def counted(counts: dict[str, dict[str, int]]) -> str:
    """Return the table of numbers of jobs, a line for each name."""
    header = ("NAME", *map(str.upper, _STATES))
    rows = [(name, *(str(of.get(state, 0)) for state in _STATES)) for name, of in counts.items()]
    return _in_columns([header, *rows])


def _in_columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(job: Job, paused: Container[str]) -> tuple[str, ...]:
    from ...protocol.wording import lasting, sized

    took = "" if job.ended is None else lasting(_seconds(job.submitted, job.ended))
    size = sized(job.nbytes) if job.nbytes else ""
    submitted = job.submitted.strftime(_TIME)
    of_client = job.client, job.user, f"{job.queue}{' (paused)' * (job.queue in paused)}"
    rare = rows_text(job), _next(job)
    return (str(job.key), job.state, job.name, *of_client, submitted, took, size, *rare)


def rows_text(job: Job) -> str:
    """Return how far an array is."""
    if not job.rows:
        return ""
    n = sum(job.rows.values())
    bad = ", ".join(f"{job.rows[s]} {s}" for s in _STATES[2:] if job.rows.get(s))
    return f"{n - job.rows['pending']} of {n} ended{f' ({bad})' if bad else ''}"


def _next(job: Job) -> str:
    if job.next_time is not None:
        return f"{job.next_time.strftime(_TIME)}  ({job.cron})"
    return "none" if job.cron else ""


def _seconds(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds(), 0.0)


# -- weft wait -------------------------------------------------------------------------------------
@weft.command(cls=CommandWithCodes, short_help="Wait until detached jobs have ended.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--timeout", type=Time(min=0), metavar="TIME", help="Wait no longer than this.")
@scheduler_options
def wait(keys: tuple[str, ...], timeout: float | None, chosen: Chosen) -> None:
    """Wait until detached jobs have ended; name those that have failed.

    Ctrl-C ends the wait, and the jobs go on. A recurring job ends when it is cancelled, or has no
    later time: wait for its runs, whose keys are KEY@TIME.

    \b
    Examples:
      weft wait command-0a1b2c3d-0 command-0a1b2c3d-1
      weft wait --timeout 10min command-0a1b2c3d-0
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    n_failed = 0
    with connected(chosen, "weft wait") as client:
        for n, key in enumerate(keys):
            if len(keys) > 1 and sys.stderr.isatty():
                click.echo(f"\r{n} of {len(keys)} ended\033[K", err=True, nl=False)
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            error = _error_of(partial(client.job_result, key, left_s))
            if type(error) is TimeoutError:
                _say("wait", f"{key} has not ended within {timeout:g} s; it goes on")
                sys.exit(EXIT_TIMEOUT)
            if error is not None:
                n_failed += 1
                _say("wait", f"{key}: {_described(error)}")
    if n_failed:
        sys.exit(1)


def _error_of(call: Callable[[], object]) -> BaseException | None:
    """Return why a job has no result; errors that are not of the job are raised."""
    from ...protocol.errors import CommError, QuestionFailed

    try:
        call()
    except KeyboardInterrupt:
        click.echo("\r\033[K" if sys.stderr.isatty() else "", err=True, nl=False)
        _say("wait", "the jobs go on")
        raise
    except (CommError, QuestionFailed):
        raise
    except KeyError as error:
        raise unknown_job(error) from None
    except Exception as error:
        return error
    return None


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


# -- weft output -----------------------------------------------------------------------------------
@weft.command(cls=CommandWithCodes, short_help="Print what a detached job has printed.")
@click.argument("key")
@scheduler_options
def output(key: str, chosen: Chosen) -> None:
    """Print what the command of a detached job has printed, and end with its exit code.

    Of a job that was submitted with output="keep" it is what its function has printed, the last 64
    KiB; of any other job that is no command its result is printed. A job that has not ended is
    waited for. Of an array the key of a row is given: KEY/NUMBER.

    \b
    Examples:
      weft output command-0a1b2c3d-0
      weft output command-0a1b2c3d-1/17
    """
    from ...protocol.errors import QuestionFailed
    from ...protocol.errors.commands import CommandFailed, CommandResult

    with connected(chosen, "weft output") as client:
        try:
            job = client.job(key)
        except KeyError as unknown:
            raise unknown_job(unknown) from None
        if job.rows:
            raise click.ClickException(
                f"{key} is an array, and its rows have printed: weft output {key}/NUMBER "
                f"({rows_text(job)})"
            )
        if job.cron:
            raise click.ClickException(
                f"{key} is recurring, and its runs have printed; weft queue --match '{key}@' lists "
                "them"
            )
        results: list[Any] = []
        error = _error_of(lambda: results.append(client.job_result(key)))
        printed: list[CallOutput] = []
        with contextlib.suppress(KeyError, QuestionFailed):
            printed.append(client.job_output(key))
    result = error.result if isinstance(error, CommandFailed) else next(iter(results), None)
    if isinstance(result, CommandResult):
        sys.stdout.buffer.write(result.stdout_bytes)
        sys.stdout.flush()
        sys.stderr.buffer.write(result.stderr_bytes)
        sys.stderr.flush()
        sys.exit(result.returncode if 0 <= result.returncode < EXIT_TIMEOUT else 1)
    if printed:
        click.echo(printed[0].stdout, nl=False)
        click.echo(printed[0].stderr, nl=False, err=True)
    if error is not None:
        _say("output", _described(error))
        sys.exit(1)
    if not printed:
        click.echo(repr(result))


# -- weft cancel, weft retry, weft forget ----------------------------------------------------------
@weft.command(short_help="Cancel detached jobs, also those that run.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--reason", default="", metavar="TEXT", help="What those are told who wait for it.")
@scheduler_options
def cancel(keys: tuple[str, ...], reason: str, chosen: Chosen) -> None:
    """Cancel detached jobs that have not ended, also those that run.

    A recurring job ends, and so do its runs that are under way.

    \b
    Examples:
      weft cancel --reason 'wrong input' command-0a1b2c3d-0
    """
    with connected(chosen, "weft cancel") as client:
        for key in keys:
            try:
                client.cancel_job(key, reason or "by weft cancel")
            except KeyError as error:
                raise unknown_job(error) from None


@weft.command(short_help="Run detached jobs again that have failed.")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@click.option("--failed", is_flag=True, help="All that have failed, instead of KEYs.")
@click.option("--match", metavar="REGEX", help="With --failed: of these names or keys only.")
@scheduler_options
def retry(
    keys: tuple[str, ...],
    failed: bool,
    match: str | None,
    chosen: Chosen,
) -> None:
    """Run detached jobs again that have failed, were cancelled, or whose result is lost.

    They run as they were submitted, but at once. Jobs that they read and that have failed run
    again with them. The key of an array runs again all of its rows that have not succeeded,
    KEY/NUMBER one row. Their keys are printed.

    \b
    Examples:
      weft retry command-0a1b2c3d-0
      weft retry command-0a1b2c3d-1/17
      weft retry --failed
      weft retry --failed --match 'train|test'
    """
    from ...protocol.errors import QuestionFailed

    if bool(keys) == failed:
        raise click.UsageError("give KEYs, or --failed")
    if match and not failed:
        raise click.UsageError("--match goes with --failed")
    pattern = _pattern(match)
    with connected(chosen, "weft retry") as client:
        if failed:
            found = client.jobs(state="failed", name=pattern, limit=_ALL)
            keys = tuple(str(job.key) for job in reversed(found))
            if not keys:
                _say("retry", "no such jobs")
        for key in keys:
            try:
                client.retry_job(key)
            except KeyError as error:
                raise unknown_job(error) from None
            except QuestionFailed:
                # One that is read by a job before runs again with that.
                if not failed or client.job(key).state == "failed":
                    raise
            click.echo(key)


@weft.command(short_help="Forget detached jobs that have ended, and their results.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@scheduler_options
def forget(keys: tuple[str, ...], chosen: Chosen) -> None:
    """Forget detached jobs that have ended: their records, and their results.

    \b
    Examples:
      weft forget command-0a1b2c3d-0 command-0a1b2c3d-1
    """
    with connected(chosen, "weft forget") as client:
        for key in keys:
            try:
                client.job(key)
                client.forget_job(key)
            except KeyError as error:
                raise unknown_job(error) from None


def unknown_job(error: KeyError) -> click.ClickException:
    """Return the error of a command for a key that the journal does not have."""
    return click.ClickException(f"{error.args[0]}; weft queue lists those that it has")


def conditions_in(client: Client[Any], after: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the futures in texts like `done:KEY`, by state; those that are met are left out.

    Raises:
        click.ClickException: there is no such job, or it has ended in another way.
        click.UsageError: there is no such state.
    """
    from ...client.shell.current import future_of

    found: dict[str, list[Any]] = {}
    for text in after:
        state, colon, key = text.partition(":")
        if not colon or state not in (*_STATES[1:], "ended"):
            raise click.UsageError(
                f"--after takes STATE:KEY with a state of {', '.join(_STATES[1:])} or ended, not "
                f"{text!r}"
            )
        try:
            job = client.job(key)
        except KeyError as error:
            raise unknown_job(error) from None
        if job.state == "pending":
            found.setdefault(state, []).append(future_of(client._running(), key))
        elif state not in (job.state, "ended"):
            ended = _ENDED.get(job.state, f"is {job.state}")
            raise click.ClickException(f"--after {text}: that job {ended} already")
    return found


def check_times(times: Mapping[str, Any]) -> None:
    """Refuse what is no time.

    Raises:
        click.UsageError: one is none.
    """
    from ...client.calls.conditions import READERS

    for name, value in times.items():
        try:
            if value is not None:
                READERS[name](value)
        except ValueError as error:
            raise click.UsageError(f"--{name.replace('_', '-')}: {error}") from None


def recurrence_of(cron: str | None, *others: str | None) -> dict[str, str]:
    """Return the options of a recurring job that are given, in the order of `submit`.

    Raises:
        click.UsageError: one is wrong, or there is no `--cron`.
    """
    from ...client.calls.recurring import KEYWORDS, read_times
    from ...protocol.errors import InvalidSchedule

    given = zip(KEYWORDS, (cron, *others), strict=True)
    found = {name: value for name, value in given if value is not None}
    if found and cron is None:
        raise click.UsageError(f"--{next(iter(found))} belongs to --cron")
    try:
        if found:
            read_times(cron, *others)
    except InvalidSchedule as error:
        raise click.UsageError(f"--{error}") from None
    return found


def _say(command: str, text: str) -> None:
    click.echo(f"weft {command}: {text}", err=True)
