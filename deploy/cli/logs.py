"""`weft logs`: its options, and what it prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .completing import complete_workers
from .group import Chosen, scheduler_options, weft
from .options import latest_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .log_rows import Row


@weft.command(short_help="Show the latest log lines of the scheduler and the workers.")
@scheduler_options
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_workers,
    help="Only of this worker, named by name, address or host; may be repeated.",
)
@latest_option("Number of lines, of all processes together.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option(
    "--level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    help="Only lines of this level and above. Default: all that the processes log, from their own "
    "--log-level on.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a list of records, for programs; with --follow one record per line.",
)
def logs(
    chosen: Chosen,
    workers: tuple[str, ...],
    n: int,
    follows: bool,
    level: str | None,
    as_json: bool,
) -> None:
    """Show the latest log lines of the scheduler and the workers, merged by time.

    Each process keeps about 1 MiB: what weft and the tasks log, from its --log-level on. Processes
    that do not answer are named on standard error; the exit code is 1 then. It takes a connection
    file of the role client.

    With --follow it waits for a scheduler that is started again, and goes on where it was. At most
    50 processes are asked per second, in turns, so lines of a thousand workers come after 20 s.

    \b
    Examples:
      weft logs -n 20
      weft logs -f --level warning
      weft logs -f --worker gpu-07
    """
    import json

    from .log_rows import as_plain, ask_logs, show

    least = (level or "").upper()

    def note(text: str) -> None:
        click.echo(f"weft logs: {text}", err=True)

    if follows:
        from .following import Follower, follow

        def print_rows(rows: Iterable[Row]) -> None:
            lines = [json.dumps(as_plain(row)) if as_json else show(row) for row in rows]
            click.echo("\n".join(lines))
            sys.stdout.flush()

        follow(Follower(chosen.find, workers, least, n, print_rows, note))
        return
    (rows, errors), _ = chosen.ask(lambda viewer: ask_logs(viewer, workers, n, least))
    if as_json:
        click.echo(json.dumps([as_plain(row) for row in rows], indent=2))
    else:
        for row in rows:
            click.echo(show(row))
    for error in errors:
        note(str(error))
    if errors:
        sys.exit(1)
