"""`weft submit`: its options, and how it prints the ends of its jobs."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from ...protocol.settings.kinds import Resources, Size
from ...protocol.wire.options import MISSED, OVERLAPS
from .group import Chosen, scheduler_options, weft
from .hints import CommandWithCodes
from .options import Count, Time

if TYPE_CHECKING:
    from ...client.client import Client
    from ...worker.commands.command import Command
    from .submitting import JobEnd, Jobs

#: Seconds between two drawings of the line that shows how far it is.
_DRAW_S = 0.2


@weft.command(
    cls=CommandWithCodes, short_help="Run a program on a cluster, once or for many items."
)
@click.argument("command", nargs=-1, metavar="COMMAND...", type=click.UNPROCESSED)
@click.option(
    "--array", metavar="RANGE", help="Run it for each number: 1-1000, or 0-90:10,95,99 and so on."
)
@click.option(
    "--each-line",
    metavar="FILE",
    type=click.Path(allow_dash=True, dir_okay=False),
    help="Run it for each line of a file; - is standard input.",
)
@click.option("--local", is_flag=True, help="Run it on this machine; no cluster is needed.")
@click.option("--retries", type=Count(0), default=0, metavar="N", help="Run one that fails again.")
@click.option("--timeout", type=Time(min=0), metavar="TIME", help="Time that a run may take.")
@click.option(
    "--priority", type=click.IntRange(-9999, 9999), default=0, help="Higher runs earlier."
)
@click.option(
    "--cwd", metavar="FOLDER", help="Folder to run in, which the workers have, instead of this one."
)
@click.option(
    "--scratch", is_flag=True, help="Run each in a new folder, which is removed after it."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set a variable; repeatable.")
@click.option(
    "--resources", metavar=Resources.metavar, help="What each takes of its worker, e.g. 'GPU=1'."
)
@click.option("--cores", type=float, metavar="N", help="Threads of its worker that each takes.")
@click.option("--memory", metavar=Size.metavar, help="What each takes of its worker's limit.")
@click.option(
    "--category",
    metavar="NAME",
    help="Give each as much memory and as many cores as others of this category have used.",
)
@click.option(
    "--category-mode",
    type=click.Choice(["max throughput", "min waste", "max", "fixed"]),
    help="How these are chosen; 'max throughput' without this.",
)
@click.option(
    "--category-memory", metavar=Size.metavar, help="The most that one of the category may use."
)
@click.option(
    "--max-output",
    metavar=Size.metavar,
    default="1MiB",
    show_default=True,
    help="How much is kept of what a run prints: the end of each stream.",
)
@click.option("--keep-order", is_flag=True, help="Print in the order of the items.")
@click.option("--tag", is_flag=True, help="Begin each printed line with its item and a tab.")
@click.option(
    "--detach",
    is_flag=True,
    help="Have the scheduler record it, print the keys of the jobs, and do not wait for them.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="STATE:KEY",
    help="Run it when that job is done, failed, cancelled, lost, or ended in any way; repeatable.",
)
@click.option("--queue", metavar="NAME", help="Do not begin it while 'weft pause NAME' holds.")
@click.option("--start-at", metavar="TIME", help="Run it no earlier, e.g. '2030-12-24 18:00'.")
@click.option("--start-after", type=Time(min=0), metavar="TIME", help="... than in so long.")
@click.option("--ttl", type=Time(min=0), metavar="TIME", help="Cancel it if it has not begun then.")
@click.option("--deadline", metavar="TIME", help="Cancel it if it has not ended by then.")
@click.option(
    "--cron",
    metavar="TIMES",
    help="With --detach: run it again and again at these times, e.g. '*/5 * * * *' or @daily.",
)
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron.  [default: UTC]")
@click.option("--until", metavar="TIME", help="With --cron: run it no later.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    help="With --cron: what is done when an earlier run is under way.  [default: skip]",
)
@click.option(
    "--missed",
    type=click.Choice(MISSED),
    help="With --cron: which runs are made of those that no scheduler was there for.  "
    "[default: one]",
)
@click.option("--fail-fast", is_flag=True, help="Cancel what is left when one has failed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each run.")
@scheduler_options
def submit(
    command: tuple[str, ...],
    array: str | None,
    each_line: str | None,
    local: bool,
    retries: int,
    timeout: float | None,
    priority: int,
    cwd: str | None,
    scratch: bool,
    env: tuple[str, ...],
    resources: str | None,
    cores: float | None,
    memory: str | None,
    category: str | None,
    category_mode: str | None,
    category_memory: str | None,
    max_output: str,
    keep_order: bool,
    tag: bool,
    detach: bool,
    after: tuple[str, ...],
    queue: str | None,
    start_at: str | None,
    start_after: float | None,
    ttl: float | None,
    deadline: str | None,
    cron: str | None,
    timezone: str | None,
    until: str | None,
    overlap: str | None,
    missed: str | None,
    fail_fast: bool,
    as_json: bool,
    chosen: Chosen,
) -> None:
    """Run a program on the workers of a cluster, print what it prints, and wait for its end.

    A single word with spaces is a line for the shell of the worker; several words are a program and
    its arguments. With --array or --each-line there is one run for each item, as many at a time as
    the workers have threads; {} stands for the item, also in --cwd and --env. It comes last if
    there is no {} in the command. What a run prints is printed when it has ended, as a whole.

    It runs in this folder, which the workers must have, or in the one of --cwd, with nothing as its
    standard input. Ctrl-C cancels all, also what runs. It takes a token of role client.

    With --detach the jobs go on without this command: 'weft queue', 'weft wait' and 'weft output'
    show what becomes of them. With --array they are one job: its key is printed, and that of a run
    is KEY/NUMBER. With --cron, too, the key is that of a recurring job, which goes on until 'weft
    cancel'; 'weft queue' shows its next time.

    \b
    Examples:
      weft submit -- hostname
      weft submit --detach --cron '30 2 * * *' --timezone Europe/Berlin -- ./refresh
      weft submit --array 1-100 --retries 2 -- ./simulate --seed {}
      weft submit --detach --array 1-1000000 -- ./simulate --seed {}
      weft submit --local --each-line files.txt -- "gzip -k {} && ls -l {}.gz"
    """
    import json

    from ...protocol.errors import CommClosed
    from .jobs import check_times, conditions_in, recurrence_of
    from .submitting import Jobs, command_of, items_of, keys_of_detached

    if not command:
        raise click.UsageError(
            "there is no command to run; for example 'weft submit -- hostname', or "
            "'weft submit --array 1-100 -- ./simulate --seed {}'"
        )
    items = items_of(array, each_line)
    program = command_of(
        command,
        has_items=items is not None,
        cwd=cwd,
        scratch=scratch,
        env=_variables(env),
        timeout=timeout,
        max_output=Size().read(max_output, "--max-output"),
    )
    options: dict[str, Any] = {
        "retries": retries,
        "priority": priority,
        "resources": Resources().read(resources, "--resources") or None,
        "cores": cores,
        "memory": None if memory is None else Size().read(memory, "--memory"),
        "queue": queue,
    }
    if category is not None:
        options["category"] = _category(category, category_mode, category_memory)
        if memory is not None:
            raise click.UsageError("--category chooses the memory: leave --memory out")
    elif category_mode or category_memory:
        raise click.UsageError("--category-mode and --category-memory need --category NAME")
    if queue == "":
        raise click.UsageError("--queue is a name, which is empty here")
    times = {"start_at": start_at, "start_after": start_after, "ttl": ttl, "deadline": deadline}
    options.update({name: value for name, value in times.items() if value is not None})
    check_times(times)
    if recurrence := recurrence_of(cron, timezone, until, overlap, missed):
        if not detach:
            raise click.UsageError("--cron needs --detach: the scheduler makes the runs")
        if items is not None or after or options.keys() & times.keys():
            raise click.UsageError(
                "--cron runs one command at its own times: leave --array, --each-line, --after and "
                "other times out"
            )
        options.update(recurrence)
    if local and detach:
        raise click.UsageError("--detach needs a scheduler that goes on: leave --local out")
    if local and (any(chosen) or options["resources"]):
        raise click.UsageError("--local starts workers here; leave scheduler and resources out")
    with _client(local, chosen) as client:
        if after:
            options["after"] = conditions_in(client, after)
        if detach:
            for key in keys_of_detached(client, program, items, array, options):
                click.echo(json.dumps({"key": key}) if as_json else key)
            return
        jobs = Jobs(client, program, items, options, keeps_order=keep_order)
        shown = _Shown(
            jobs,
            program,
            as_json=as_json,
            has_items=items is not None,
            tags=tag and items is not None,
        )
        stops = _end_by_signals(jobs)
        try:
            with contextlib.closing(jobs.run()) as ends:
                for end in ends:
                    shown.show(end)
                    if end.code and fail_fast:
                        jobs.cancel()
        except CommClosed:
            shown.finish("lost")
            raise
        shown.finish("cancelled")
    if stops:
        sys.exit(130)
    if jobs.n_failed:
        sys.exit(1 if items is not None else shown.last_code)


def _client(local: bool, chosen: Chosen) -> Client[Any]:
    from ...client.client import Client
    from ...protocol.trust.finding import NoSchedulerFound
    from ...protocol.wire.levels import Level

    if local:
        return Client(processes=False, set_as_default=False)
    try:
        found = chosen.demand(Level.CLIENT, "weft submit")
    except NoSchedulerFound as error:
        advice = f"{error.advice}; or run it on this machine alone: weft submit --local"
        raise NoSchedulerFound(error.what, advice, error.details, error.is_answered) from None
    return Client(
        found.addresses[0],
        security=found.to_security(),
        name="weft submit",
        set_as_default=False,
    )


def _end_by_signals(jobs: Jobs) -> list[int]:
    """Have Ctrl-C and other signals cancel all; return the list that will have their numbers.

    A second one ends this process at once. Those that are ignored, as after `nohup`, stay so.
    """
    came: list[int] = []

    def end(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        jobs.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    return came


def _category(name: str, mode: str | None, memory: str | None) -> Any:
    """Return a category, as it is given by options."""
    from ...client.calls.categories import Category

    most = None if memory is None else Size().read(memory, "--category-memory")
    try:
        return Category(name, max_memory=most) if mode is None else Category(name, mode, most)
    except ValueError as error:
        raise click.UsageError(f"--category: {error}") from None


def _variables(given: tuple[str, ...]) -> dict[str, str | None]:
    variables: dict[str, str | None] = {}
    for text in given:
        name, found, value = text.partition("=")
        if not name or not found:
            raise click.UsageError(f"--env takes NAME=VALUE, not {text!r}")
        variables[name] = value
    return variables


class _Shown:
    """Prints the ends of jobs, and how far they are."""

    def __init__(
        self, jobs: Jobs, command: Command, *, as_json: bool, has_items: bool, tags: bool
    ) -> None:
        self._jobs = jobs
        self._max_output = Size().show(command.max_output)
        self._as_json = as_json
        self._has_items = has_items
        self._tags = tags
        self._draws = has_items and sys.stderr.isatty()
        self._drawn_at = 0.0
        self._is_drawn = False
        #: exit code of the last run
        self.last_code = 0

    def show(self, end: JobEnd) -> None:
        """Print one end."""
        import json

        self._erase()
        self.last_code = end.code
        if self._as_json:
            click.echo(json.dumps(end.to_plain()))
        else:
            self._show_text(end)
        self._draw()

    def _show_text(self, end: JobEnd) -> None:
        result = end.result
        if result is not None:
            tag = f"{end.item}\t".encode("utf-8", "surrogateescape") if self._tags else b""
            _write(sys.stdout, result.stdout_bytes, tag)
            _write(sys.stderr, result.stderr_bytes, tag)
            if result.is_cut:
                what = f"it has printed more than is kept, which is the last {self._max_output}"
                click.echo(f"weft submit: {end.item or 'the run'}: {what}", err=True)
        if end.error:
            of = f" {end.item}:" if self._has_items else ""
            click.echo(f"weft submit:{of} {end.error}", err=True)

    def finish(self, left: str) -> None:
        """Print how many have failed, if there were items, and what became of those that are left.

        Args:
            left: the word for that.
        """
        self._erase()
        jobs = self._jobs
        if self._has_items and jobs.n_failed and not self._as_json:
            click.echo(f"weft submit: {jobs.n_failed} of {jobs.n_ended} failed", err=True)
        if jobs.n_left:
            click.echo(f"weft submit: {left} {jobs.n_left} of {jobs.n or jobs.n_begun}", err=True)

    def _draw(self) -> None:
        import time

        now = time.monotonic()
        if self._draws and now - self._drawn_at > _DRAW_S:
            jobs = self._jobs
            total = "" if jobs.n is None else f" of {jobs.n}"
            failed = f", {jobs.n_failed} failed" if jobs.n_failed else ""
            click.echo(f"\r{jobs.n_ended}{total} done{failed}\033[K", err=True, nl=False)
            self._drawn_at, self._is_drawn = now, True

    def _erase(self) -> None:
        if self._is_drawn:
            click.echo("\r\033[K", err=True, nl=False)
            self._is_drawn, self._drawn_at = False, 0.0


def _write(stream: TextIO, printed: bytes, tag: bytes) -> None:
    """Write what a run has printed, each line with its tag."""
    if printed and tag:
        lines = printed.removesuffix(b"\n").split(b"\n")
        printed = b"".join(tag + line + b"\n" for line in lines)
    if printed:
        stream.buffer.write(printed)
        stream.flush()
