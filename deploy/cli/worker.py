"""`weft worker`: finds the scheduler, and runs the workers of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ...protocol.errors import (
    ConfigError,
    ConnectTimeout,
    NotAdmitted,
    WrongCluster,
    WrongRole,
    WrongToken,
    WrongVersion,
)
from .group import fail, log_option, scheduler_options, start_log, weft
from .hints import Command, FilePath, NThreads, Time

if TYPE_CHECKING:
    from ...protocol.trust.security import Security
    from ...worker.family.supervisor import SupervisorConfig


@weft.command(
    cls=Command, short_help="Run workers for a scheduler, until Ctrl-C or until it stops."
)
@scheduler_options
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
    type=FilePath(path_type=Path, file_okay=False),
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
    "not answer yet. Once connected, --orphan-lease counts.",
)
@click.option(
    "--orphan-lease",
    type=Time(min=0),
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Time for which workers that have lost their scheduler keep their results, finish what "
    "they run and look for a scheduler; then they end. It should be longer than the "
    "reconnect_timeout of clients (60 s).",
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
@log_option
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
    orphan_lease: float,
    grace_period: float,
    log_level: str,
) -> None:
    """Run workers for the scheduler at ADDRESS, until Ctrl-C or a client's shutdown().

    They outlive their scheduler: when it ends, they keep their results, go on with their tasks,
    and wait for the next one at the same place.

    ADDRESS is tcp://host:port, tls://host:port, host:port or unix:///path; by default it is read
    from the connection file. The token comes from the connection file, or from the file that
    $WEFT_TOKEN_FILE names; one of role worker is enough, as 'weft token --role worker' writes it,
    and of any other the workers get no more.

    A supervisor process watches the workers, starts those again that die, and reports why. Set
    OMP_NUM_THREADS and the like yourself if tasks should use more than one core each; they are 1
    where unset.

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 69 = no
    scheduler was found or answered within --connect-timeout, or came back within --orphan-lease,
    77 = the scheduler refuses these workers for good (their token is of another cluster, or they
    run another minor version of Python, for instance).
    """
    from ...protocol.trust import connection_file as connection_files
    from ...protocol.wire.levels import Level
    from ..settings import (
        decide_counts,
        make_local_directory,
        parse_memory_limit,
        parse_resources,
    )

    start_log(log_level)
    counts = decide_counts(_parse_nworkers(nworkers), nthreads)
    limit = parse_memory_limit(memory_limit, counts, "--memory-limit")
    amounts = parse_resources(resources, "--resources")
    path = str(connection_file) if connection_file is not None else None

    def find() -> tuple[tuple[str, ...], Security]:
        found = connection_files.find(path, address, os.environ)
        found.demand(Level.WORKER, "a worker")
        # Code of users runs in workers: they get no token that can do more.
        return found.addresses, found.to_security().lowered(Level.WORKER)

    scheduler_address = _wait_for_scheduler(path, address, connect_timeout)
    listen_address = _data_address(host, scheduler_address)

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
        "orphan_lease_s": orphan_lease,
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
            orphan_lease_s=orphan_lease,
        ),
        scheduler_address,
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
        fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)


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


def _run_workers(config: SupervisorConfig, address: str) -> NoReturn:
    """Run the family of workers until its end, and end this process with its exit code."""
    from ...worker.family.exits import EXIT_NO_SCHEDULER, EXIT_REFUSED
    from ..workers import run_daemon

    spawner = os.getpid()
    try:
        code = run_daemon(config)
    except ConnectTimeout as error:
        fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)
    except (WrongToken, WrongVersion, WrongCluster, WrongRole, NotAdmitted) as error:
        fail(f"weft worker: refused by {address}: {error.text}", EXIT_REFUSED)
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
