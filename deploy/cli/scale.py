"""`weft scale`: the number of workers of a running cluster."""

from __future__ import annotations

from typing import Final

import click

from ...protocol.wording import counted
from .group import Chosen, fail, scheduler_options, weft
from .hints import CommandWithCodes
from .options import Count, time_option

_N: Final = click.Argument(["n"], metavar="N")


@weft.command(cls=CommandWithCodes, short_help="Have N workers in a running cluster.")
@click.option(
    "--wait",
    is_flag=True,
    help="Return when N workers are there, and those that leave are gone. One whose results have "
    "no room elsewhere leaves as soon as they have.",
)
@click.option(
    "--drop",
    is_flag=True,
    help="Lose results that no other worker has room for; workers that wait for it leave, too.",
)
@time_option("--timeout", "10m", "Time for --wait.")
@click.argument("arguments", nargs=-1, metavar="N")
@scheduler_options
@click.pass_context
def scale(
    ctx: click.Context,
    chosen: Chosen,
    arguments: tuple[str, ...],
    wait: bool,
    drop: bool,
    timeout: float,
) -> None:
    """Have N workers in the whole cluster.

    More of them are started by the 'weft worker' processes that are connected, each on its
    machine, those with the fewest workers first. Surplus workers finish what they run, and
    leave: first those whose end costs least. One is kept if others have no room for what only
    it has, or if it has an actor: the command says so, and ends with code 1. With --wait it
    leaves as soon as there is room, with --drop at once. N is absolute, so repeating the
    command changes nothing. It takes the token of an admin. In Kubernetes and Slurm workers
    come from elsewhere: scale there.

    \b
    Examples:
      weft scale 8
      weft scale 0 --wait
      weft scale tls://node1:8786 8
    """
    from ...client.client import Client
    from ...client.cluster.scaling import kept, scale_client
    from ...protocol.errors import NoAnswer
    from ...protocol.wire.levels import Level
    from ..overview.wording import describe_end

    if len(arguments) != 1:
        raise click.UsageError("how many workers? Give one number: weft scale N")
    n = Count(0).convert(arguments[0], _N, ctx)
    found = chosen.demand(Level.ADMIN, "weft scale")
    where, security = found.addresses[0], found.to_security()
    with Client(where, security=security, name="weft scale", set_as_default=False) as client:
        try:
            ends = client._run(scale_client(client, n, wait, timeout, drop=drop))
        except NoAnswer:
            raise
        except TimeoutError as error:
            fail(f"weft scale: {error}", 1)
    stay = kept(ends)
    n_leaving = len(ends) - len(stay)
    leaving = f"; {n_leaving} {'has' if n_leaving == 1 else 'have'} to leave" if n_leaving else ""
    n_there = n + len(stay)
    if not wait:
        click.echo(f"{counted(n, 'worker')} wanted{leaving}")
    else:
        click.echo(f"{counted(n_there, 'worker')} {'is' if n_there == 1 else 'are'} there{leaving}")
    for row in stay:
        click.echo(describe_end(row))
    if stay:
        ctx.exit(1)
