"""The `weft` command. Its errors are one line each, with the cause and a hint.

The exit codes of all commands are in `exits`.

`weft scheduler` must not import pickle, so everything but click is imported by the command that
needs it.
"""

from __future__ import annotations

import os
import sys

import click

from ...protocol.errors import WeftError
from . import (  # noqa: F401 - each adds its command to the group
    blocking,
    bundle,
    compare,
    completion,
    config,
    connect,
    dashboard,
    doctor,
    events,
    explain,
    jobs,
    journal,
    logs,
    profile,
    queues,
    retire,
    scale,
    scheduler,
    secret,
    selftest,
    ssh,
    status,
    stop,
    submit,
    timeline,
    token,
    top,
    worker,
)
from .group import Chosen, fail, key_in, scheduler_options, weft


@weft.command(short_help="Show a running cluster, or one task.")
@click.argument("arguments", nargs=-1, metavar="[KEY]")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole description, for programs.")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="List every scheduler of yours that can be found from this machine.",
)
def info(chosen: Chosen, arguments: tuple[str, ...], as_json: bool, is_all: bool) -> None:
    """Show a running cluster: its workers, clients and tasks.

    With the KEY of a task (future.key): its state, the reason for it, where it is, what it needs,
    and what happened to it lately.

    With --all: the schedulers of your run directory, of $WEFT_CONNECTION_FILE, and of the processes
    of yours that run 'weft scheduler' on this machine; the exit code is 1 if there is none.

    \b
    Examples:
      weft info
      weft info tcp://node1:8786 inc-0a1b2c3d
      weft info --all
    """
    import json

    if is_all:
        if arguments or any(chosen):
            raise click.UsageError("--all takes neither an address nor a file nor a key")
        _list_all(as_json)
        return

    from ..http.viewer import ask_task, describe_cluster
    from ..overview.wording import describe_task
    from .info import describe

    if key := key_in(arguments):
        task, _ = chosen.ask(lambda viewer: ask_task(viewer, key))
        click.echo(json.dumps(task, indent=2) if as_json else describe_task(task))
        return
    found, address = chosen.ask(describe_cluster)
    click.echo(json.dumps(found, indent=2) if as_json else describe(found, address))


def _list_all(as_json: bool) -> None:
    import json

    from ...protocol.trust.finding import run_directories
    from .info_all import describe_everything, find_everything

    found, notes = find_everything()
    if as_json:
        plain = {"schedulers": [one.to_plain() for one in found], "not_usable": notes}
        click.echo(json.dumps(plain, indent=2))
    else:
        click.echo(describe_everything(found, notes, run_directories(os.environ)))
    if not any(one.cluster for one in found):
        sys.exit(1)


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
        fail(f"{command}: {error.format_message()}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except WeftError as error:
        from .exits import exit_code_of

        fail(f"{name}: {error}", exit_code_of(error))
    sys.exit(code if isinstance(code, int) else 0)
