"""Commands for queues of jobs: `weft pause` and `weft resume`."""

from __future__ import annotations

import click

from .group import Chosen, scheduler_options, weft
from .jobs import connected


@weft.command(short_help="Hold back the jobs of a queue; those that run go on.")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@scheduler_options
def pause(queues: tuple[str, ...], chosen: Chosen) -> None:
    """Hold back the jobs of these queues, of all clients; those that run go on.

    The queue of a job is the name that it was given: by 'weft submit --queue', or queue= in Python.
    If the scheduler has a journal, the queues are still paused when it is started again.

    \b
    Examples:
      weft pause nightly
    """
    with connected(chosen, "weft pause") as client:
        for name in queues:
            client.pause_queue(name)


@weft.command(short_help="Let the jobs of a paused queue begin again.")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@scheduler_options
def resume(queues: tuple[str, ...], chosen: Chosen) -> None:
    """Let the jobs of these queues begin again.

    \b
    Examples:
      weft resume nightly
    """
    with connected(chosen, "weft resume") as client:
        for name in queues:
            client.resume_queue(name)
