"""`weft profile`: samples for a while which calls take the time of tasks."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .group import Chosen, fail, scheduler_options, weft
from .hints import CommandWithCodes
from .options import FilePath, Time
from .timeline import end_by_signals

if TYPE_CHECKING:
    from ...client.display.profile import Profile

#: How often it looks whether it should end, and draws how far it is, seconds.
_LOOK_S: Final = 0.1


@weft.command(cls=CommandWithCodes, short_help="Sample which calls take the time of tasks.")
@scheduler_options
@click.option(
    "--seconds", type=Time(), metavar="TIME", default=5.0, help="How long.  [default: 5 s]"
)
@click.option("--function", metavar="NAME", help="Only tasks of this function.  [default: all]")
@click.option(
    "--worker",
    "workers",
    metavar="NAME",
    multiple=True,
    help="Only this worker: its name, host or address; may be repeated.",
)
@click.option(
    "--output",
    type=FilePath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a flame graph, FILE.html, or a file for https://www.speedscope.app, FILE.json.",
)
def profile(
    chosen: Chosen,
    seconds: float,
    function: str | None,
    workers: tuple[str, ...],
    output: Path | None,
) -> None:
    """Sample for a while which calls take the time of the tasks that run, on all workers.

    The functions with most samples are printed: the share in which each of them was the innermost
    call, and in which it was called at all. Workers sample each 20 ms, and only meanwhile. Ctrl-C
    ends it, and what there is by then is printed. It takes a connection file of the role client.

    \b
    Examples:
      weft profile
      weft profile --seconds 30 --function train --output profile.html
    """
    from ...protocol.errors import ConfigError

    if output is not None:
        if output.suffix not in (".html", ".json"):
            raise ConfigError(f"{output} ends neither with .html nor with .json", "--output")
        if not output.parent.is_dir():
            raise ConfigError(f"the folder {output.parent} does not exist", "--output")
    found = _sampled(chosen, seconds, function, workers)
    click.echo(str(found))
    if output is None:
        return
    try:
        found.save(output)
    except OSError as error:
        fail(f"weft profile: {output} cannot be written: {error.strerror or error}", 1)
    click.echo(f"written: {output}", err=True)


def _sampled(
    chosen: Chosen, seconds: float, function: str | None, workers: tuple[str, ...]
) -> Profile:
    """Return what the workers have sampled, in this time or until a signal came."""
    from ...client.client import Client
    from ...client.insight.profiling import READ_S, StackReading, read_stacks
    from ...protocol.wire.levels import Level

    at = chosen.demand(Level.CLIENT, "weft profile")
    reader = StackReading(workers or None)
    security = at.to_security()
    with Client(
        at.addresses[0], security=security, name="weft profile", set_as_default=False
    ) as client:
        stops = end_by_signals()
        read_stacks(client, reader)
        begin = read = time.monotonic()
        while not stops and (left_s := begin + seconds - time.monotonic()) > 0:
            _draw(time.monotonic() - begin, seconds, reader.n_samples)
            time.sleep(min(left_s, _LOOK_S))
            if time.monotonic() - read > READ_S:
                read_stacks(client, reader)
                read = time.monotonic()
        _draw(None, seconds, 0)
        read_stacks(client, reader)
    return reader.result(function)


def _draw(elapsed_s: float | None, seconds: float, n_samples: int) -> None:
    """Draw how far it is, where somebody sees it; None = take that away."""
    from ...protocol.wording import grouped, lasting

    if not sys.stderr.isatty():
        return
    line = ""
    if elapsed_s is not None:
        line = f"{lasting(elapsed_s)} of {lasting(seconds)}, {grouped(n_samples)} samples; "
        line += "Ctrl-C shows what there is"
    click.echo(f"\r{line}\033[K", err=True, nl=False)
