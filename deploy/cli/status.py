"""`weft status`: whether a cluster is well, on one page, with an exit code for scripts."""

from __future__ import annotations

import sys

import click

from .group import Chosen, scheduler_options, weft
from .options import time_option


@weft.command(short_help="Show whether a cluster is well, once or repeatedly.")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print the overview as JSON, for programs.")
@click.option(
    "-w", "--watch", is_flag=True, help="Print it again and again, until Ctrl-C; see --interval."
)
@time_option("--interval", "2s", "Time between two of them.", 0.5)
def status(chosen: Chosen, as_json: bool, watch: bool, interval: float) -> None:
    """Show whether a cluster is well: its health, workers, tasks, functions and failures.

    A token of role view is enough. With --watch, rates are shown as well, and a scheduler that ends
    is waited for.

    \b
    Examples:
      weft status
      weft status --watch --interval 5s
      weft status --json | jq .tasks.processing

    Exit codes: 0 = all is well, 1 = degraded: a line of its health is a warning or an error, 2 =
    wrong options or configuration, 69 = down: no scheduler was found, or it cannot be reached, 77 =
    the scheduler refuses the token. After --watch: 0.
    """
    from .status_watch import print_once, print_repeatedly

    if watch:
        print_repeatedly(chosen.find, interval, as_json)
    else:
        sys.exit(print_once(chosen.find, as_json))
