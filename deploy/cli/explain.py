"""`weft explain`: why a task does not run or is not done."""

from __future__ import annotations

import click

from .group import Chosen, key_in, scheduler_and, weft


@weft.command(short_help="Explain why a task does not run, or is not done.")
@scheduler_and("KEY")
@click.option("--json", "as_json", is_flag=True, help="Print the parts, for programs.")
def explain(chosen: Chosen, arguments: list[str], as_json: bool) -> None:
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

    from ...client.insight.explaining import read, unknown_task

    key = key_in(arguments)
    if not key:
        raise click.UsageError("which task? Give its key: weft explain KEY")
    answer, _ = chosen.ask(lambda viewer: viewer.ask_all("explanations", {"keys": [key]}))
    for found in answer["explanations"]:
        click.echo(json.dumps(found, indent=2) if as_json else str(read(found)))
        return
    raise unknown_task(key)
