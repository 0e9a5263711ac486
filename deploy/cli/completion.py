"""`weft completion`: the script by which a shell completes `weft`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .group import weft


@weft.command(short_help="Print the script by which a shell completes weft.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which bash (4.4 or newer), zsh or fish completes weft.

    Commands and options are completed, and names of workers, addresses and connection files where
    a scheduler answers within a second.

    \b
    Examples:
      weft completion bash >> ~/.bashrc
      weft completion zsh >> ~/.zshrc
      weft completion fish > ~/.config/fish/completions/weft.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(weft, {}, "weft", "_WEFT_COMPLETE").source())
