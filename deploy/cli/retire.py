"""`weft retire`: lets workers finish what they run, and leave."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..overview.wording import describe_end
from .completing import complete_workers
from .group import Chosen, fail, scheduler_and_workers, weft
from .hints import CommandWithCodes
from .options import Count, time_option

if TYPE_CHECKING:
    from ..http.viewer import Viewer


@weft.command(cls=CommandWithCodes, short_help="Let workers finish what they run, and leave.")
@click.argument("workers", nargs=-1, metavar="[WORKER]...", shell_complete=complete_workers)
@click.option("-n", "n", type=Count(0), metavar="N", help="How many of them leave.")
@click.option("--keep", type=Count(0), metavar="N", help="How many workers stay, instead of -n.")
@click.option("--drop", is_flag=True, help="Lose results that no other worker has room for.")
@time_option("--timeout", "1h", "Time to wait for their tasks. They leave all the same, later.")
@scheduler_and_workers
@click.option("--json", "as_json", is_flag=True, help="Print the ends as JSON, for programs.")
def retire(
    workers: tuple[str, ...],
    n: int | None,
    keep: int | None,
    drop: bool,
    timeout: float,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Let workers finish what they run, and leave; return when they are gone.

    Each WORKER is a name, an address, or a host with all its workers. An address is that of the
    scheduler if it is the first word, and there is no --scheduler. Without any worker, -n or --keep
    chooses: those whose end costs least go first. Unstarted tasks run elsewhere, and results that
    only they have are copied to workers that stay. One whose results have no room there, or that
    has an actor, is kept; with --drop it leaves, and they are lost. Workers that leave are not
    started again. It takes a token of role client.

    \b
    Examples:
      weft retire gpu-07
      weft retire -n 4
      weft retire --keep 2 --timeout 10m
    """
    import json

    if not workers and n is None and keep is None:
        raise click.UsageError("name the workers that leave, or give -n or --keep")
    if n is not None and keep is not None:
        raise click.UsageError("-n is how many leave, --keep how many stay; give one of them")

    ends, _ = chosen.ask(lambda viewer: ask_to_retire(viewer, workers, n, keep, timeout, drop=drop))
    if ends is None:
        fail(
            f"weft retire: they still run tasks after {timeout:g} s, or others have no room for "
            "their results; they get nothing more, and leave when that is over (--drop: when their "
            "tasks have ended)",
            1,
        )
    if as_json:
        click.echo(json.dumps(ends, indent=2))
    else:
        for end in ends.values():
            click.echo(describe_end(end))
        if not ends:
            click.echo("no worker has to leave")
    if any(end["end"] != "left" for end in ends.values()):
        sys.exit(1)


async def ask_to_retire(
    viewer: Viewer,
    names: tuple[str, ...],
    n: int | None,
    keep: int | None,
    timeout_s: float,
    *,
    drop: bool = False,
) -> dict[str, dict[str, Any]] | None:
    """Ask the scheduler; return {address: what became of a worker}, None after the time-out.

    Raises:
        UnknownWorker: no connected worker has one of these names.
    """
    import uuid

    from ...client.insight.inspecting import choose_workers

    arguments: dict[str, Any] = {"order": uuid.uuid4().hex}
    if names:
        found = (await viewer.ask_all("workers"))["workers"]
        arguments["workers"] = [w["id"] for w in choose_workers(found, set(names)).values()]
    arguments |= {k: v for k, v in (("n", n), ("keep", keep)) if v is not None}
    if drop:
        arguments["losses"] = "drop"
    try:
        answer = await viewer.ask_all("retire", arguments, timeout_s)
    except TimeoutError:
        return None
    ends: dict[str, dict[str, Any]] = answer["workers"]
    return ends
