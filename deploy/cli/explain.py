"""`weft explain`: why a task does not run or is not done."""

from __future__ import annotations

import click

from .group import Chosen, key_in, scheduler_options, weft
from .jobs import connected


@weft.command(short_help="Explain why a task does not run, or is not done.")
@click.argument("arguments", nargs=-1, metavar="KEY")
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print the parts, for programs.")
def explain(chosen: Chosen, arguments: tuple[str, ...], as_json: bool) -> None:
    """Explain why a task does not run or is not done, and where its time went.

    KEY is future.key. The explanation follows the task to the one that it waits for in the end:
    inputs, workers and what they lack, the place in the queue, locks and their holders. Of a
    detached job that has ended it says how, from the journal. 'weft info KEY' describes the task
    and its history.

    \b
    Examples:
      weft explain inc-0a1b2c3d
      weft explain tcp://node1:8786 inc-0a1b2c3d --json
    """
    import dataclasses
    import json

    from ...client.insight.explaining import read, unknown_task
    from ...protocol.errors import ConfigError

    key = key_in(arguments)
    if not key:
        raise click.UsageError("which task? Give its key: weft explain KEY")
    answer, _ = chosen.ask(lambda viewer: viewer.ask_all("explanations", {"keys": [key]}))
    for found in answer["explanations"]:
        click.echo(json.dumps(found, indent=2) if as_json else str(read(found)))
        return
    try:
        client = connected(chosen, "weft explain")
    except ConfigError:  # a token for viewing, which may not read the journal
        raise unknown_task(key) from None
    with client:  # the journal may know how it has ended
        ended = client.explain(key)
    click.echo(json.dumps(dataclasses.asdict(ended), indent=2) if as_json else str(ended))
