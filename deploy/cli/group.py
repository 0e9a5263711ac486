"""The group of all `weft` commands, and the options and the end that they share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import click

from ...protocol.host.versions import weft_version
from ...protocol.settings import common
from ..child import LOG_FORMAT
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


def scheduler_options(function: F) -> F:
    """Add ADDRESS and --connection-file, which find a scheduler."""
    argument = click.argument("address", required=False, shell_complete=complete_addresses)
    return argument(connection_file_option(function))


def start_log(level: str) -> None:
    """Write the lines of the log to standard error, from this level on."""
    from ...protocol.host.log_ring import keep_latest

    logging.basicConfig(level=level.upper(), format=LOG_FORMAT)
    keep_latest()


def fail(text: str, code: int) -> NoReturn:
    """End with one line on standard error and this exit code."""
    click.echo(text, err=True)
    sys.exit(code)
