"""The task stream as a picture: one lane per thread, in HTML and SVG. Pure.

The number of bars is bounded, whatever the number of attempts: attempts that are narrower than a
*step* become one bar with what is beside them. Such a bar has the colour of the function that took
most of its time, and is the paler the less of its width is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from ...protocol import timelines
from ...protocol.markup import Content, Markup, element, join
from ...protocol.timelines import LANE, N_COLOURS
from ...protocol.wording import counted, grouped, lasting, sized
from ..insight.attempt_timing import AttemptTiming

#: Lanes that are drawn; the bars of all together, about; and the steps of one lane at most.
MAX_LANES: Final = 128
MAX_BARS: Final = 6000
MAX_STEPS: Final = 1500
#: Points of the curve of busy threads.
N_POINTS: Final = 240
#: Functions that the text of a bar names.
_N_NAMED: Final = 4
#: Width of the drawing in its own units, and heights of a bar, a transfer and the curve.
_WIDTH: Final = 10_000
_BAR: Final = 11
_TRANSFER: Final = 2
_CURVE: Final = 48


@dataclass(slots=True)
class Bar:
    """One or several attempts of a lane; or transfers, which have no functions."""

    start: float
    stop: float
    n: int = 0
    n_failed: int = 0
    busy_s: float = 0.0
    #: {function: seconds}
    functions: dict[str, float] = field(default_factory=dict)
    #: the only attempt, if there is one
    only: AttemptTiming | None = None

    @property
    def function(self) -> str:
        """The function that took most of the time."""
        return max(self.functions, key=self.functions.__getitem__, default="")


def merged(timings: Iterable[AttemptTiming], step_s: float) -> list[Bar]:
    """Return the bars of one lane, in order of time."""
    bars: list[Bar] = []
    last: Bar | None = None
    for one in sorted(timings, key=lambda timing: timing.start):
        seconds = one.stop - one.start
        if last is None or not _is_beside(last, one, step_s):
            last = Bar(one.start, one.stop, only=one)
            bars.append(last)
        else:
            last.stop = max(last.stop, one.stop)
            last.only = None
        last.n += 1
        last.n_failed += one.is_failed
        last.busy_s += seconds
        last.functions[one.function] = last.functions.get(one.function, 0.0) + seconds
    return bars


def _is_beside(bar: Bar, one: AttemptTiming, step_s: float) -> bool:
    """Return whether an attempt becomes a part of the bar before it."""
    if one.start - bar.stop >= step_s or one.stop - one.start >= step_s:
        return False
    if bar.only is not None and bar.stop - bar.start >= step_s:
        return False  # a long attempt is a bar of its own
    return bar.stop - bar.start < step_s or [*bar.functions] == [one.function]


def merged_transfers(timings: Iterable[AttemptTiming], step_s: float) -> list[Bar]:
    """Return the times in which inputs were fetched for the attempts of one lane."""
    bars: list[Bar] = []
    spans = [one.transfer for one in timings if one.transfer is not None]
    for start, stop in sorted(spans):
        if bars and start - bars[-1].stop < step_s:
            bars[-1].stop = max(bars[-1].stop, stop)
        else:
            bars.append(Bar(start, stop))
        bars[-1].n += 1
        bars[-1].busy_s += stop - start
    return bars


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


# -- HTML ------------------------------------------------------------------------------------------
def timeline(
    timings: Sequence[AttemptTiming], begin: float, end: float, n_threads: int = 0
) -> Markup:
    """Return the picture of the attempts between two times, seconds since 1970.

    Args:
        timings: the attempts, in any order.
        begin: the left edge.
        end: the right edge.
        n_threads: of the whole cluster; 0 = not known.
    """
    if not timings:
        return element("p", "No task ended in this time.", class_="soft")
    begin = min(begin, *(one.start for one in timings))
    end = max(end, begin + 1e-6, *(one.stop for one in timings))
    lanes: dict[tuple[str, int], list[AttemptTiming]] = {}
    for one in timings:
        lanes.setdefault((one.worker, one.thread), []).append(one)
    names = sorted(lanes, key=lambda lane: (natural(lane[0]), lane[1]))
    shown = names[:MAX_LANES]
    colours = colours_of(timings)
    step_s = (end - begin) / min(MAX_STEPS, max(MAX_BARS // (2 * len(shown)), 20))
    scale = _WIDTH / (end - begin)
    drawing = [
        _lane_of(lanes[lane], y * LANE, step_s, begin, scale, colours)
        for y, lane in enumerate(shown)
    ]
    has_several = {worker for worker, thread in shown if thread}
    labels = [_label(worker, thread, worker in has_several) for worker, thread in shown]
    busy = busy_threads(timings, begin, end)
    n_threads = n_threads or len(names)
    most = max(n_threads, *busy)
    return element(
        "div",
        _legend(colours, timings),
        element(
            "div",
            element("div", _scale_of_curve(most, n_threads), labels, class_="labels"),
            element(
                "div",
                _curve(busy, most, n_threads),
                element(
                    "svg",
                    drawing,
                    viewBox=f"0 0 {_WIDTH} {len(shown) * LANE}",
                    height=len(shown) * LANE,
                    preserveAspectRatio="none",
                    role="img",
                    aria_label=f"{len(timings)} attempts on {counted(len(names), 'thread')}",
                ),
                element("div", class_="axis"),
                class_="plot",
                tabindex=0,
                role="group",
                aria_label="Plot: + and - zoom, arrow keys move, 0 shows everything",
            ),
            class_="lanes",
        ),
        _more_lanes(len(names) - len(shown)),
        class_="timeline",
        data_seconds=f"{end - begin:.6f}",
    )


def natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts "w-2" before "w-10"."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _label(worker: str, thread: int, has_several: bool) -> Markup:
    text = f"{worker} · {thread}" if has_several else worker
    return element("div", text, title=f"worker {worker}, thread {thread}")


def _lane_of(
    timings: list[AttemptTiming],
    y: int,
    step_s: float,
    begin: float,
    scale: float,
    colours: dict[str, int],
) -> Markup:
    bars = [
        _rect(bar, y + 1, _BAR, begin, scale, _class_of(bar, colours), _text_of(bar))
        for bar in merged(timings, step_s)
    ]
    transfers = [
        _rect(bar, y + _BAR + 2, _TRANSFER, begin, scale, "ct", _text_of_transfers(bar))
        for bar in merged_transfers(timings, step_s)
    ]
    return join(bars, transfers)


def _rect(
    bar: Bar, y: int, height: int, begin: float, scale: float, name: str, text: str
) -> Markup:
    width = max((bar.stop - bar.start) * scale, 4.0)
    share = bar.busy_s / max(bar.stop - bar.start, 1e-9)
    return element(
        "rect",
        element("title", text),
        class_=name,
        x=f"{(bar.start - begin) * scale:.1f}",
        y=y,
        width=f"{width:.1f}",
        height=height,
        fill_opacity=f"{max(share, 0.3):.2f}" if share < 0.95 and bar.n > 1 else None,
    )


def _class_of(bar: Bar, colours: dict[str, int]) -> str:
    name = colours.get(bar.function)
    colour = "cx" if name is None else f"c{name}"
    return f"{colour} cf" if bar.n_failed else colour


def _text_of(bar: Bar) -> str:
    one = bar.only
    if one is not None:
        lines = [str(one.key), f"{lasting(one.stop - one.start)} on {one.worker}"]
        if one.waited:
            lines.append(f"of that it waited {lasting(one.waited)}")
        lines.append(f"raised {one.type}" if one.is_failed else f"{one.type}, {sized(one.nbytes)}")
        if one.span:
            lines.append("span " + ", ".join(one.span))
        return "\n".join(lines)
    most = sorted(bar.functions, key=bar.functions.__getitem__, reverse=True)
    lines = [f"{grouped(bar.n)} attempts, {lasting(bar.busy_s)} in {lasting(bar.stop - bar.start)}"]
    lines += [f"{name}: {lasting(bar.functions[name])}" for name in most[:_N_NAMED]]
    if len(most) > _N_NAMED:
        lines.append(f"and {counted(len(most) - _N_NAMED, 'more function')}")
    if bar.n_failed:
        lines.append(f"{grouped(bar.n_failed)} raised")
    return "\n".join(lines)


def _text_of_transfers(bar: Bar) -> str:
    of = "an attempt" if bar.n == 1 else f"{grouped(bar.n)} attempts"
    return f"inputs of {of} were fetched in {lasting(bar.stop - bar.start)}"


def _scale_of_curve(most: float, n_threads: int) -> Markup:
    """Return the numbers beside the curve, at its top and its foot."""
    title = f"how many threads computed; the line is at all {n_threads}"
    top = element("div", f"{most:.3g} threads busy")
    return element("div", top, element("div", "0"), class_="of-curve", title=title)


def _curve(busy: list[float], most: float, n_threads: int) -> Markup:
    """Draw how many threads computed, over time, from 0 to `most`; and a line at all threads."""
    width = _WIDTH / len(busy)
    points = [f"0,{_CURVE}"]
    for i, level in enumerate(busy):
        y = _height(level / most)
        points += [f"{i * width:.0f},{y}", f"{(i + 1) * width:.0f},{y}"]
    points.append(f"{_WIDTH},{_CURVE}")
    mean = sum(busy) / len(busy)
    text = f"{mean:.1f} of {n_threads} threads computed on average"
    return element(
        "svg",
        element("polygon", element("title", text), class_="curve", points=" ".join(points)),
        element("path", class_="all", d=f"M0,{_height(n_threads / most)}H{_WIDTH}"),
        viewBox=f"0 0 {_WIDTH} {_CURVE}",
        height=_CURVE,
        preserveAspectRatio="none",
        role="img",
        aria_label=text,
    )


def _height(share: float) -> str:
    return f"{_CURVE - share * (_CURVE - 2):.1f}"


def _legend(colours: dict[str, int], timings: Sequence[AttemptTiming]) -> Markup:
    entries: list[tuple[str, Content]] = [(f"c{i}", name) for name, i in colours.items()]
    n_others = len({one.function for one in timings}) - len(colours)
    if n_others:
        entries.append(("cx", counted(n_others, "other function")))
    if any(one.is_failed for one in timings):
        entries.append(("cf", "raised"))
    if any(one.transfer is not None for one in timings):
        entries.append(("ct", "inputs fetched"))
    return element(
        "ul",
        (
            element("li", element("i", class_=f"{name}"), element("span", text))
            for name, text in entries
        ),
        class_="legend",
    )


def _more_lanes(n: int) -> Markup | None:
    if not n:
        return None
    return element("p", f"{counted(n, 'more thread')} are not drawn.", class_="soft more")


#: Zooms a picture by its view box; see `timelines.SCRIPT`.
SCRIPT: Final = (
    timelines.SCRIPT
    + """\
for (const box of document.querySelectorAll(".timeline")) {
  const seconds = Number(box.dataset.seconds), plot = box.querySelector(".plot");
  if (!plot) continue;
  const pictures = [...plot.querySelectorAll("svg")];
  const digits = (step) => Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const tick = (s, step) => step < 1e-6 ? (s * 1e6).toFixed(1) + " µs" :
    seconds < 1e-3 ? (s * 1e6).toFixed(0) + " µs" :
    seconds < 1 ? (s * 1e3).toFixed(digits(step * 1e3)) + " ms" :
    seconds < 120 || step < 1 ? s.toFixed(digits(step)) + " s" :
    Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  timeRange(plot, {
    whole: () => [0, seconds],
    least: () => seconds / 1e4,
    tick,
    changed({left, shown}) {
      for (const picture of pictures) {
        const height = picture.viewBox.baseVal.height;
        picture.setAttribute("viewBox",
          `${left / seconds * 10000} 0 ${shown / seconds * 10000} ${height}`);
      }
    },
  }).all();
}
"""
)
