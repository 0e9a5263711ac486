"""Few log lines for many deaths of workers: one per cause, with a count.

A program whose tasks need more memory than their workers may lose a worker several times a second.
The first death of each cause is logged at once; later ones are counted, and reported together
after 5 s, then after 10 s, and so on up to a minute. Reasons that differ only in sizes
("0.26 of 0.20 GiB") are one cause.

A core.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from .wording import counted, placed_again, sized

#: Seconds until a cause is reported again: at first, and at most.
FIRST_PAUSE_S: Final = 5.0
MOST_PAUSE_S: Final = 60.0
#: Causes that are counted apart.
MAX_CAUSES: Final = 16
_MAX_NAMED: Final = 5
#: A number with a decimal point, but no part of an address or a version.
_SIZE: Final = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")

_ADVICE: Final = (
    ". Give the workers more memory (memory_limit=, weft worker --memory-limit), or let each task "
    "need less of it"
)


#: Why a worker ended that the kernel has killed; the beginnings of reasons that are of memory.
OUT_OF_MEMORY: Final = "out of memory: killed by the kernel's out-of-memory killer"
_OF_MEMORY: Final = ("memory limit", "out of memory")


def is_of_memory(reason: str) -> bool:
    """Return whether a process was ended because it used more memory than it may."""
    return reason.startswith(_OF_MEMORY)


def may_be_of_memory(reason: str) -> bool:
    """Return whether it was, or was killed so that it may have been."""
    return is_of_memory(reason) or reason.startswith("killed by SIGKILL")


def holdings_text(reason: str, worker: str, held_nbytes: list[int]) -> str:
    """Return what a worker held that died of its memory limit, and the remedy; else ""."""
    if not is_of_memory(reason):
        return ""
    text = ""
    if held_nbytes:
        text = f"; {worker} held {counted(len(held_nbytes), 'result')}, {sized(sum(held_nbytes))}"
    return text + "; raise memory_limit, or gather and release results in batches"


def with_advice(text: str, reason: str) -> str:
    """Return a line about deaths with what the user can do about them, if that is known."""
    return text + _ADVICE if is_of_memory(reason) else text


def summarize(reasons: Iterable[str]) -> str:
    """Name each cause once, in order of its first time, with its number if there are several."""
    causes: dict[tuple[str, ...], _Cause] = {}
    for reason in reasons:
        causes.setdefault(_kind(reason), _Cause(0.0)).add("", reason)
    return "; ".join(
        cause.reason + (f" ({cause.n} times)" if cause.n > 1 and len(causes) > 1 else "")
        for cause in causes.values()
    )


def _kind(reason: str) -> tuple[str, ...]:
    return tuple(_SIZE.split(reason))


@dataclass(slots=True)
class _Cause:
    """The deaths of one cause since its last line."""

    since: float
    pause_s: float = FIRST_PAUSE_S
    n: int = 0
    #: the text around the sizes of the last death, and the smallest and largest of each size
    texts: list[str] = field(default_factory=list)
    ranges: list[tuple[str, str]] = field(default_factory=list)
    workers: Counter[str] = field(default_factory=Counter)
    n_tasks: int = 0
    n_results: int = 0

    def add(self, worker: str, reason: str, n_tasks: int = 0, n_results: int = 0) -> None:
        """Count one."""
        sizes, texts = _SIZE.findall(reason), _SIZE.split(reason)
        if texts == self.texts:
            self.ranges = [
                (min(low, size, key=float), max(high, size, key=float))
                for (low, high), size in zip(self.ranges, sizes, strict=True)
            ]
        else:
            self.texts, self.ranges = texts, [(size, size) for size in sizes]
        self.n += 1
        self.workers[worker] += 1
        self.n_tasks += n_tasks
        self.n_results += n_results

    @property
    def reason(self) -> str:
        """The text of all of them, with ranges where their sizes differ."""
        sizes = [low if low == high else f"{low} to {high}" for low, high in self.ranges]
        return "".join(text + size for text, size in zip(self.texts, [*sizes, ""], strict=True))

    @property
    def names(self) -> str:
        """The workers with the most deaths."""
        named = self.workers.most_common(_MAX_NAMED)
        names = ", ".join(f"{name} {n} times" if n > 1 else name for name, n in named)
        n_others = len(self.workers) - len(named)
        return names + (f" and {n_others} other{'s' * (n_others > 1)}" if n_others else "")


class DeathLog:
    """The causes that were logged a short time ago, and the deaths of them since then."""

    __slots__ = ("_causes", "_verb")

    def __init__(self, verb: str) -> None:
        """Begin with none. `verb` follows "workers" in the lines."""
        self._verb = verb
        #: {kind of reason: its cause}; () for all that came while it was full
        self._causes: dict[tuple[str, ...], _Cause] = {}

    def note(
        self, worker: str, reason: str, now: float, *, n_tasks: int = 0, n_results: int = 0
    ) -> bool:
        """Record a death; return whether it is the first of its cause, to be logged at once.

        Args:
            worker: its name.
            reason: why it died.
            now: the time, in seconds.
            n_tasks: number of tasks that are placed again.
            n_results: number of results that it had.
        """
        kind = _kind(reason)
        if kind not in self._causes:
            if len(self._causes) < MAX_CAUSES:
                self._causes[kind] = _Cause(now)
                return True
            kind = ()
        self._causes.setdefault(kind, _Cause(now)).add(worker, reason, n_tasks, n_results)
        return False

    def due(self, now: float) -> list[str]:
        """Return a line for each cause with new deaths whose pause is over."""
        lines = []
        for kind, cause in list(self._causes.items()):
            if now - cause.since < cause.pause_s:
                continue
            if cause.n:
                lines.append(self._line(kind, cause, now))
                pause_s = min(2 * cause.pause_s, MOST_PAUSE_S)
                self._causes[kind] = _Cause(now, pause_s)
            else:
                del self._causes[kind]
        return lines

    @property
    def next_due(self) -> float:
        """When the first pause is over, so that `due` may have something; inf if there is none."""
        return min((c.since + c.pause_s for c in self._causes.values()), default=inf)

    def finish(self, now: float) -> list[str]:
        """Return the lines of all counted deaths, and begin anew."""
        lines = [self._line(kind, cause, now) for kind, cause in self._causes.items() if cause.n]
        self._causes.clear()
        return lines

    def _line(self, kind: tuple[str, ...], cause: _Cause, now: float) -> str:
        reason = cause.reason if kind else f"other causes, the last one: {cause.reason}"
        text = (
            f"workers {self._verb} {cause.n} more time{'s' * (cause.n > 1)} "
            f"in {now - cause.since:.0f} s ({reason}): {cause.names}"
        )
        if cause.n_tasks or cause.n_results:
            text += f"; {placed_again(cause.n_tasks, cause.n_results)}"
        return with_advice(text, reason)
