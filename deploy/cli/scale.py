"""`weft scale`: the number of workers of a running cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...protocol.wording import counted
from .completing import complete_addresses
from .group import connection_file_option, fail, weft
from .hints import Command, Time

if TYPE_CHECKING:
    from ..http.viewer import Viewer

_ANSWER_S: Final = 10.0
_POLL_S: Final = 0.2


@weft.command(cls=Command, short_help="Have N workers in a running cluster.")
@click.argument("n", type=click.IntRange(0), metavar="N")
@click.option(
    "--wait", is_flag=True, help="Return when N workers are there, and those that leave are gone."
)
@click.option(
    "--timeout",
    type=Time(min=0),
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Time for --wait.",
)
@click.option(
    "--scheduler",
    "address",
    metavar="ADDRESS",
    shell_complete=complete_addresses,
    help="Address of the scheduler. Default: that of the connection file.",
)
@connection_file_option
def scale(
    n: int, wait: bool, timeout: float, address: str | None, connection_file: Path | None
) -> None:
    """Have N workers in the whole cluster.

    More of them are started by the 'weft worker' processes that are connected, each on its machine,
    those with the fewest workers first. Workers that are too many finish what they run, and leave:
    first those whose end costs least. N is absolute, so repeating the command changes nothing. It
    takes the token of an admin. In Kubernetes and Slurm workers come from elsewhere: scale there.

    \b
    Examples:
      weft scale 8
      weft scale 0 --wait

    Exit codes: 0 = done, or under way without --wait; 1 = no 'weft worker' is connected that could
    start more, or --timeout is over; 2 = wrong options or configuration.
    """
    from ...client.client import Client
    from ...client.scaling import scale as scale_cluster
    from ...protocol.wire.levels import Level
    from .finding import find_scheduler
    from .info import asking

    path = None if connection_file is None else str(connection_file)
    found = find_scheduler(path, address)
    found.demand(Level.ADMIN, "weft scale")
    where, security = found.addresses[0], found.to_security()
    with Client(where, security=security, name="weft scale", set_as_default=False) as client:
        ends = client._run(scale_cluster(client._running(), n))["workers"]
    leaving = f"; {len(ends)} {'has' if len(ends) == 1 else 'have'} to leave" if ends else ""
    if not wait:
        click.echo(f"{counted(n, 'worker')} wanted{leaving}")
        return

    async def wait_until(viewer: Viewer) -> dict[str, int] | None:
        return await wait_for_workers(viewer, n, timeout)

    counts, _ = asking(path, address, wait_until)
    if counts is not None:
        found_text = ", ".join(f"{k} {state}" for state, k in counts.items())
        fail(f"weft scale: there are not {n} workers after {timeout:g} s: {found_text}", 1)
    click.echo(f"{counted(n, 'worker')} {'is' if n == 1 else 'are'} there{leaving}")


async def wait_for_workers(viewer: Viewer, n: int, timeout_s: float) -> dict[str, int] | None:
    """Wait until `n` workers run and none is about to leave; after the time-out return counts."""
    import asyncio

    deadline = time.monotonic() + timeout_s
    while True:
        overview, _ = await viewer.ask_page("overview", "", _ANSWER_S)
        counts: dict[str, int] = overview["n_workers"]
        if counts["running"] == n and not counts["leaving"]:
            return None
        if time.monotonic() >= deadline:
            return counts
        await asyncio.sleep(_POLL_S)
