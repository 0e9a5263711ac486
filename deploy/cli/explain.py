"""`weft explain`: why a task does not run or is not done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .group import connection_file_option, scheduler_option, split_address, weft
from .hints import Command

if TYPE_CHECKING:
    from ..http.viewer import Viewer


@weft.command(cls=Command, short_help="Explain why a task does not run, or is not done.")
@click.argument("arguments", nargs=-1, metavar="[ADDRESS] KEY")
@scheduler_option
@connection_file_option
@click.option("--json", "as_json", is_flag=True, help="Print the parts, for programs.")
def explain(
    arguments: tuple[str, ...],
    at: str | None,
    connection_file: Path | None,
    as_json: bool,
) -> None:
    """Explain why a task does not run or is not done, and where its time went.

    KEY is future.key. The explanation follows the task to the one that it waits for in the end:
    inputs, workers and what they lack, the place in the queue, locks and their holders. An argument
    like tcp://host:8786 is the scheduler's ADDRESS. 'weft info KEY' describes the task and its
    history.

    \b
    Examples:
      weft explain inc-0a1b2c3d
      weft explain tcp://node1:8786 inc-0a1b2c3d --json
    """
    import json

    from ...client.insight.explaining import read
    from .info import asking

    address, keys = split_address(arguments, at)
    if not keys:
        raise click.UsageError("which task? Give its key: weft explain KEY")
    if len(keys) > 1:
        raise click.UsageError(f"one key is expected, not {len(keys)}: {' '.join(keys)}")
    info, _ = asking(connection_file, address, lambda viewer: _ask(viewer, keys[0]))
    click.echo(json.dumps(info, indent=2) if as_json else str(read(info)))


async def _ask(viewer: Viewer, key: str) -> dict[str, Any]:
    from ...client.insight.explaining import unknown_task
    from .info import TIMEOUT_S

    async for page in viewer.ask("explanations", {"keys": [key]}, TIMEOUT_S):
        for info in page["explanations"]:
            return dict(info)
    raise unknown_task(key)
