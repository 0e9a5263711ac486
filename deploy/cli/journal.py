"""`weft journal`: the file in which a scheduler records detached jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from .group import weft

_ACTIONS: Final = ("backup", "restore", "compact")


@weft.command(short_help="Back up, restore or compact the record of detached jobs.")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("journal", type=click.Path(path_type=Path))
@click.argument("copy", type=click.Path(path_type=Path), required=False)
def journal(action: str, journal: Path, copy: Path | None) -> None:
    """Back up, restore or compact the journal of a scheduler: its record of detached jobs.

    JOURNAL is the file, or the scheduler's state directory, on the machine of the scheduler, which
    may go on. COPY is the file to write a backup to, or to restore it from. A journal is restored
    while no scheduler has it open; the one before is kept beside it. 'weft queue' lists the jobs.

    \b
    Examples:
      weft journal backup /var/lib/weft jobs-monday.sqlite
      weft journal compact /var/lib/weft
      weft journal restore /var/lib/weft/journal.sqlite jobs-monday.sqlite
    """
    from ...protocol.wording import sized
    from ...scheduler import journal_files

    file = journal_files.file_in(journal)
    if action == "compact":
        if copy is not None:
            raise click.UsageError("compact takes no COPY")
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
