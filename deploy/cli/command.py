"""The `weft` command. Its errors are one line each, with the cause and a hint.

Exit codes: 0 = ended on request (Ctrl-C and SIGTERM included, once it ran), 1 = it failed,
2 = the command or its configuration is at fault, 130 = Ctrl-C before it ran; `weft worker` has
more of them, see worker/family/exits.py.

`weft scheduler` must not import pickle, so everything but click is imported by the command that
needs it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from ...protocol.errors import CommError, ConfigError, ConnectTimeout, InternalError, WeftError
from ..child import LOG_FORMAT
from .hints import Command, CommandGroup, NThreads, Time

if TYPE_CHECKING:
    from ...protocol.trust.security import Security
    from ...scheduler.server import SchedulerServer
    from ...worker.family.supervisor import SupervisorConfig

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PORT: Final = 8786
DEFAULT_DASHBOARD: Final = "127.0.0.1:8787"
_LEVELS: Final = ("debug", "info", "warning", "error")


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"weft {_installed_version()} (Python {sys.version.split()[0]})")
        ctx.exit()


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weft")
    except PackageNotFoundError:
        return "from a checkout"


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with 'weft scheduler'; in another terminal 'weft worker'; then, in Python, "
    "weft.Client('tcp://127.0.0.1:8786').",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print the version.",
)
def weft() -> None:
    """Run Python functions on many machines.

    A cluster is one scheduler, any number of workers, and the clients that connect to it. They find
    each other by the connection file, which the scheduler writes and only you can read: it has the
    address and the token, without which a connection is refused.
    """


def _log_option(function: F) -> F:
    return click.option(
        "--log-level",
        type=click.Choice(_LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        help="Least level of the lines that are written to standard error.",
    )(function)


def _scheduler_options(function: F) -> F:
    file = click.option(
        "--connection-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The scheduler's file. Default: $WEFT_CONNECTION_FILE, or the one in your run "
        "directory.",
    )
    return click.argument("address", required=False)(file(function))


def _start_log(level: str) -> None:
    logging.basicConfig(level=level.upper(), format=LOG_FORMAT)


# --- weft scheduler -------------------------------------------------------------------------------


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
@_log_option
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

    _start_log(log_level)
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

    token = read_token_file(token_file) if token_file is not None else new_token()
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


# --- weft worker ----------------------------------------------------------------------------------


@weft.command(
    cls=Command, short_help="Run workers for a scheduler, until Ctrl-C or until it stops."
)
@_scheduler_options
@click.option(
    "--nworkers",
    metavar="N",
    default="auto",
    show_default=True,
    help="Worker processes. auto: one per core, or as many as fit with --nthreads.",
)
@click.option(
    "--nthreads",
    type=NThreads(1, 4096),
    metavar="N",
    help="Tasks that each worker runs at a time. Default: the cores divided among the workers.",
)
@click.option(
    "--memory-limit",
    default="auto",
    show_default=True,
    metavar="SIZE",
    help="Limit per worker: a size (4GB, 512MiB), a fraction of the machine's memory (0.5), auto "
    "(a fair share) or none. Above 95 % of it a worker is restarted.",
)
@click.option(
    "--name", help="For display; numbered if there are several. Default: the host's name."
)
@click.option(
    "--resources",
    metavar="'NAME=AMOUNT ...'",
    help="Amounts that tasks may request with resources=, e.g. 'GPU=2 MEM=10e9', per worker.",
)
@click.option(
    "--local-directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for files of the workers, and temporary ones of their tasks; they get a folder of "
    "their own there, which is removed with them. Default: the folder for temporary files.",
)
@click.option(
    "--host",
    help="Address of this machine at which other workers and clients fetch data. Default: the one "
    "from which the scheduler is reached.",
)
@click.option(
    "--connect-timeout",
    type=Time(min=0),
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Time to wait for a scheduler that has not been started yet, and then for one that does "
    "not answer yet. Once connected, workers try to reconnect for ever.",
)
@click.option(
    "--grace-period",
    type=Time(min=0),
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Time after SIGTERM in which workers may finish their running tasks; they start no "
    "others. A second signal ends them at once, as Ctrl-C does.",
)
@_log_option
def worker(
    address: str | None,
    connection_file: Path | None,
    nworkers: str,
    nthreads: int | None,
    memory_limit: str,
    name: str | None,
    resources: str | None,
    local_directory: Path | None,
    host: str | None,
    connect_timeout: float,
    grace_period: float,
    log_level: str,
) -> None:
    """Run workers for the scheduler at ADDRESS, until Ctrl-C or a client's shutdown().

    They outlive their scheduler: when it ends, they wait for the next one at the same place.

    ADDRESS is tcp://host:port, tls://host:port, host:port or unix:///path; by default it is read
    from the connection file. The token comes from the connection file, or from the file that
    $WEFT_TOKEN_FILE names.

    A supervisor process watches the workers, starts those again that die, and reports why. Set
    OMP_NUM_THREADS and the like yourself if tasks should use more than one core each; they are 1
    where unset.

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 69 = no
    scheduler was found or answered within --connect-timeout, 77 = the scheduler refuses these
    workers for good (they run another minor version of Python, for instance).
    """
    from ...protocol.trust import connection_file as connection_files
    from ..settings import (
        decide_counts,
        make_local_directory,
        parse_memory_limit,
        parse_resources,
    )

    _start_log(log_level)
    counts = decide_counts(_parse_nworkers(nworkers), nthreads)
    limit = parse_memory_limit(memory_limit, counts, "--memory-limit")
    amounts = parse_resources(resources, "--resources")
    path = str(connection_file) if connection_file is not None else None

    def find() -> tuple[tuple[str, ...], Security]:
        found = connection_files.find(path, address, os.environ)
        return found.addresses, found.to_security()

    listen_address = _data_address(host, _wait_for_scheduler(path, address, connect_timeout))

    from ...worker.family.supervisor import SupervisorConfig, WorkerSpec

    name = name or socket.gethostname()
    directory = make_local_directory(local_directory, "--local-directory")
    options = {
        "nthreads": counts.nthreads,
        "resources": amounts,
        "local_directory": directory,
        "temporary_directory": "" if local_directory is None else directory,
        "listen_address": listen_address,
        "grace_period_s": grace_period,
    }
    numbered = counts.n_workers > 1
    _run_workers(
        SupervisorConfig(
            find=find,
            workers=[
                WorkerSpec(f"{name}-{i}" if numbered else name, limit, options)
                for i in range(counts.n_workers)
            ],
            directory=directory,
            owns_directory=True,
            connect_timeout_s=connect_timeout,
            grace_period_s=grace_period,
        )
    )


def _wait_for_scheduler(path: str | None, address: str | None, timeout_s: float) -> str:
    """Return the scheduler's address as soon as one is found; fail if there is none in time."""
    from ...worker.family.exits import EXIT_NO_SCHEDULER
    from .finding import wait_for_scheduler

    # In a container nothing else would end a first process that waits.
    signal.signal(signal.SIGTERM, _end_while_waiting)
    try:
        return wait_for_scheduler(path, address, timeout_s).addresses[0]
    except ConnectTimeout as error:
        _fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)


def _data_address(host: str | None, scheduler: str) -> str:
    """Return where workers listen for others, of the same kind as the scheduler; "" = default."""
    from ...protocol.wire.address import Address, parse_address
    from ..settings import check_own_host

    parsed = parse_address(scheduler)
    if host is None or not parsed.is_tcp:
        return ""
    host = host.strip("[]")
    check_own_host(host, "--host")
    return str(Address(parsed.scheme, host, 0))


def _run_workers(config: SupervisorConfig) -> NoReturn:
    """Run the family of workers until its end, and end this process with its exit code."""
    from ...worker.family.exits import EXIT_NO_SCHEDULER
    from ..workers import run_daemon

    spawner = os.getpid()
    try:
        code = run_daemon(config)
    except ConnectTimeout as error:
        _fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)
    finally:
        # In the spawner, which is the last to leave, even if the supervisor was killed.
        if os.getpid() == spawner:
            shutil.rmtree(config.directory, ignore_errors=True)
    raise SystemExit(code)


def _end_while_waiting(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _parse_nworkers(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise ConfigError(f"{text!r} is not a number from 1 to 4096, nor auto", "--nworkers")
    return int(text)


# --- weft info ------------------------------------------------------------------------------------


@weft.command(cls=Command)
@_scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole description, for programs.")
def info(address: str | None, connection_file: Path | None, as_json: bool) -> None:
    """Show a running cluster: its workers, clients and tasks."""
    import json

    from .info import ask, describe

    found, address = ask(None if connection_file is None else str(connection_file), address)
    click.echo(json.dumps(found, indent=2) if as_json else describe(found, address))


def main(arguments: list[str] | None = None) -> None:
    """Run the `weft` command; ends the process."""
    name = "weft"
    try:
        # Errors come here instead of being printed by click, so that all look alike.
        given = sys.argv[1:] if arguments is None else arguments
        code = weft.main(given or ["--help"], prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else name
        _fail(f"{command}: {error.format_message()}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ConfigError as error:
        _fail(f"{name}: {error}", 2)
    except InternalError as error:
        from ...worker.family.exits import EXIT_CRASHED

        _fail(f"{name}: {error}", EXIT_CRASHED)
    except WeftError as error:
        _fail(f"{name}: {error}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(code)
