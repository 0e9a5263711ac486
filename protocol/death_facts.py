"""The facts about a worker process that died, as its supervisor and the scheduler know them.

They travel as a small map of plain values in the supervisor's report, and as plain items in the
failure of a task that was given up. A reader keeps what it understands, and bounds it: the map
comes from another process, which may be of another version.

A core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from .deaths import may_be_of_memory
from .wording import counted, sized

#: Lines of a worker's log that are kept, and characters of each, and of all of them together.
MAX_LINES: Final = 20
MAX_LINE_CHARS: Final = 300
MAX_LOG_CHARS: Final = 4000
#: Functions that are named.
MAX_HELD: Final = 3
_CUT: Final = " [...]"


class HeldResults(NamedTuple):
    """The results of one function that a worker held."""

    function: str
    n_results: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class DeathFacts:
    """The facts about a worker process that died; its text is a few lines, "" if none is known.

    Attributes:
        peak_nbytes: the largest resident memory that it ever had, or that a process had which its
            tasks had started; None = not known.
        n_oom_kills: processes of its control group that the kernel's out-of-memory killer has
            ended while it lived; None = not known.
        held_most: results that it held, of the functions that took most bytes.
        last_lines: of its log, at most 20.
    """

    peak_nbytes: int | None = None
    n_oom_kills: int | None = None
    held_most: tuple[HeldResults, ...] = ()
    last_lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = []
        if memory := self.of_memory():
            lines.append(f"{memory[0].upper()}{memory[1:]}.")
        if self.last_lines:
            lines.append("The last lines of its log:")
            lines += [f"  {line}" for line in self.last_lines]
        return "\n".join(lines)

    def of_memory(self) -> str:
        """Return what is known of its memory, for the middle of a line; "" = nothing."""
        parts = []
        if self.peak_nbytes is not None:
            parts.append(f"its memory was {sized(self.peak_nbytes)} at most")
        if self.held_most:
            parts.append(
                "it held "
                + ", ".join(
                    f"{counted(held.n_results, 'result')} of {held.function} ({sized(held.nbytes)})"
                    for held in self.held_most
                )
            )
        if self.n_oom_kills:
            n = self.n_oom_kills
            of_them = "1 process" if n == 1 else f"{n} processes"
            parts.append(f"the kernel's out-of-memory killer ended {of_them} of its control group")
        return "; ".join(parts)

    def of_memory_after(self, reason: str) -> str:
        """Return what a line about a death adds about memory; "" if that is not the cause.

        A supervisor of an earlier version reports no facts: its lines stay as they were.
        """
        known = self.of_memory() if self.peak_nbytes is not None else ""
        return f"; {known}" if known and may_be_of_memory(reason) else ""

    def to_plain(self) -> dict[str, Any]:
        """Return the map of a supervisor's report, without what is not known."""
        plain: dict[str, Any] = {}
        if self.peak_nbytes is not None:
            plain["peak_nbytes"] = self.peak_nbytes
        if self.n_oom_kills is not None:
            plain["n_oom_kills"] = self.n_oom_kills
        if self.last_lines:
            plain["last_lines"] = "\n".join(self.last_lines)
        return plain

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> DeathFacts:
        """Return the facts of a report, as far as they are understood."""
        return DeathFacts(
            _count(plain.get("peak_nbytes")),
            _count(plain.get("n_oom_kills")),
            (),
            last_lines_of(_text(plain.get("last_lines"))),
        )

    def holding(self, held_most: Iterable[HeldResults]) -> DeathFacts:
        """Return the same facts, with the results that the scheduler has placed there."""
        return replace(self, held_most=tuple(held_most))

    def to_items(self) -> list[Any]:
        """Return the items of a failure: numbers, and texts with a line for each entry."""
        if self == DeathFacts():
            return []
        held = [f"{n} {nbytes} {' '.join(name.split())}" for name, n, nbytes in self.held_most]
        lines = "\n".join(self.last_lines)
        return [self.peak_nbytes, self.n_oom_kills, "\n".join(held), lines]

    @staticmethod
    def from_items(items: list[Any]) -> DeathFacts:
        """Return the facts of a failure, as far as there are any that are understood."""
        peak, n_oom_kills, held, lines, *_ = [*items, None, None, None, None]
        held_most = []
        for line in _text(held).splitlines():
            n, nbytes, name, *_ = [*line.split(" ", 2), "", ""]
            if name and n.isdecimal() and nbytes.isdecimal():
                held_most.append(HeldResults(name, int(n), int(nbytes)))
        return DeathFacts(
            _count(peak), _count(n_oom_kills), tuple(held_most), last_lines_of(_text(lines))
        )


def most_of(sizes: Iterable[tuple[str, int]]) -> list[HeldResults]:
    """Add up results by function; return those that take most bytes.

    Args:
        sizes: the function and the bytes of each result.
    """
    found: dict[str, tuple[int, int]] = {}
    for function, nbytes in sizes:
        n, total = found.get(function, (0, 0))
        found[function] = n + 1, total + nbytes
    most = sorted(found.items(), key=lambda item: -item[1][1])[:MAX_HELD]
    return [HeldResults(function, n, nbytes) for function, (n, nbytes) in most if nbytes]


def last_lines_of(log: str) -> tuple[str, ...]:
    """Return the last lines of a log that are kept: few, none too long, no control characters."""
    lines: list[str] = []
    left = MAX_LOG_CHARS
    for line in reversed(log.splitlines()):
        if len(lines) == MAX_LINES:
            break
        shown = "".join(c if c.isprintable() else " " for c in line[: MAX_LINE_CHARS + 1]).rstrip()
        if len(shown) > MAX_LINE_CHARS:
            shown = shown[: MAX_LINE_CHARS - len(_CUT)] + _CUT
        left -= len(shown)
        if left < 0:
            break
        if shown:
            lines.append(shown)
    return tuple(reversed(lines))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _text(value: Any) -> str:
    return value if type(value) is str else ""
