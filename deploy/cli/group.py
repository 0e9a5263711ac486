"""The group of all `weft` commands, and the options and the end that they share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click

from ...protocol.host.versions import weft_version
from ...protocol.settings import common
from .addressing import SchedulerArgument
from .completing import complete_addresses, complete_connection_files
from .hints import CommandGroup
from .options import from_table

if TYPE_CHECKING:
    from ...protocol.settings.sources import Settings
    from ...protocol.trust.connection_file import ConnectionFile
    from ...protocol.wire.levels import Level
    from ..http.viewer import Viewer

T = TypeVar("T")


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


class Chosen(NamedTuple):
    """The scheduler of a command, as its options choose it."""

    connection_file: Path | None
    address: str | None

    def find(self) -> ConnectionFile:
        """Find it; see `find_scheduler`."""
        from ..finding import find_scheduler

        return find_scheduler(*self)

    def demand(self, level: Level, what: str) -> ConnectionFile:
        """Find it, and check that the token permits what `what` does."""
        found = self.find()
        found.demand(level, what)
        return found

    def ask(self, question: Callable[[Viewer], Awaitable[T]]) -> tuple[T, str]:
        """Ask it; see `asking`."""
        from .info import asking

        return asking(self.find(), question)


def scheduler_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ADDRESS, also as --scheduler, and --connection-file, as the parameter `chosen`."""

    @functools.wraps(function)
    def call(address: str | None, at: str | None, connection_file: Path | None, **more: Any) -> Any:
        if address and at and address != at:
            raise click.UsageError(f"two schedulers: {address}, and {at} by --scheduler")
        return function(chosen=Chosen(connection_file, address or at), **more)

    return _with_address(call)


def scheduler_and_workers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same to a command whose arguments `workers` may be addresses, too.

    With --scheduler, all arguments are workers, unless the first is the same address.
    """

    @functools.wraps(function)
    def call(
        address: str | None,
        at: str | None,
        connection_file: Path | None,
        workers: tuple[str, ...],
        **more: Any,
    ) -> Any:
        if address and at and address != at:
            workers = address, *workers
        chosen = Chosen(connection_file, at or address)
        return function(chosen=chosen, workers=workers, **more)

    return _with_address(call)


def _with_address(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the parameters by which a command finds a scheduler."""
    option = click.option(
        "--scheduler",
        "at",
        metavar="ADDRESS",
        shell_complete=complete_addresses,
        help="Address of the scheduler; it may also be the first word after the command. Default: "
        "that of the connection file.",
    )
    argument = click.argument("address", cls=SchedulerArgument)
    return argument(option(connection_file_option(function)))


def key_in(arguments: Sequence[str]) -> str:
    """Return the key of a task, which is the only argument beside ADDRESS; "" if there is none."""
    if len(arguments) > 1:
        given = " ".join(arguments)
        raise click.UsageError(f"one key is expected, not {len(arguments)}: {given}")
    return arguments[0] if arguments else ""


def start_log(given: Settings) -> None:
    """Write the lines of the log to standard error, as the settings say."""
    from ...protocol.host.log_lines import log_to_stderr
    from ...protocol.host.log_ring import keep_latest

    log_to_stderr(given[common.LOG_LEVEL].upper(), given[common.LOG_FORMAT])
    keep_latest()


def fail(text: str, code: int) -> NoReturn:
    """End with one line on standard error and this exit code."""
    click.echo(text, err=True)
    sys.exit(code)
