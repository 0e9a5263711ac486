"""`weft scheduler`: its options, and what it prints."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from ...protocol.settings import common
from ...protocol.settings import scheduler as table
from ...protocol.settings.setting import settings_in
from .group import start_log, weft
from .options import from_table, merged

if TYPE_CHECKING:
    from ...scheduler.server import SchedulerServer

#: The settings of the command, in the order of its help.
SETTINGS: Final = (*settings_in(table), common.TOKEN_FILE, common.LOG_LEVEL, common.LOG_FORMAT)


@weft.command()
@from_table(*SETTINGS)
def scheduler(**options: Any) -> None:
    """Run a scheduler, until Ctrl-C or a client's shutdown().

    It makes a token, writes it with its address to the connection file, and prints how to connect.
    Workers and clients of the same user on this machine find that file by themselves; elsewhere,
    give them with --connection-file one that 'weft token' has made for their role.

    A scheduler that dies is started again, and one that is started later with the same state
    directory is the same cluster: it has the address, the token and the certificate of the last
    one, so workers and clients come back to it. Remove the directory for a new cluster.

    \b
    Examples:
      weft scheduler
      weft scheduler --host 0.0.0.0 --port 8786 --connection-file ~/cluster.json

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 70 = a bug of
    weft, whose traceback is in the log, 75 = another scheduler of this cluster has taken over.

    Each option can be given by a file or the environment as well; see 'weft config scheduler'.
    """
    from ..processes.pid_file import pid_file
    from ..scheduler import restarting
    from ..scheduler.starting import SchedulerOptions, SchedulerStart

    given = merged(SETTINGS, options)
    start_log(given)
    chosen = SchedulerOptions(given)

    def on_ready(server: SchedulerServer, url: str) -> None:
        _, http_port = chosen.pages
        if url and http_port and not url.endswith(f":{http_port}/"):
            click.echo(f"port {http_port} is taken, pages use a free one", err=True)
        path = str(chosen.path_of_file(server))
        _say_how_to_connect(server.addresses[0], path, chosen.connection_file is None, url)

    def on_taken(taken: int, holder: str) -> None:
        by = f" by another scheduler of yours, {holder}" if holder else ""
        text = f"port {taken} is taken{by}; this is a cluster of its own, at a free port"
        click.echo(text, err=True)

    # All is imported, so that the next scheduler listens at once; nothing is opened yet.
    is_watched = given[table.RESTART] and restarting.is_wanted()
    with pid_file(given[table.PID_FILE]):
        lifeline = restarting.run_in_child() if is_watched else None
        try:
            SchedulerStart(chosen, lifeline, on_ready, on_taken).run()
        finally:
            if lifeline is not None:
                lifeline.close()


def _say_how_to_connect(listening: str, path: str, is_default_path: bool, url: str) -> None:
    from ...protocol.wire.address import parse_address
    from ..scheduler.daemon import contact_address

    address = contact_address(listening)
    parsed = parse_address(address)
    secured = ""
    if parsed.scheme == "tls":
        listens = parse_address(listening).host
        where = "every interface" if listens in ("0.0.0.0", "::") else listens
        secured = f" ({where}; encrypted with TLS, token needed)"
    option = "" if is_default_path else f" --connection-file {shlex.quote(path)}"
    # With the address or the file they work beside other schedulers as well.
    named = option or f" {address}"
    argument = f"'{address}'" if is_default_path else f"connection_file='{path}'"
    lines = [
        f"scheduler at {address}{secured}, process {os.getpid()}",
        f"  connection file  {path}",
        f"  add workers      weft worker{named}",
        f"  connect          weft.Client({argument})",
    ]
    if url:
        lines.append(
            f"  status page      {url}  (sign in with: weft token{named} --role view --bare)"
        )
    click.echo("\n".join(lines))
    sys.stdout.flush()
