"""`weft journal`: the file in which a scheduler records detached jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from .group import weft
from .jobs import table
from .options import Count

_ACTIONS: Final = ("list", "backup", "restore", "compact")


@weft.command(short_help="List, back up, restore or compact the record of detached jobs.")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("journal")
@click.argument("copy", type=click.Path(path_type=Path), required=False)
@click.option("--limit", type=Count(1), default=50, show_default=True, help="List at most so many.")
def journal(action: str, journal: str, copy: Path | None, limit: int) -> None:
    """List, back up, restore or compact the journal of a scheduler: its record of detached jobs.

    JOURNAL is the file, or the scheduler's state directory, on the machine of the scheduler, which
    may go on. COPY is the file to write a backup to, or to restore it from. A journal is restored
    while no scheduler has it open; the one before is kept beside it. 'list' shows the jobs of any
    journal or copy, 'weft queue' those of a running scheduler.

    A journal in PostgreSQL is listed by its URL; PostgreSQL's own programs do the rest.

    \b
    Examples:
      weft journal backup /var/lib/weft jobs-monday.sqlite
      weft journal list jobs-monday.sqlite
      weft journal compact /var/lib/weft
      weft journal restore /var/lib/weft/journal.sqlite jobs-monday.sqlite
      weft journal list postgresql://weft@db.example.com/jobs
    """
    from ...client.insight.jobs import read_job
    from ...protocol.wording import sized
    from ...scheduler.journal import files as journal_files
    from ...scheduler.journal.places import file_of, jobs_at

    if action in ("compact", "list") and copy is not None:
        raise click.UsageError(f"{action} takes no COPY")
    if action == "list":
        found = [read_job(one) for one in jobs_at(journal, limit)]
        click.echo(table(found) if found else "no jobs", err=not found)
        return
    file = file_of(journal, action)
    if action == "compact":
        before, after = journal_files.compact(file)
        click.echo(f"{file}: {sized(before)}, {sized(before - after)} given back")
        return
    if copy is None:
        raise click.UsageError(f"{action} needs a COPY: the file of the backup")
    if action == "backup":
        click.echo(f"{copy}: {sized(journal_files.backup(file, copy))}")
        return
    kept = journal_files.restore(copy, file)
    click.echo(f"{file}: restored" + (f"; the one before is {kept}" if kept else ""))
