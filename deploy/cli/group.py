"""The group of all `weft` commands, and the options and the end that they share."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar, cast

import click

from ...protocol.host.versions import weft_version
from ...protocol.settings import common
from ..processes.child import LOG_FORMAT
from .completing import complete_addresses, complete_connection_files
from .hints import CommandGroup
from .options import from_table

F = TypeVar("F", bound=Callable[..., Any])


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"weft {weft_version('from a checkout')} (Python {sys.version.split()[0]})")
        ctx.exit()


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


#: Adds the option --connection-file of commands that read the file.
connection_file_option: Final = from_table(
    common.CONNECTION_FILE, complete=complete_connection_files
)


#: Adds the option --scheduler, which each command that finds a scheduler takes.
scheduler_option: Final = click.option(
    "--scheduler",
    "at",
    metavar="ADDRESS",
    shell_complete=complete_addresses,
    help="Address of the scheduler. Default: that of the connection file.",
)


def scheduler_options(function: F) -> F:
    """Add ADDRESS, also as --scheduler, and --connection-file, which find a scheduler."""

    @functools.wraps(function)
    def found(address: str | None, at: str | None, **others: Any) -> Any:
        return function(address=one_address(address, at), **others)

    argument = click.argument("address", required=False, shell_complete=complete_addresses)
    return argument(scheduler_option(connection_file_option(cast("F", found))))


def one_address(argument: str | None, option: str | None) -> str | None:
    """Return the address of the scheduler, which is an argument or the value of --scheduler."""
    if argument and option and argument != option:
        raise click.UsageError(f"two schedulers: {argument}, and {option} by --scheduler")
    return argument or option


def split_address(arguments: Sequence[str], option: str | None) -> tuple[str | None, list[str]]:
    """Return the address of the scheduler, which may be the first argument, and the others."""
    from .info import is_address

    others = list(arguments)
    address = others.pop(0) if others and is_address(others[0]) else None
    return one_address(address, option), others


def start_log(level: str) -> None:
    """Write the lines of the log to standard error, from this level on."""
    from ...protocol.host.log_ring import keep_latest

    logging.basicConfig(level=level.upper(), format=LOG_FORMAT)
    keep_latest()


def fail(text: str, code: int) -> NoReturn:
    """End with one line on standard error and this exit code."""
    click.echo(text, err=True)
    sys.exit(code)
