"""Commands for workers that get no tasks: `weft block` and `weft unblock`."""

from __future__ import annotations

import click

from ...protocol.wire.address import names_of_process
from ...protocol.wording import counted
from .completing import complete_workers
from .group import Chosen, scheduler_and_workers, weft
from .jobs import connected
from .options import Time


@weft.command(short_help="Give workers no tasks; what they run goes on.")
@click.argument("workers", nargs=-1, metavar="WORKER...", shell_complete=complete_workers)
@click.option(
    "--for",
    "duration",
    type=Time(min=0.001),
    metavar="TIME",
    help="Until this time has passed; without it, until 'weft unblock'.",
)
@click.option("--reason", default="", metavar="TEXT", help="Shown by 'weft info' and 'explain'.")
@scheduler_and_workers
def block(
    workers: tuple[str, ...],
    duration: float | None,
    reason: str,
    chosen: Chosen,
) -> None:
    """Give workers no tasks from now on; what they run goes on, and their results can be read.

    Each WORKER is a name, an address, or a host with all its workers, also those that join later.
    An address is that of the scheduler if it is the first word, and there is no --scheduler.
    Blocks end when the scheduler is started again. It takes a token of role client.

    \b
    Examples:
      weft block node7 --for 10m --reason "its disk is full"
    """
    _check_named(workers)
    with connected(chosen, "weft block") as client:
        n = client.block_workers(list(workers), duration, reason=reason)
        known = client.scheduler_info()["workers"]
    names = {one["name"] for one in known.values()}
    names.update(*(names_of_process(at, one["host"]) for at, one in known.items()))
    for name in workers:
        if name not in names:
            text = f"no connected worker has the name, address or host {name!r}; one that joins"
            click.echo(f"weft block: {text} later gets no tasks", err=True)
    click.echo(f"{counted(n, 'connected worker')} {'is' if n == 1 else 'are'} blocked")


@weft.command(short_help="Give blocked workers tasks again.")
@click.argument("workers", nargs=-1, metavar="WORKER...", shell_complete=complete_workers)
@scheduler_and_workers
def unblock(workers: tuple[str, ...], chosen: Chosen) -> None:
    """Give workers tasks again, named as they were blocked.

    \b
    Examples:
      weft unblock node7
    """
    _check_named(workers)
    with connected(chosen, "weft unblock") as client:
        client.unblock_workers(list(workers))


def _check_named(workers: tuple[str, ...]) -> None:
    if not workers:
        text = "which workers? Give their names; an address alone is that of the scheduler"
        raise click.UsageError(text)
