"""`weft ssh`: a cluster on machines that ssh reaches."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from ...protocol.errors import ConfigError
from ...protocol.settings import scheduler as of_scheduler
from ...protocol.settings import worker as of_worker
from .group import weft
from .options import file_option, from_table, parameter_of

#: Of `weft worker`, as far as they are given here; the machines have settings of their own.
_OF_WORKERS: Final = (
    of_worker.NWORKERS,
    of_worker.NTHREADS,
    of_worker.MEMORY_LIMIT,
    of_worker.RESOURCES,
    of_worker.LOCAL_DIRECTORY,
    of_worker.INTERFACE,
    of_worker.PORT,
    of_worker.LIFETIME,
    of_worker.GRACE_PERIOD,
)
_OF_SCHEDULER: Final = (of_scheduler.PORT, of_scheduler.DASHBOARD_ADDRESS)
_MARGIN_S: Final = 15.0


@weft.command(short_help="Run a scheduler, and workers on other machines, by ssh.")
@click.argument("hosts", nargs=-1, metavar="HOST...")
@file_option("--hostfile", "File with more hosts, one per line; # begins a comment.", exists=True)
@click.option(
    "--scheduler",
    "scheduler_host",
    metavar="HOST",
    help="Machine on which the scheduler runs; 'first' for the first HOST. Default: here.",
)
@click.option(
    "--scheduler-address",
    metavar="HOST",
    help="Name or address of the scheduler's machine at which it listens for the others. Default: "
    "all of them, and 127.0.0.1 if all hosts are this machine.",
)
@from_table(*_OF_SCHEDULER)
@file_option(
    "--connection-file",
    "File to write, for clients here. Default: ssh-PROCESS.json in your run directory.",
)
@from_table(*_OF_WORKERS)
@click.option(
    "--python",
    "--remote-python",
    default=sys.executable,
    metavar="FILE",
    help="Python on the machines that has weft. Default: the path of this one.",
)
@click.option("--ssh-username", metavar="NAME", help="As ssh -l.")
@click.option("--ssh-port", type=click.IntRange(1, 65535), metavar="N", help="As ssh -p.")
@file_option("--ssh-private-key", "As ssh -i.", exists=True, resolve_path=True)
@file_option("--ssh-config", "As ssh -F.", exists=True, resolve_path=True)
@click.option("-o", "ssh_options", multiple=True, metavar="OPTION", help="As ssh -o; repeatable.")
def ssh(hosts: tuple[str, ...], **options: Any) -> None:
    """Run a scheduler here, and workers on each HOST, until Ctrl-C.

    Each HOST is what ssh takes: a name of its configuration, or user@machine. 'ssh HOST true' must
    work without a password, and weft be installed there. The ordinary OpenSSH client is used, one
    process per host; the token goes through it, never as an argument. Workers connect to the
    scheduler directly, encrypted with TLS beyond this machine.

    The lines of each machine have its name before them. A machine that fails is named with the
    reason, and the others go on. Ctrl-C ends all of them; SIGTERM lets workers finish their tasks,
    within --grace-period. If this process or its connections are killed, the machines notice it and
    end what was started.

    \b
    Examples:
      weft ssh node1 node2 node3
      weft ssh node1 node2 --nthreads 2 --scheduler first

    Exit codes: 0 = ended on request, 1 = the scheduler or all machines failed, 2 = wrong options.
    """
    import asyncio

    from ...protocol.trust.finding import default_path
    from ..ssh.cluster import Plan, SshCluster
    from ..ssh.host import Login

    names = _names(hosts, options["hostfile"])
    scheduler_host = options["scheduler_host"]
    grace_s = options["grace_period"]
    if grace_s is None:
        grace_s = of_worker.GRACE_PERIOD.default
    file = options["connection_file"] or default_path(f"ssh-{os.getpid()}")
    plan = Plan(
        hosts=names,
        login=Login(_ssh_options(options), options["python"]),
        scheduler_host=names[0] if scheduler_host == "first" else scheduler_host,
        scheduler_arguments=_passed_on(_OF_SCHEDULER, options),
        scheduler_address=options["scheduler_address"] or "",
        worker_arguments=_passed_on(_OF_WORKERS, options),
        connection_file=file.absolute(),
        patience_s=grace_s + _MARGIN_S,
    )

    def show(name: str, line: str) -> None:
        click.echo(f"{name}: {line}")

    def say(line: str) -> None:
        click.echo(f"weft ssh: {line}", err=True)

    sys.exit(asyncio.run(SshCluster(plan, show, say).run()))


def _names(hosts: tuple[str, ...], hostfile: Path | None) -> list[str]:
    names = list(hosts)
    if hostfile is not None:
        lines = (line.partition("#")[0].strip() for line in hostfile.read_text().splitlines())
        names += [line for line in lines if line]
    if not names:
        raise ConfigError("no host is given; name one or more, or a file of them with --hostfile")
    for name in names:
        if name.startswith("-") or any(character.isspace() for character in name):
            raise ConfigError(f"{name!r} is not the name of a host")
    return names


def _ssh_options(options: dict[str, Any]) -> list[str]:
    flags = {
        "-F": options["ssh_config"],
        "-l": options["ssh_username"],
        "-p": options["ssh_port"],
        "-i": options["ssh_private_key"],
    }
    given = [word for flag, value in flags.items() if value for word in (flag, str(value))]
    return given + [word for option in options["ssh_options"] for word in ("-o", option)]


def _passed_on(settings: Any, options: dict[str, Any]) -> list[str]:
    """Return the options of a command at the far end, of those that were given here."""
    words = {}
    for setting in settings:
        value = options[parameter_of(setting)]
        if value is not None:
            words[setting.option] = setting.kind.show(value)
    return [f"{option}={value}" for option, value in words.items()]
