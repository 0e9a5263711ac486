"""The page of the last hour: which numbers it draws, its elements, and its style. Pure.

The script (`history_script.py`) gets the same table. It draws one chart for each row of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol.markup import Markup, element, join
from .documents import document
from .live_page import foot, tools


@dataclass(frozen=True)
class ChartSeries:
    """A line of a chart.

    Attributes:
        name: in the address of the page.
        label: for users.
        column: of the samples.
        colour: the variable of the style sheet.
        is_rate: the column only grows, and its growth for each second is shown.
        per: the number of the column that is 1.
        form: "line", "area", "stack" = an area above the others of that form, or "limit" = a
            dashed line.
    """

    name: str
    label: str
    column: str
    colour: str
    is_rate: bool = False
    per: float = 1.0
    form: str = "line"


@dataclass(frozen=True)
class Chart:
    """Lines with one axis.

    Attributes:
        title: of it, with its unit.
        unit: "" = a number, "bytes", or what follows a number.
        series: its lines; later ones are drawn above.
    """

    title: str
    unit: str
    series: tuple[ChartSeries, ...]


CHARTS: Final = (
    Chart(
        "Tasks per second",
        "",
        (
            ChartSeries("done", "finished", "completed", "done", is_rate=True, form="area"),
            ChartSeries("failed", "failed", "failed", "fail", is_rate=True),
        ),
    ),
    Chart(
        "CPU of workers, cores",
        "",
        (
            ChartSeries("threads", "threads", "threads", "soft", form="limit"),
            ChartSeries("busy", "threads with a task", "busy", "violet"),
            ChartSeries("cpu", "used", "cpu_us", "run", is_rate=True, per=1e6, form="area"),
        ),
    ),
    Chart(
        "Memory of workers",
        "bytes",
        (
            ChartSeries("limit", "limit", "limit", "soft", form="limit"),
            ChartSeries("managed", "results", "managed", "done", form="stack"),
            ChartSeries("unmanaged", "other", "unmanaged", "run", form="stack"),
            ChartSeries("spilled", "spilled to disk", "spilled", "full"),
        ),
    ),
    Chart(
        "Tasks left",
        "",
        (
            ChartSeries("processing", "at workers", "processing", "run", form="stack"),
            ChartSeries("queued", "queued", "queued", "full", form="stack"),
            ChartSeries("waiting", "waiting for others", "waiting", "soft", form="stack"),
        ),
    ),
    Chart(
        "Data of workers",
        "bytes/s",
        (
            ChartSeries("received", "fetched", "received", "run", is_rate=True, form="area"),
            ChartSeries("sent", "sent", "sent", "violet", is_rate=True),
            ChartSeries("written", "spilled", "spill_written", "full", is_rate=True),
            ChartSeries("read", "read back", "spill_read", "done", is_rate=True),
        ),
    ),
    Chart("Workers", "", (ChartSeries("workers", "workers", "workers", "violet", form="area"),)),
)

STYLE: Final = """\
.axes { --violet: #7c4fd0; }
@media (prefers-color-scheme: dark) { .axes { --violet: #a98bf0; } }
.charts { display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr); margin: 0 0 1rem;
  border-radius: .5rem; touch-action: pan-y; }
@media (min-width: 46rem) { .charts { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (min-width: 82rem) { .charts { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
.charts:focus-visible { outline: 2px solid var(--link); outline-offset: 4px; }
.chart { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  margin: 0; padding: .75rem .9rem .6rem; min-width: 0; display: flex; flex-direction: column; }
.chart h3 { font-size: .9rem; font-weight: 600; margin: 0 0 .25rem; }
.chart canvas { display: block; margin-top: auto; width: 100%; height: 9.5rem; cursor: crosshair; }
@media (min-width: 82rem) { .chart canvas { height: clamp(9.5rem, 50vh - 11.5rem, 22rem); } }
.keys-of { display: flex; flex-wrap: wrap; gap: .1rem .35rem; list-style: none; padding: 0;
  margin: 0 0 .5rem -.4rem; font-size: .8rem; min-height: 1.6rem; }
.keys-of button { border: 0; background: none; border-radius: .35rem; display: inline-flex;
  gap: .4rem; align-items: center; padding: .1rem .4rem; color: var(--soft); }
.keys-of button:hover { background: var(--track); }
.keys-of i { flex: none; width: .75rem; height: .75rem; border-radius: .2rem; }
.keys-of i.limit { height: 0; border-radius: 0; border-top: 2px dashed var(--soft);
  background: none; }
.keys-of b { color: var(--text); font-weight: 600; font-variant-numeric: tabular-nums;
  min-width: 2.2em; text-align: left; }
.keys-of button[aria-pressed=false] { text-decoration: line-through; }
.keys-of button[aria-pressed=false] i { background: var(--track); border-color: var(--track); }
.keys-of button[aria-pressed=false] b { display: none; }
""" + "".join(
    f".keys-of .of-{name} {{ background: var(--{name}); }}\n"
    for name in ("done", "fail", "run", "full", "soft", "violet")
)


def history_page(name: str, visitor: str = "") -> str:
    """Return the page of a cluster of this name."""
    spans = [(60, "1 min"), (300, "5 min"), (900, "15 min"), (3600, "1 h")]
    buttons = [
        element("button", label, type="button", data_seconds=seconds) for seconds, label in spans
    ]
    other = element("a", "task stream of this time", id="other", href="stream")
    head = join(
        element("link", rel="stylesheet", href="timeline.css"),
        element("link", rel="stylesheet", href="history.css"),
        element("script", src="timeline.js", defer=True),
        element("script", src="history.js", defer=True),
    )
    content = element(
        "div",
        tools("History", buttons, "Part of time", other),
        element("noscript", element("p", "This page is drawn by a script.", class_="silent")),
        element(
            "div",
            map(_chart, CHARTS),
            class_="charts",
            tabindex=0,
            role="group",
            aria_label="Charts: + and - zoom, arrow keys move, comma and point move the line, "
            "End is live",
        ),
        foot(", ", element("kbd", ","), " ", element("kbd", "."), " move the line"),
        class_="axes",
    )
    return document(f"History – {name}", name, content, "history", 0, head, visitor)


def _chart(chart: Chart) -> Markup:
    keys = [
        element(
            "li",
            element(
                "button",
                element("i", class_=f"of-{one.colour} {one.form}"),
                element("span", one.label),
                element("b", ""),
                type="button",
                data_name=one.name,
                aria_pressed="true",
            ),
        )
        for one in chart.series
    ]
    return element(
        "figure",
        element("h3", chart.title),
        element("ul", keys, class_="keys-of"),
        element("canvas", role="img", aria_label=f"{chart.title}, over time"),
        class_="chart",
    )
