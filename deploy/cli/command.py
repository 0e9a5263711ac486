"""The `weft` command. Its errors are one line each, with the cause and a hint.

Exit codes: 0 = ended on request (Ctrl-C and SIGTERM included, once it ran), 1 = it failed,
2 = the command or its configuration is at fault, 130 = Ctrl-C before it ran; `weft worker` has
more of them, see worker/family/exits.py.

`weft scheduler` must not import pickle, so everything but click is imported by the command that
needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ...protocol.errors import ConfigError, InternalError, WeftError
from . import scheduler, token, worker  # noqa: F401 - each adds its command to the group
from .group import fail, scheduler_options, weft
from .hints import Command


@weft.command(cls=Command)
@scheduler_options
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
        fail(f"{command}: {error.format_message()}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ConfigError as error:
        fail(f"{name}: {error}", 2)
    except InternalError as error:
        from ...worker.family.exits import EXIT_CRASHED

        fail(f"{name}: {error}", EXIT_CRASHED)
    except WeftError as error:
        fail(f"{name}: {error}", 1)
    sys.exit(code if isinstance(code, int) else 0)
