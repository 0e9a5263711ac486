"""The order in which systems run where they take turns, and how the figures of turns are joined.
Pure: no processes, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .results import Cell, Cells

#: A system and the workloads that it runs before the next system is started.
Turn = tuple[str, list[str]]


def turns_of(
    work: Mapping[str, Sequence[str]], parts: Sequence[Sequence[str]], n_rounds: int
) -> Iterator[Turn]:
    """Yield who runs what, part by part and round by round.

    Each other round goes through the systems backwards, so that none always runs right after the
    same one, and a machine that becomes slower harms all of them alike.

    Args:
        work: {system: all its workloads}
        parts: the workloads, in groups that a system runs in one go.
    """
    for number in range(n_rounds):
        systems = list(work)[:: -1 if number % 2 else 1]
        for part in parts:
            for system in systems:
                names = [name for name in work[system] if name in part]
                if names:
                    yield system, names


def is_hopeless(cells: Cells, workload: str, system: str) -> bool:
    """Return whether an earlier turn gave a reason, and no figure: another one would take as long
    and find the same.
    """
    cell = cells.get((workload, system))
    return cell is not None and cell.note is not None and not cell.runs


def joined(before: Cell | None, after: Cell) -> Cell:
    """Return one cell with the runs of both. The later note is kept."""
    if before is None:
        return after
    extra = {
        name: [*before.extra.get(name, []), *after.extra.get(name, [])]
        for name in [*before.extra, *(name for name in after.extra if name not in before.extra)]
    }
    return Cell(
        after.peer,
        after.workload,
        runs=[*before.runs, *after.runs],
        size=after.size or before.size,
        checksum=before.checksum if after.checksum is None else after.checksum,
        extra=extra,
        note=after.note or before.note,
        log=after.log or before.log,
    )
