"""`weft stop`: ends a cluster, its scheduler and all its workers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from ...protocol.wording import counted
from .group import Chosen, fail, scheduler_options, weft
from .hints import CommandWithCodes

if TYPE_CHECKING:
    from ...protocol.trust.connection_file import ConnectionFile

#: A scheduler that was asked to end has done so after this.
_END_S: Final = 15.0
_POLL_S: Final = 0.05


@weft.command(cls=CommandWithCodes, short_help="End a cluster: the scheduler and all its workers.")
@scheduler_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even if tasks are unfinished.")
def stop(chosen: Chosen, yes: bool) -> None:
    """End a cluster: the scheduler and all its workers.

    Calls that other clients still wait for fail at once: no client looks for another scheduler.

    If clients wait for unfinished tasks, it asks first; without a terminal it ends nothing then,
    unless --yes is given. It takes the token of an admin, which the scheduler's own connection file
    has. A scheduler under systemd or Kubernetes is stopped with 'systemctl stop' or 'kubectl', or
    else it would be started again.

    \b
    Examples:
      weft stop
      weft stop tls://node1:8786 --connection-file ~/cluster.json --yes
    """
    from ...protocol.wire.levels import Level
    from .info import asking

    found = chosen.demand(Level.ADMIN, "weft stop")
    cluster, where = asking(found, lambda viewer: viewer.ask_all("cluster"))
    text = unfinished_text(cluster)
    if text and not yes:
        if not sys.stdin.isatty():
            fail(f"weft stop: {text} at {where}; give --yes to end them all the same", 1)
        click.confirm(f"{text} at {where}. End the cluster all the same?", abort=True, err=True)
    _shut_down(found)
    workers = counted(cluster["n_workers"], "worker")
    click.echo(f"the scheduler at {where} has ended, with {workers}")


def _shut_down(found: ConnectionFile) -> None:
    """Ask the scheduler to end, and wait until it does not listen any more."""
    from ...client.client import Client
    from ...protocol.net.probing import why_nobody_answers

    address = found.addresses[0]
    client = Client(address, security=found.to_security(), name="weft stop", set_as_default=False)
    client.shutdown()
    deadline = time.monotonic() + _END_S
    while not why_nobody_answers(address):
        if time.monotonic() > deadline:
            fail(
                f"weft stop: a scheduler still listens at {address}: a service manager may have "
                "started it again; stop it there, with 'systemctl stop' or 'kubectl' for instance",
                1,
            )
        time.sleep(_POLL_S)


def unfinished_text(cluster: dict[str, Any]) -> str:
    """Describe the unfinished tasks of a cluster; "" if there are none."""
    states = ("waiting", "queued", "no_worker", "processing")
    n = sum(cluster["tasks"].get(state, 0) for state in states)
    if not n:
        return ""
    clients = counted(cluster["n_clients"], "client")
    return f"{counted(n, 'task')} of {clients} {'is' if n == 1 else 'are'} unfinished"
