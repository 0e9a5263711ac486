"""`weft scheduler`: chooses addresses, secrets and files, and runs the scheduler."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...protocol.errors import CommError, ConfigError
from .group import log_option, start_log, weft
from .hints import Command, Time

if TYPE_CHECKING:
    from ...protocol.trust.security import Security
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
    help="0 = any free one. The default falls back to a free one if it is taken.",
)
@click.option(
    "--protocol",
    type=click.Choice(["tcp", "tls", "unix"]),
    help="Default: tcp on this machine, tls beyond. unix: a socket in your run directory.",
)
@click.option(
    "--connection-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write. Default: scheduler-PORT.json in your run directory "
    "($XDG_RUNTIME_DIR/weft or ~/.weft/run), where workers and clients look.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="WEFT_TOKEN_FILE",
    help="Take the token from this file instead of making one. [env: WEFT_TOKEN_FILE]",
)
@click.option(
    "--name", help="Name of the connection file and the Unix socket. Default: scheduler-PORT."
)
@click.option(
    "--dashboard-address",
    default=DEFAULT_DASHBOARD,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the HTTP pages: /healthz, /readyz, /metrics. HTTPS beyond this machine.",
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
@log_option
@click.pass_context
def scheduler(
    ctx: click.Context,
    host: str,
    port: int,
    protocol: str | None,
    connection_file: Path | None,
    token_file: Path | None,
    name: str | None,
    dashboard_address: str,
    no_dashboard: bool,
    client_lease: float,
    liveness_timeout: float,
    log_level: str,
) -> None:
    """Run a scheduler, until Ctrl-C or a client's shutdown().

    It makes a token, writes it with its address to the connection file, and prints how to connect.
    Workers and clients of the same user on this machine find that file by themselves; elsewhere,
    give them a copy of it with --connection-file.

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 70 = a bug of
    weft, whose traceback is in the log.
    """
    from ...protocol.host.facts import process_facts
    from ...protocol.wire.session import MISSED_HEARTBEATS
    from ...scheduler.server import SchedulerConfig
    from ..daemon import DaemonConfig, run_daemon
    from ..settings import parse_host_port

    start_log(log_level)
    _check_connection_file(connection_file, name)
    security = _scheduler_security(host, protocol, token_file)
    http_host, http_port = "", 0
    if not no_dashboard:
        http_host, http_port = parse_host_port(dashboard_address, "--dashboard-address")
        if security.certificate_pem is None:
            security = _with_certificate_for(http_host, security)

    def path_of_file(server: SchedulerServer) -> Path:
        return connection_file or _default_connection_file(server, name)

    def on_ready(server: SchedulerServer, url: str) -> None:
        if url and http_port and not url.endswith(f":{http_port}/"):
            click.echo(f"port {http_port} is taken, pages use a free one", err=True)
        path = str(path_of_file(server))
        _say_how_to_connect(server.addresses[0], path, connection_file is None, url)

    def run(at_port: int) -> None:
        scheduler = SchedulerConfig(
            addresses=[_listen_address(host, at_port, protocol, name)],
            security=security,
            client_lease_s=client_lease,
            heartbeat_s=liveness_timeout / MISSED_HEARTBEATS,
            facts=process_facts(),
        )
        run_daemon(
            DaemonConfig(
                scheduler=scheduler,
                dashboard_host=http_host,
                dashboard_port=http_port,
                dashboard_fallback=_is_default(ctx, "dashboard_address"),
                connection_file=path_of_file,
                on_ready=on_ready,
            )
        )

    try:
        run(port)
    except CommError as error:
        if "in use" not in error.text or protocol == "unix":
            raise
        if not _is_default(ctx, "port"):
            raise ConfigError(
                f"port {port} of {host} is taken by another program; choose one with --port, "
                "or --port 0 for any free one"
            ) from None
    else:
        return
    click.echo(f"port {port} is taken, using a free one", err=True)
    run(0)


def _is_default(ctx: click.Context, parameter: str) -> bool:
    return ctx.get_parameter_source(parameter) is click.core.ParameterSource.DEFAULT


def _check_connection_file(path: Path | None, name: str | None) -> None:
    """Check before any peer can connect whether the connection file can be written."""
    from ...protocol.trust.connection_file import (
        check_destination,
        default_path,
        remove_stale_files,
        run_directory,
    )

    remove_stale_files()
    if name is not None:
        default = default_path(name)
        check_destination(path or default)
    elif path is not None:
        check_destination(path)
    else:
        # The file is named by the port, which is not known before the scheduler listens.
        run_directory()


def _scheduler_security(host: str, protocol: str | None, token_file: Path | None) -> Security:
    from ...protocol.trust.connection_file import read_token_file
    from ...protocol.trust.security import (
        Security,
        generate_certificate,
        needs_tls,
        new_cluster_id,
        new_token,
    )
    from ...protocol.wire.levels import Level, level_of

    token = read_token_file(token_file) if token_file is not None else new_token()
    level = level_of(token.encode())
    if level < Level.ADMIN:
        raise ConfigError(
            f"{token_file} has a token of role {level.label}, from which the others cannot be "
            "derived; a scheduler needs the token of role admin",
            "--token-file",
        )
    cluster_id = new_cluster_id()
    certificate = key = None
    if protocol == "tls" or (protocol is None and needs_tls(host)):
        certificate, key = generate_certificate(cluster_id)
    return Security(token.encode(), cluster_id, certificate, key)


def _with_certificate_for(host: str, security: Security) -> Security:
    """Add a certificate for pages beyond loopback, where the scheduler itself needs none."""
    from dataclasses import replace

    from ...protocol.trust.security import generate_certificate, needs_tls

    if not needs_tls(host):
        return security
    assert security.cluster_id is not None
    certificate, key = generate_certificate(security.cluster_id)
    return replace(security, certificate_pem=certificate, private_key_pem=key)


def _listen_address(host: str, port: int, protocol: str | None, name: str | None) -> str:
    from ...protocol.trust.connection_file import run_directory
    from ...protocol.trust.security import needs_tls
    from ...protocol.wire.address import Address

    if protocol == "unix":
        return f"unix://{run_directory()}/{name or 'scheduler'}.sock"
    scheme = protocol or ("tls" if needs_tls(host) else "tcp")
    return str(Address(scheme, host.strip("[]"), port))


def _default_connection_file(server: SchedulerServer, name: str | None) -> Path:
    from ...protocol.trust.connection_file import default_path
    from ...protocol.wire.address import parse_address

    address = parse_address(server.addresses[0])
    return default_path(name or (f"scheduler-{address.port}" if address.is_tcp else "scheduler"))


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
