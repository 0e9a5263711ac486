"""`weft scheduler`: its options, and what it prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .group import log_option, start_log, weft
from .hints import Command, FilePath, HostName, Time

if TYPE_CHECKING:
    from ...scheduler.server import SchedulerServer

DEFAULT_PORT: Final = 8786
DEFAULT_DASHBOARD: Final = "127.0.0.1:8787"


@weft.command(cls=Command)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at. Connections beyond this machine are encrypted with TLS; 0.0.0.0 "
    "listens at all addresses.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 = any free one. The default falls back to a free one if it is taken, unless the state "
    "directory has a cluster in it; a port that is given never does.",
)
@click.option(
    "--protocol",
    type=click.Choice(["tcp", "tls", "unix"]),
    help="Default: tcp on this machine, tls beyond. unix: a socket in your run directory.",
)
@click.option(
    "--connection-file",
    type=FilePath(path_type=Path, dir_okay=False),
    help="File to write. Default: scheduler-PORT.json in your run directory "
    "($XDG_RUNTIME_DIR/weft or ~/.weft/run), where workers and clients look.",
)
@click.option(
    "--token-file",
    type=FilePath(path_type=Path, dir_okay=False),
    envvar="WEFT_TOKEN_FILE",
    help="Take the token from this file instead of making one. [env: WEFT_TOKEN_FILE]",
)
@click.option(
    "--cluster-id-file",
    type=FilePath(path_type=Path, dir_okay=False),
    help="Take the cluster's id, 32 hexadecimal digits, from this file. With a token file, and for "
    "TLS the two files below, any new scheduler is the same cluster, without a state directory.",
)
@click.option(
    "--certificate-file",
    type=FilePath(path_type=Path, dir_okay=False),
    help="Take the TLS certificate from this PEM file instead of making one; with --key-file.",
)
@click.option(
    "--key-file",
    type=FilePath(path_type=Path, dir_okay=False),
    help="The private key of --certificate-file, PEM, without a passphrase.",
)
@click.option(
    "--name",
    help="Name of the connection file, the Unix socket and the state directory. Default: "
    "scheduler-PORT, scheduler, and PORT.",
)
@click.option(
    "--dashboard-address",
    default=DEFAULT_DASHBOARD,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the HTTP pages: /healthz, /readyz, /metrics. HTTPS beyond this machine.",
)
@click.option(
    "--dashboard-host-name",
    "dashboard_host_names",
    type=HostName(),
    multiple=True,
    envvar="WEFT_DASHBOARD_HOST_NAMES",
    metavar="NAME",
    help="A name by which browsers reach the HTTP pages, beside localhost and the name of this "
    "machine: that of a service or a proxy before them. Requests for other names are refused. "
    "Repeatable. [env: WEFT_DASHBOARD_HOST_NAMES, with commas]",
)
@click.option("--no-dashboard", is_flag=True, help="Serve no HTTP pages.")
@click.option(
    "--client-lease",
    type=Time(min=0),
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Time for which the results that a lost client wants are kept for its return.",
)
@click.option(
    "--liveness-timeout",
    type=Time(min=1),
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Time without a message after which a peer counts as dead: for the scheduler, a worker "
    "that its supervisor does not report alive either; for workers and clients, the scheduler.",
)
@click.option(
    "--state-dir",
    type=FilePath(path_type=Path, file_okay=False),
    help="Folder for what the next scheduler of this cluster needs: its secrets, port, last epoch "
    "and members. Default: NAME or PORT in $XDG_STATE_HOME/weft or ~/.local/state/weft; a "
    "temporary one with --port 0 and no --name.",
)
@click.option(
    "--no-restart",
    is_flag=True,
    help="Do not start the scheduler again when it dies. Under systemd and in containers nothing "
    "is started again by itself either: the manager does that.",
)
@log_option
@click.pass_context
def scheduler(
    ctx: click.Context,
    host: str,
    port: int,
    protocol: str | None,
    connection_file: Path | None,
    token_file: Path | None,
    cluster_id_file: Path | None,
    certificate_file: Path | None,
    key_file: Path | None,
    name: str | None,
    dashboard_address: str,
    dashboard_host_names: tuple[str, ...],
    no_dashboard: bool,
    client_lease: float,
    liveness_timeout: float,
    state_dir: Path | None,
    no_restart: bool,
    log_level: str,
) -> None:
    """Run a scheduler, until Ctrl-C or a client's shutdown().

    It makes a token, writes it with its address to the connection file, and prints how to connect.
    Workers and clients of the same user on this machine find that file by themselves; elsewhere,
    give them with --connection-file one that 'weft token' has made for their role.

    A scheduler that dies is started again, and one that is started later with the same state
    directory is the same cluster: it has the address, the token and the certificate of the last
    one, so workers and clients come back to it. Remove the directory for a new cluster.

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 70 = a bug of
    weft, whose traceback is in the log, 75 = another scheduler of this cluster has taken over.
    """
    from ...protocol.wire.session import MISSED_HEARTBEATS
    from .. import restarting
    from ..identity_files import IdentityFiles
    from ..settings import check_free_port, check_own_host, parse_host_port
    from ..starting import SchedulerOptions, SchedulerStart

    start_log(log_level)
    http_host, http_port = "", 0
    if not no_dashboard:
        http_host, http_port = parse_host_port(dashboard_address, "--dashboard-address")
        if not _is_default(ctx, "dashboard_address"):
            check_free_port(http_host, http_port)
    if protocol != "unix":
        check_own_host(host.strip("[]"), "--host", may_be_every=True)
    options = SchedulerOptions(
        host=host,
        port=None if _is_default(ctx, "port") else port,
        protocol=protocol,
        connection_file=connection_file,
        token_file=token_file,
        name=name,
        state_directory=state_dir,
        dashboard_host=http_host,
        dashboard_port=http_port,
        dashboard_host_names=dashboard_host_names,
        dashboard_fallback=_is_default(ctx, "dashboard_address"),
        client_lease_s=client_lease,
        heartbeat_s=liveness_timeout / MISSED_HEARTBEATS,
        files=IdentityFiles(cluster_id_file, certificate_file, key_file),
    )

    def on_ready(server: SchedulerServer, url: str) -> None:
        if url and http_port and not url.endswith(f":{http_port}/"):
            click.echo(f"port {http_port} is taken, pages use a free one", err=True)
        path = str(options.path_of_file(server))
        _say_how_to_connect(server.addresses[0], path, connection_file is None, url)

    def on_taken(taken: int, holder: str) -> None:
        by = f" by another scheduler of yours, {holder}" if holder else ""
        text = f"port {taken} is taken{by}; this is a cluster of its own, at a free port"
        click.echo(text, err=True)

    # All is imported, so that the next scheduler listens at once; nothing is opened yet.
    is_watched = not no_restart and restarting.is_wanted()
    lifeline = restarting.run_in_child() if is_watched else None
    try:
        SchedulerStart(options, lifeline, on_ready, on_taken).run()
    finally:
        if lifeline is not None:
            lifeline.close()


def _is_default(ctx: click.Context, parameter: str) -> bool:
    return ctx.get_parameter_source(parameter) is click.core.ParameterSource.DEFAULT


def _say_how_to_connect(listening: str, path: str, is_default_path: bool, url: str) -> None:
    from ...protocol.wire.address import parse_address
    from ..daemon import contact_address

    address = contact_address(listening)
    parsed = parse_address(address)
    secured = ""
    if parsed.scheme == "tls":
        listens = parse_address(listening).host
        where = "every interface" if listens in ("0.0.0.0", "::") else listens
        secured = f" ({where}; encrypted with TLS, token needed)"
    option = "" if is_default_path else f" --connection-file {path}"
    argument = f"'{address}'" if is_default_path else f"connection_file='{path}'"
    lines = [
        f"scheduler at {address}{secured}, process {os.getpid()}",
        f"  connection file  {path}",
        f"  add workers      weft worker{option or ' ' + address}",
        f"  connect          weft.Client({argument})",
    ]
    if url:
        lines.append(f"  pages            {url}healthz  (and readyz; metrics with the token)")
    click.echo("\n".join(lines))
    sys.stdout.flush()
