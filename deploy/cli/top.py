"""`weft top`: the cluster as it changes, on the whole terminal."""

from __future__ import annotations

import os
import sys

import click

from ...protocol.errors import ConfigError
from ...protocol.wording import how_to_install
from .group import Chosen, scheduler_options, weft
from .options import Count, time_option


@weft.command(short_help="Watch a cluster in the terminal.")
@scheduler_options
@time_option("--interval", "500ms", "Time between two looks.", 0.5)
@click.option(
    "--plain",
    is_flag=True,
    help="Print lines one below the other, without colours and keys, until Ctrl-C. Where the "
    "output is not a terminal, they are printed once unless this or -n is given.",
)
@click.option("-n", "n", type=Count(1), help="With plain lines: end after so many looks.")
def top(chosen: Chosen, interval: float, plain: bool, n: int | None) -> None:
    """Watch a cluster: its health, workers, functions and failures, with rates and times left.

    Keys: tab for the next table, s for another order, / for a filter, e to explain a task, r to
    retire the chosen worker (which takes a token of role client), h for help, q to quit. With
    NO_COLOR set there are no colours.

    It needs the package rich: pip install 'weft[cli]'. A scheduler of 1 000 workers spends less
    than 1 % of a core on it; the list of workers is then read within some seconds, in parts.

    \b
    Examples:
      weft top
      weft top tls://node1:8786 --connection-file view.json
      weft top --plain -n 3 --interval 10s
    """
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if plain or not is_terminal:
        from .status_watch import print_repeatedly

        if n is None and not plain and not sys.stdout.isatty():
            n = 1  # `weft top | grep ...` ends; --plain goes on
        chosen.find()  # without a scheduler there is one error, not one in each look
        print_repeatedly(chosen.find, max(interval, 0.5), False, n, is_screen=False)
        return
    if n is not None:
        raise click.UsageError("-n is for plain lines; give --plain as well")
    try:
        import rich  # noqa: F401
    except ImportError:
        raise ConfigError(
            "weft top needs the package rich; use 'weft top --plain' or 'weft status --watch', or "
            + how_to_install("cli")
        ) from None
    import asyncio

    from rich.console import Console

    from ..top.app import TopApp

    try:
        asyncio.run(TopApp(chosen.find, interval, Console()).run())
    except KeyboardInterrupt:
        return
