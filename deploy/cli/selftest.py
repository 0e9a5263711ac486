"""`weft selftest`: runs tasks on a cluster, and checks their results."""

from __future__ import annotations

import sys

import click

from .group import Chosen, scheduler_options, weft
from .options import Count, time_option


@weft.command(short_help="Run small tasks on a cluster, and check their results.")
@scheduler_options
@click.option(
    "--workers",
    "n_workers",
    type=Count(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Workers that must be there; it waits for them.",
)
@time_option("--timeout", "60s", "Time for each check.")
@click.option(
    "--kill-worker",
    is_flag=True,
    help="Also kill one worker process in the middle of a task. What other tasks it runs is run "
    "again; do not use it beside tasks that must not run twice.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON, for programs.")
def selftest(
    chosen: Chosen, n_workers: int, timeout: float, kill_worker: bool, as_json: bool
) -> None:
    """Run small tasks on a cluster, and check their results, errors and transfers.

    It prints a line for each check. The tasks have the highest priority, so that a busy cluster can
    be tested, too, and take some MB for a moment. They stay in the cluster's statistics, as
    functions named weft-selftest-..., and one of them fails on purpose. It takes a token of role
    client.

    \b
    Examples:
      weft selftest
      weft selftest --workers 8 --kill-worker
      weft selftest tls://node1:8786 --json

    Exit codes: 0 = each check passed, 1 = one failed, 2 = wrong options or configuration, 69 = no
    scheduler was found, or it cannot be reached.
    """
    import json

    from ...client.client import Client
    from ...protocol.wire.levels import Level
    from ..selftest import SelfTest

    found = chosen.demand(Level.CLIENT, "weft selftest")
    outcomes = []
    where, security = found.addresses[0], found.to_security()
    with Client(where, security=security, name="weft selftest", set_as_default=False) as client:
        for outcome in SelfTest(client, n_workers, timeout, kill_worker).run():
            outcomes.append(outcome)
            if not as_json:
                mark = "ok" if outcome.is_ok else "FAILED"
                line = f"{mark:7} {outcome.name:18} {outcome.text} ({outcome.seconds:.2f} s)"
                click.echo(line)
                sys.stdout.flush()
    if as_json:
        click.echo(json.dumps([outcome.to_plain() for outcome in outcomes], indent=2))
    if not all(outcome.is_ok for outcome in outcomes):
        sys.exit(1)
