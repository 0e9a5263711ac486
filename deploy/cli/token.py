"""`weft token`: derives the token of one role and writes a connection file with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...protocol.errors import ConfigError
from .group import Chosen, scheduler_options, weft
from .options import file_option

if TYPE_CHECKING:
    from ...protocol.trust.connection_file import ConnectionFile

#: As `protocol/wire/levels.py` has them, the highest first; tests compare the two.
ROLES: Final = ("admin", "client", "worker", "view")


@weft.command(short_help="Write a connection file for one role, or print it.")
@scheduler_options
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="What the token permits; see above.",
)
@click.option(
    "--user",
    default="",
    metavar="NAME",
    help="The user whose token of role client this is.",
)
@file_option("--output", "File to write, with mode 0600. Default: standard output.")
@click.option(
    "--bare",
    is_flag=True,
    help="Only the token, for $WEFT_TOKEN_FILE, or for the credentials_file of Prometheus.",
)
@file_option(
    "--token-file", "Derive the token from the one in this file, without a scheduler; with --bare."
)
def token(
    chosen: Chosen,
    role: str,
    user: str,
    output: Path | None,
    bare: bool,
    token_file: Path | None,
) -> None:
    """Write a connection file for one role, or print it.

    \b
    admin    may do everything, shutdown() too: the scheduler's own file has it
    client   submits tasks and reads results
    worker   runs workers
    view     reads: 'weft info', and the pages; /metrics takes this one only

    Each role may do what the roles below it may. The token of a role is derived from that of the
    role above it, and not the other way round: give each machine, user and program the file of the
    least role that it needs. A single token cannot be revoked: give the scheduler another
    token of its own, and it accepts none of the old ones.

    The token of a client may name a user; the token of another user cannot be made from it.
    Users take turns on the cluster, and each has limits of its own.

    \b
    Examples:
      weft token --role client --output client.json
      weft token --role client --user ann --output ann.json
      weft token --role view --bare --output /etc/prometheus/weft-token
    """
    if token_file is not None:
        if not bare or any(chosen):
            raise ConfigError("it needs --bare, and no scheduler", "--token-file")
        _give_bare(_from_token_file(token_file, role, user), output)
        return
    made = _from_scheduler(chosen, role, user)
    if bare:
        _give_bare(made.token, output)
    elif not made.cluster_id:
        raise ConfigError(
            f"{made.source} has only a token, and a connection file needs more: use --bare, or "
            "the scheduler's connection file"
        )
    elif output is None:
        click.echo(made.to_text(), nl=False)
    else:
        _check_existing(output, role)
        made.write(output)


def _from_token_file(path: Path, role: str, user: str) -> str:
    from ...protocol.trust.secret_files import read_token_file
    from ...protocol.trust.security import Security

    return Security(read_token_file(path).encode()).token_for(role, user)


def _from_scheduler(chosen: Chosen, role: str, user: str) -> ConnectionFile:
    from dataclasses import replace

    from ...protocol.trust import finding

    found = finding.find(*chosen, os.environ)
    try:
        return replace(found, token=found.to_security().token_for(role, user))
    except ConfigError as error:
        raise ConfigError(f"{found.source}: {error}") from None


def _give_bare(derived: str, output: Path | None) -> None:
    from ...protocol.trust.secret_files import write_secret_file

    if output is None:
        click.echo(derived)
    elif os.path.lexists(output):
        raise ConfigError(f"{output} exists and will not be replaced; remove it first")
    else:
        write_secret_file(output, derived + "\n", "token file")


def _check_existing(path: Path, role: str) -> None:
    """Refuse to replace the file of a higher role, and places where it would stand for another."""
    from ...protocol.trust.connection_file import ConnectionFile
    from ...protocol.trust.finding import run_directory
    from ...protocol.wire.levels import Level, level_of

    if path.absolute().parent == run_directory():
        raise ConfigError(
            f"each file in {path.absolute().parent} stands for a scheduler, and two would be found "
            "there; choose another folder"
        )
    if path.exists():
        level = level_of(ConnectionFile.read(path).token.encode())
        if level > Level[role.upper()]:
            raise ConfigError(
                f"{path} has a token of role {level.label}, which would be lost; choose another "
                "path, or remove it first"
            )
