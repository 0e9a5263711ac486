"""Plots of a recording as one SVG: how many tasks ran, of what, and how long each waited. Pure.

The number of marks is bounded, whatever the number of tasks: curves have `N_POINTS` steps, and of
tasks that are drawn one by one, evenly chosen ones. Like the other pictures of the client it has no
background, and colours that are readable on light and dark pages; it refers to no other file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ...protocol.markup import Content, Markup, element
from ...protocol.timelines import BAD_COLOUR, COLOURS, OTHER_COLOUR
from ...protocol.wording import counted, grouped, lasting
from ..insight.attempt_timing import AttemptTiming
from ..insight.recording import MemberChange, Recorded, Recording, Submissions, recording_of
from .timeline import N_POINTS, busy_threads, category_of, colours_of

#: Tasks that the last panel draws, one line for each.
MAX_TASKS: Final = 300
#: Names of a legend are cut to so many characters.
_MAX_NAME: Final = 40
#: The drawing, and the place of a panel in it: its left and right edge, its top and height.
_WIDTH: Final = 960
_LEFT: Final = 64
_RIGHT: Final = _WIDTH - 16
_TITLE: Final = 44
_HEIGHT: Final = 180
_FOOT: Final = 40
_LEGEND_LINE: Final = 18
#: Units of times, by their seconds, from the largest; the last one is for all that is shorter.
_UNITS: Final = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
#: Ticks of an axis, about.
_N_TICKS: Final = 6
#: What an XML file must not have in it, and controls that nobody sees.
_NOT_XML: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: Contrast above 4 with white and with nearly black alike.
_INK: Final = "#7a7a7a"

_STYLE: Final = (
    f"text {{ font: 12px sans-serif; fill: {_INK}; }}"
    " .title { font-size: 14px; font-weight: 600; }"
    f" .axis {{ stroke: {_INK}; fill: none; }} .grid {{ stroke: {_INK}; stroke-opacity: .25; }}"
    f" .running {{ stroke: {COLOURS[0]}; fill: {COLOURS[0]}; fill-opacity: .3; }}"
    f" .threads {{ stroke: {_INK}; stroke-dasharray: 4 3; fill: none; }}"
    f" .waits {{ fill: {OTHER_COLOUR}; fill-opacity: .55; }} .runs {{ fill: {COLOURS[0]}; }}"
    f" .raised {{ fill: {BAD_COLOUR}; }}"
)


class _Scale(NamedTuple):
    """Where times and numbers are in a panel."""

    begin: float
    end: float
    most: float  #: the number at the top
    top: float

    def x(self, time: float) -> float:
        time = min(max(time, self.begin), self.end)
        share = (time - self.begin) / (self.end - self.begin)
        return round(_LEFT + share * (_RIGHT - _LEFT), 2)

    def y(self, number: float) -> float:
        return round(self.top + _HEIGHT - number / self.most * _HEIGHT, 2)


class TaskSpan(NamedTuple):
    """One task: when it was submitted, and its attempts, in order of their starts."""

    queued: float | None
    attempts: Sequence[AttemptTiming]

    @property
    def first(self) -> float:
        """When it began to wait, as far as that is known."""
        start = self.attempts[0].start
        return start if self.queued is None else min(self.queued, start)


def svg(records: Recorded, title: str = "") -> str:
    """Return plots of what was recorded: the text of an SVG file that needs no other file.

    The panels show how many tasks ran, by time; the same by span, or by function for tasks outside
    spans; and how long tasks waited and ran, from submission to end. When a client has fetched
    a result is not known to the cluster, so the time until then is not in it.

    Args:
        records: a recording, or records as `get_task_stream` returns them.
        title: shown above the panels.
    """
    recording = recording_of(records)
    timings = recording.timings
    tasks = task_spans(recording)
    begin = min([recording.begin, *(one.start for one in timings)])
    end = max([recording.end, begin + 1e-6, *(one.stop for one in timings)])
    parts: list[Content] = []
    y = 0.0
    if title:
        parts.append(element("text", title, x=_LEFT, y=22, class_="title"))
        y += 20.0
    if not timings:
        parts.append(element("text", "No task ended in this time.", x=_LEFT, y=y + 30))
        y += 50.0
    else:
        for panel in (_running(recording), _by_category(timings), _one_by_one(tasks)):
            drawn, height = panel(begin, end, y)
            parts.append(drawn)
            y += height
    lacks = recording.lacks()
    for text in lacks:
        parts.append(element("text", f"Missing: {text}.", x=_LEFT, y=y + 14))
        y += _LEGEND_LINE
    label = f"{counted(len(timings), 'attempt')} of {counted(len(tasks), 'task')}"
    drawing = element(
        "svg",
        element("title", f"{title or 'timeline'}: {label} in {lasting(end - begin)}"),
        element("style", Markup(_STYLE)),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {math.ceil(y) + 8}",
        width=_WIDTH,
        height=math.ceil(y) + 8,
        role="img",
        aria_label=label,
    )
    return printable(drawing) + "\n"


def printable(text: str) -> str:
    """Return a text with what XML does not allow in a file replaced, as names may have it in."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def task_spans(recording: Recording) -> list[TaskSpan]:
    """Return the tasks of a recording, in the order in which they began to wait."""
    submissions = Submissions(recording.changes)
    attempts: dict[object, list[AttemptTiming]] = {}
    for one in sorted(recording.timings, key=lambda timing: timing.start):
        attempts.setdefault(one.key, []).append(one)
    tasks = [
        TaskSpan(submissions.before(key, some[0].start), some) for key, some in attempts.items()
    ]
    return sorted(tasks, key=lambda task: (task.first, task.attempts[0].start))


def threads_over_time(
    members: Iterable[MemberChange], begin: float, end: float
) -> list[tuple[float, int]]:
    """Return `(time, number)`: how many threads the cluster had from then on; [] = not known."""
    threads: dict[str, int] = {}
    found: list[tuple[float, int]] = []
    for one in members:
        n = one.facts.get("nthreads", 0)
        if one.category == "worker" and one.change in ("present", "joined") and type(n) is int:
            threads[one.name] = n
        elif one.category == "worker" and one.change == "gone":
            threads.pop(one.name, None)
        else:
            continue
        time, total = min(max(one.time, begin), end), sum(threads.values())
        if found and found[-1][0] == time:
            found.pop()
        found.append((time, total))
    return found


# -- panels ----------------------------------------------------------------------------------------
_Panel = Callable[[float, float, float], "tuple[Markup, float]"]


def _running(recording: Recording) -> _Panel:
    def draw(begin: float, end: float, y: float) -> tuple[Markup, float]:
        busy = busy_threads(recording.timings, begin, end)
        threads = threads_over_time(recording.members, begin, end)
        most = max(*busy, *(n for _, n in threads), 1)
        scale = _Scale(begin, end, most, y + _TITLE)
        marks: list[Content] = [
            element("polygon", class_="running", points=_stairs(scale, busy, [0.0] * N_POINTS))
        ]
        if threads:
            path = [f"M{scale.x(threads[0][0])},{scale.y(threads[0][1])}"]
            path += [f"H{scale.x(time)}V{scale.y(n)}" for time, n in threads[1:]]
            marks.append(element("path", class_="threads", d="".join([*path, f"H{_RIGHT}"])))
        title = "Tasks that computed" + (", and threads (dashed)" if threads else "")
        return _panel("running", title, scale, marks), _TITLE + _HEIGHT + _FOOT

    return draw


def _by_category(timings: Sequence[AttemptTiming]) -> _Panel:
    def draw(begin: float, end: float, y: float) -> tuple[Markup, float]:
        colours = colours_of(timings, category_of)
        groups: dict[str | None, list[AttemptTiming]] = {name: [] for name in colours}
        others: set[str] = set()
        for one in timings:
            name = category_of(one)
            if name not in colours:
                others.add(name)
            groups.setdefault(name if name in colours else None, []).append(one)
        levels = {name: busy_threads(some, begin, end) for name, some in groups.items()}
        most = max(1.0, *map(sum, zip(*levels.values(), strict=True)))
        scale = _Scale(begin, end, most, y + _TITLE)
        marks: list[Content] = []
        legend: list[tuple[str, str]] = []
        below = [0.0] * N_POINTS
        for group, level in levels.items():
            above = [a + b for a, b in zip(below, level, strict=True)]
            colour = OTHER_COLOUR if group is None else COLOURS[colours[group]]
            text = counted(len(others), "other") if group is None else group
            shape = element(
                "polygon",
                element("title", f"{text}: {counted(len(groups[group]), 'attempt')}"),
                class_="category",
                fill=colour,
                points=_stairs(scale, above, below),
            )
            marks.append(shape)
            legend.append((colour, text))
            below = above
        title = "The same by span, or by function outside spans"
        panel = _panel("by-category", title, scale, marks)
        foot = y + _TITLE + _HEIGHT + _FOOT
        drawn, n_lines = _legend(legend, foot)
        return element("g", panel, drawn), _TITLE + _HEIGHT + _FOOT + n_lines * _LEGEND_LINE

    return draw


def _one_by_one(tasks: Sequence[TaskSpan]) -> _Panel:
    def draw(begin: float, end: float, y: float) -> tuple[Markup, float]:
        shown = evenly(tasks, MAX_TASKS)
        scale = _Scale(begin, end, len(tasks), y + _TITLE)
        height = max(round(_HEIGHT / len(shown), 2), 0.4)
        marks: list[Content] = []
        for place, task in shown:
            row = scale.y(place) - height
            if task.queued is not None:
                marks.append(_bar(scale, "waits", task.first, task.attempts[0].start, row, height))
            for one in task.attempts:
                kind = "raised" if one.is_failed else "runs"
                marks.append(_bar(scale, kind, one.start, one.stop, row, height))
        of = "" if len(shown) == len(tasks) else f", {len(shown)} of {grouped(len(tasks))} tasks"
        if all(task.queued is None for task in tasks):
            title = f"Start to end of each task (its submission is not recorded){of}"
        else:
            title = f"Submission, start and end of each task (not when its result was fetched){of}"
        panel = _panel("tasks", title, scale, marks)
        legend = [
            (OTHER_COLOUR, "waits from its submission to its start"),
            (COLOURS[0], "runs"),
            (BAD_COLOUR, "raised"),
        ]
        drawn, n_lines = _legend(legend, y + _TITLE + _HEIGHT + _FOOT)
        height_of_all = _TITLE + _HEIGHT + _FOOT + n_lines * _LEGEND_LINE
        return element("g", panel, drawn), height_of_all

    return draw


def evenly(tasks: Sequence[TaskSpan], n: int) -> list[tuple[int, TaskSpan]]:
    """Return at most `n` of some tasks, evenly chosen, each with its place among all."""
    if len(tasks) <= n:
        return [*enumerate(tasks)]
    places = [i * len(tasks) // n for i in range(n)]
    return [(place, tasks[place]) for place in places]


# -- marks -----------------------------------------------------------------------------------------
def _stairs(scale: _Scale, above: Sequence[float], below: Sequence[float]) -> str:
    """Return the points of what lies between two curves, each a number for equal times."""
    step = (_RIGHT - _LEFT) / len(above)
    xs = [round(_LEFT + i * step, 2) for i in range(len(above) + 1)]
    upper = [f"{x},{scale.y(n)}" for i, n in enumerate(above) for x in xs[i : i + 2]]
    lower = [f"{x},{scale.y(n)}" for i, n in enumerate(below) for x in xs[i : i + 2]]
    return " ".join(upper + lower[::-1])


def _bar(scale: _Scale, kind: str, start: float, stop: float, row: float, height: float) -> Markup:
    x = scale.x(start)
    width = max(round(scale.x(stop) - x, 2), 0.5 if kind != "waits" else 0)
    return element("rect", class_=kind, x=x, y=round(row, 2), width=width, height=height)


def _panel(name: str, title: str, scale: _Scale, marks: Iterable[Content]) -> Markup:
    top, foot = scale.top, scale.top + _HEIGHT
    parts: list[Content] = [element("text", title, x=_LEFT, y=top - 12, class_="title")]
    for number in ticks(scale.most):
        y = scale.y(number)
        parts.append(element("path", class_="grid", d=f"M{_LEFT},{y}H{_RIGHT}"))
        parts.append(
            _text(grouped(number) if number >= 1 else f"{number:g}", _LEFT - 6, y + 4, "end")
        )
    seconds = scale.end - scale.begin
    for time in ticks(seconds):
        x = scale.x(scale.begin + time)
        parts.append(element("path", class_="axis", d=f"M{x},{foot}v4"))
        parts.append(_text(_time(time, seconds), x, foot + 18, "middle"))
    frame = element("path", class_="axis", d=f"M{_LEFT},{top}V{foot}H{_RIGHT}")
    return element("g", parts, marks, frame, class_="panel", id=name)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor)


def _time(seconds: float, of: float) -> str:
    """Return the text of a tick; all of an axis have the same unit."""
    size, unit = next((one for one in _UNITS if of >= 2 * one[0]), _UNITS[-1])
    return f"{seconds / size:.6g} {unit}"


def ticks(last: float) -> list[float]:
    """Return round numbers from 0 to another one, about `_N_TICKS` of them."""
    rough = last / _N_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((n * power for n in (1, 2, 5, 10) if n * power >= rough), 10 * power)
    return [float(f"{i * step:.12g}") for i in range(math.floor(last / step + 1e-9) + 1)]


def _legend(entries: Sequence[tuple[str, str]], y: float) -> tuple[Markup, int]:
    """Draw names beside their colours, in two columns; return how many lines they take."""
    parts: list[Content] = []
    for i, (colour, text) in enumerate(entries):
        x, line = _LEFT + (i % 2) * (_RIGHT - _LEFT) / 2, y + (i // 2) * _LEGEND_LINE
        parts.append(element("circle", cx=x + 5, cy=line - 4, r=5, fill=colour))
        name = text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"
        parts.append(_text(name, x + 16, line, "start"))
    return element("g", parts, class_="legend"), (len(entries) + 1) // 2
