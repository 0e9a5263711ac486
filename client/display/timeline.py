"""The attempts of a task stream as a plot, and what other plots take of them. Pure.

The number of bars is bounded, whatever the number of attempts: of more, those that are shorter than
a *step* and begin in the same one on the same thread become a bar for each function, one behind the
other. So colours and the number of busy threads stay as they are, and what is lost cannot be seen
before one zooms far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from ...protocol import stream_plot
from ...protocol.attempt_columns import AttemptColumns
from ...protocol.markup import Markup, element
from ...protocol.timelines import N_COLOURS
from ...protocol.wording import counted, sized
from ..insight.attempt_timing import AttemptTiming

#: Bars of one plot, about; each takes some 20 bytes of a page, as it is compressed.
MAX_BARS: Final = 100_000
#: Points of the curve of busy threads.
N_POINTS: Final = 240
#: What functions without a colour are called where bars stand for several attempts.
_OTHERS: Final = "other functions"


class Bar(NamedTuple):
    """A bar of the plot: one attempt, or several that are drawn as one."""

    one: AttemptTiming  #: the first of them
    function: str
    start: float
    stop: float
    waited: float
    transfer: tuple[float, float] | None
    n: int = 1
    n_failed: int = 0


def _alone(one: AttemptTiming) -> Bar:
    return Bar(
        one, one.function, one.start, one.stop, one.waited, one.transfer, 1, int(one.is_failed)
    )


def bars_of(timings: Sequence[AttemptTiming], most: int = MAX_BARS) -> list[Bar]:
    """Return the bars of a plot, in order of their starts; at most about `most`."""
    found = sorted(timings, key=attrgetter("start"))
    if len(found) <= most:
        return [_alone(one) for one in found]
    begin, seconds = found[0].start, max(one.stop for one in found) - found[0].start
    known = colours_of(found)
    n_lanes = len({(one.address, one.thread) for one in found})
    step_s = max(seconds * n_lanes / most, 1e-9)
    while True:
        bars = [*_merged(found, begin, step_s, known)]
        if len(bars) <= most or step_s > seconds:
            return sorted(bars, key=attrgetter("start"))
        step_s *= 2


def _merged(
    timings: Sequence[AttemptTiming], begin: float, step_s: float, known: Mapping[str, int]
) -> Iterator[Bar]:
    """Yield the bars of attempts that are sorted by their starts."""
    steps: dict[tuple[str, int, int], dict[str, list[AttemptTiming]]] = {}
    for one in timings:
        if one.stop - one.start >= step_s:
            yield _alone(one)
            continue
        step = steps.setdefault((one.address, one.thread, int((one.start - begin) / step_s)), {})
        step.setdefault(one.function if one.function in known else _OTHERS, []).append(one)
    for step in steps.values():
        at = min(some[0].start for some in step.values())
        for function, some in step.items():
            stop = at + sum(one.stop - one.start - one.waited for one in some)
            fetched = [one.transfer for one in some if one.transfer is not None]
            transfer = (min(fetched)[0], max(stop for _, stop in fetched)) if fetched else None
            n_failed = sum(one.is_failed for one in some)
            yield Bar(some[0], function, at, stop, 0.0, transfer, len(some), n_failed)
            at = stop


def category_of(timing: AttemptTiming) -> str:
    """Return what an attempt is a part of: its spans, outermost first, or else its function."""
    return "/".join(timing.span) or timing.function


def colours_of(
    timings: Iterable[AttemptTiming],
    name_of: Callable[[AttemptTiming], str] = attrgetter("function"),
) -> dict[str, int]:
    """Return `{name: number of its colour}` of those that took most time."""
    seconds: dict[str, float] = {}
    for one in timings:
        name = name_of(one)
        seconds[name] = seconds.get(name, 0.0) + one.stop - one.start
    most = sorted(seconds, key=lambda name: (-seconds[name], name))
    return {name: i for i, name in enumerate(most[:N_COLOURS])}


def busy_threads(timings: Iterable[AttemptTiming], begin: float, end: float) -> list[float]:
    """Return how many threads computed, on average, in each of `N_POINTS` equal times."""
    step_s = (end - begin) / N_POINTS
    busy = [0.0] * N_POINTS
    # Sums of seconds at the edges, and differences of whole points between them: O(1) an attempt.
    change = [0.0] * (N_POINTS + 1)
    for one in timings:
        start, stop = max(one.start, begin), min(one.stop, end)
        if stop <= start:
            continue
        share = 1.0 - one.waited / max(one.stop - one.start, 1e-9)
        first = min(int((start - begin) / step_s), N_POINTS - 1)
        last = min(int((stop - begin) / step_s), N_POINTS - 1)
        if first == last:
            busy[first] += (stop - start) / step_s * share
            continue
        busy[first] += ((first + 1) - (start - begin) / step_s) * share
        busy[last] += ((stop - begin) / step_s - last) * share
        change[first + 1] += share
        change[last] -= share
    level = 0.0
    for i in range(N_POINTS):
        level += change[i]
        busy[i] += level
    return busy


def timeline(
    timings: Sequence[AttemptTiming],
    begin: float,
    end: float,
    n_threads: int = 0,
    hosts: Mapping[str, str] | None = None,
    max_bars: int = MAX_BARS,
) -> Markup:
    """Return the plot of the attempts between two times, seconds since 1970.

    Args:
        timings: the attempts, in any order.
        begin: the left edge.
        end: the right edge.
        n_threads: of the whole cluster; 0 = not known.
        hosts: {address of a worker: name of its host}, as far as they are known.
        max_bars: about; of more attempts several share a bar.
    """
    if not timings:
        return element("p", "No task ended in this time.", class_="soft")
    begin = min(begin, *(one.start for one in timings))
    end = max(end, begin + 1e-6, *(one.stop for one in timings))
    columns = _columns(bars_of(timings, max_bars), begin, hosts or {})
    return stream_plot.plot(columns, end - begin, n_threads)


def _columns(bars: Sequence[Bar], begin: float, hosts: Mapping[str, str]) -> AttemptColumns:
    """Return what the script of the plot reads, with times from `begin` on."""
    found = AttemptColumns()
    for one, function, start, stop, waited, transfer, n, n_failed in bars:
        if n_failed:
            found.raised.append((len(found.keys), one.type if n == 1 else f"in {n_failed} of them"))
        key = str(one.key) if n == 1 else counted(n, "attempt")
        found.keys.append(key.encode("utf-8", "replace"))
        found.stops.append(stop - begin)
        found.durations.append((stop - start - waited) * 1e6)
        found.waits.append(waited * 1e6)
        came, got = transfer or (stop, stop)
        found.arrivals.append((stop - came) * 1e6)
        found.fetches.append((stop - got) * 1e6)
        lane = hosts.get(one.address, ""), one.worker, one.address, one.thread
        found.lane_of.append(found.lanes.setdefault(lane, len(found.lanes)))
        found.function_of.append(found.functions.setdefault(function, len(found.functions)))
        note = _note(one) if n == 1 else ""
        found.note_of.append(found.notes.setdefault(note, len(found.notes)))
    return found


def _note(one: AttemptTiming) -> str:
    """Return what a plot says of an attempt beside its times."""
    parts = [] if one.is_failed else [f"{one.type}, {sized(one.nbytes)}"]
    parts += [f"span {', '.join(one.span)}"] if one.span else []
    return "; ".join(parts)


def natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts "w-2" before "w-10"."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
