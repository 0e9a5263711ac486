"""Draw the dashboard's panels without Grafana: the same queries, by Matplotlib.

    python -m benchmarks.dashboard_picture http://127.0.0.1:9090 dashboard.png

It needs Matplotlib, which weft does not install.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from weft.deploy.monitoring.panels import RATE, ROWS, VARIABLES, Panel, Query, Row

#: Readable on white and on dark pages alike: the figure has no background.
_INK: Final = "#7a7a7a"
_COLOURS: Final = (
    *("#3b82d6", "#d9663a", "#2a9d6f", "#a066c9", "#c2962c"),
    *("#c9527f", "#4aa8b5", "#8a8f3c", "#7a7a7a", "#9c6644"),
)
_STYLE: Any = {
    "savefig.dpi": 72,
    "svg.fonttype": "none",
    "svg.hashsalt": "weft",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
}
#: Points of a line, as many as the width of a panel shows.
_N_POINTS: Final = 60
_COLUMNS: Final = 2

#: The times of a line, seconds since 1970, and its values.
Line = tuple[list[float], list[float]]


class Prometheus:
    """The HTTP interface of a server.

    Args:
        url: of the server.
        interval_s: between two scrapes, seconds.
    """

    def __init__(self, url: str, interval_s: float) -> None:
        self._url = url.rstrip("/")
        self._interval_s = interval_s

    def lines(self, query: Query, start_s: float, end_s: float) -> dict[str, Line]:
        """Return the lines of a query by their legend; values that are not numbers are left out.

        Raises:
            OSError: the server does not answer, or refuses the query.
        """
        parameters = {
            "query": self._filled(query.expr),
            "start": start_s,
            "end": end_s,
            "step": max((end_s - start_s) / _N_POINTS, self._interval_s),
        }
        url = f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        lines: dict[str, Line] = {}
        for series in found:
            points = [(float(at), float(value)) for at, value in series["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                lines[_legend(query, series["metric"])] = (
                    [at for at, _ in points],
                    [value for _, value in points],
                )
        return lines

    def _filled(self, expr: str) -> str:
        for name in VARIABLES:
            expr = expr.replace(f"${name}", ".*")
        return expr.replace(RATE, f"{4 * self._interval_s:g}s")


def _legend(query: Query, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), query.legend).strip()


def draw(prometheus: Prometheus, file: str, start_s: float, end_s: float) -> None:
    """Draw all rows into a file, whose ending is the format.

    Raises:
        ImportError: Matplotlib is not installed.
        OSError: the server does not answer, or the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [height for row in ROWS for height in _heights(row)]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        ratios = [sum(_heights(row)) for row in ROWS]
        parts: Any = figure.subfigures(len(ROWS), 1, height_ratios=ratios)
        for row, part in zip(ROWS, parts, strict=True):
            part.suptitle(row.title, x=0.01, ha="left", fontsize=12, fontweight="bold")
            part.patch.set_alpha(0)
            numbers = [panel for panel in row.panels if panel.is_number]
            graphs = [panel for panel in row.panels if not panel.is_number]
            if numbers:
                for axes, panel in zip(part.subplots(1, len(numbers)), numbers, strict=True):
                    _draw_number(axes, panel, prometheus, start_s, end_s)
            if graphs:
                n_rows = math.ceil(len(graphs) / _COLUMNS)
                cells = part.subplots(n_rows, _COLUMNS, squeeze=False).ravel()
                for axes, panel in zip(cells, graphs, strict=False):
                    _draw_graph(axes, panel, prometheus, start_s, end_s)
                for axes in cells[len(graphs) :]:
                    axes.axis("off")
        figure.savefig(
            file, transparent=True, metadata={"Date": None} if file.endswith("svg") else {}
        )


def _heights(row: Row) -> list[float]:
    """Return the height of each line of panels in a row, inches."""
    n_graphs = sum(not panel.is_number for panel in row.panels)
    return [1.3] * any(panel.is_number for panel in row.panels) + [2.4] * math.ceil(
        n_graphs / _COLUMNS
    )


def _draw_number(
    axes: Any, panel: Panel, prometheus: Prometheus, start_s: float, end_s: float
) -> None:
    axes.axis("off")
    axes.set_title(panel.title)
    values = [
        line[1][-1]
        for query in panel.queries
        for line in prometheus.lines(query, start_s, end_s).values()
    ]
    text = _shown(values[0], panel.unit) if values else "no data"
    axes.text(0.5, 0.4, text, ha="center", va="center", fontsize=17, color=_INK)


def _draw_graph(
    axes: Any, panel: Panel, prometheus: Prometheus, start_s: float, end_s: float
) -> None:
    axes.set_title(panel.title, loc="left")
    axes.grid(visible=True)
    axes.set_xlim(0, end_s - start_s)
    lines: dict[str, Line] = {}
    for query in panel.queries:
        lines.update(prometheus.lines(query, start_s, end_s))
    if panel.is_stacked and lines:
        times = sorted({at for ats, _ in lines.values() for at in ats})
        tables = [dict(zip(*line, strict=True)) for line in lines.values()]
        axes.stackplot(
            [at - start_s for at in times],
            [[table.get(at, 0.0) for at in times] for table in tables],
            labels=list(lines),
            colors=_COLOURS,
            alpha=0.75,
        )
    else:
        for (legend, (ats, values)), colour in zip(lines.items(), _cycle(), strict=False):
            axes.plot([at - start_s for at in ats], values, label=legend, color=colour, lw=1.3)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: _shown(value, panel.unit))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    if any(lines):
        axes.legend(
            fontsize=7, ncols=5, loc="upper left", bbox_to_anchor=(0, -0.12), handlelength=1.2
        )
    if not lines:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=_INK)


def _cycle() -> tuple[str, ...]:
    return _COLOURS * 4


def _shown(value: float, unit: str) -> str:
    """Format a value for display, with its unit."""
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        if value >= 60:
            return f"{value / 60:.3g} min"
        return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1e3:.3g} ms"
    power = min(int(math.log10(abs(value)) // 3), 4) if abs(value) >= 1000 else 0
    space = " " if unit in ("bytes", "Bps") else ""
    number = f"{value / 1000**power:.3g}{space}{' kMGT'[power].strip()}"
    return number + {"bytes": "B", "Bps": "B/s", "cps": "/s"}.get(unit, "")


def main(given: list[str]) -> int:
    """Draw the last minutes; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard_picture")
    parser.add_argument("prometheus", help="address of the server, http://...")
    parser.add_argument("file", help="of the picture: .svg, .png or .pdf")
    parser.add_argument("--minutes", type=float, default=30.0, help="until now (default: 30)")
    parser.add_argument("--interval", type=float, default=5.0, help="between two scrapes, seconds")
    arguments = parser.parse_args(given)
    now = time.time()
    try:
        draw(
            Prometheus(arguments.prometheus, arguments.interval),
            arguments.file,
            now - 60 * arguments.minutes,
            now,
        )
    except ImportError:
        print("Matplotlib is not installed: pip install matplotlib", file=sys.stderr)
        return 2
    except (OSError, urllib.error.URLError) as error:
        print(f"{arguments.prometheus}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
