"""Draws the screen of `weft top` with `rich`, from a snapshot and a view. Pure.

Names and texts come from users' programs: they are drawn as text, never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...protocol.wording import counted, sized
from ..cli.status_text import mean_time, progress_text
from ..overview.snapshot import Snapshot
from ..overview.wording import (
    health_level,
    late_text,
    memory_text,
    share_text,
    short_number,
    short_time,
    states_text,
    workers_text,
)
from .view import (
    ASKING_KEY,
    CONFIRMING,
    FAILURES,
    FILTERING,
    FUNCTIONS,
    READING,
    TABS,
    WORKERS,
    View,
    id_of,
    memory_share,
    state_of,
)

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}
_STATE_STYLES: Final = {"busy": "green", "idle": "dim", "leaving": "yellow", "away": "bold red"}
_BAR_WIDTH: Final = 10
#: Widths of the terminal from which on a table has more columns.
NARROW: Final = 80
WIDE: Final = 110
_KEYS: Final = "tab table  s order  / filter  e explain  r retire  h help  q quit"
#: Lines of the health and texts that are shown, at most.
_N_HEALTH: Final = 4
#: Lines of the table's title and header, a row, and the foot.
_LEAST_BELOW: Final = 4


def draw(snapshot: Snapshot, view: View, width: int, height: int) -> RenderableType:
    """Return the whole screen, of `height` lines."""
    # A low terminal shows less of the head, so that there is room for a row of the table.
    head = _head(snapshot, width)[: max(1, height - _LEAST_BELOW)]
    foot = _foot(view, width)
    left = max(1, height - len(head) - len(foot))
    body: RenderableType
    if view.mode == READING:
        body = _page(view, left, width)
    elif not snapshot.overview:
        body = _padded([Text("waiting for the scheduler")], left)
    else:
        body = _table(snapshot, view, left, width)
    return Group(*head, body, *foot)


def _line(text: str, width: int, style: str = "") -> Text:
    line = Text(text, style=style, no_wrap=True, overflow="ellipsis", end="\n")
    line.truncate(width, overflow="ellipsis")
    return line


def _padded(lines: list[Text], height: int) -> Group:
    lines = lines[:height]
    return Group(*lines, *[Text("")] * (height - len(lines)))


# --- Above and below the table --------------------------------------------------------------------


def _head(snapshot: Snapshot, width: int) -> list[Text]:
    o = snapshot.overview
    if not o:
        lines = [_line(f"weft top  {snapshot.address}", width, "bold")]
        if snapshot.down:
            lines.append(_line(f"down: {snapshot.down}", width, _STYLES["error"]))
        return lines
    named = f"cluster {o['name']}" if o["name"] else "weft"
    scheduler = f"up {short_time(o['uptime_s'])}, {counted(o['n_clients'], 'client')}, "
    if snapshot.cpu_share is not None:
        scheduler += f"scheduler {snapshot.cpu_share:.0%} of a core, "
    scheduler += late_text(o)
    memory = o["memory"]
    lines = [
        _line(f"{named}  {snapshot.address}  {scheduler}", width, "bold"),
        _line(
            f"workers {workers_text(o)}, {short_number(o['threads_busy'])} of "
            f"{short_number(o['threads'])} threads busy",
            width,
        ),
        _line(
            f"memory  {memory_text(memory['resident'], memory['limit'])}, "
            f"{sized(memory['managed'])} in results",
            width,
        ),
        _line(f"tasks   {states_text(o['tasks'])}", width),
        _line(f"rate    {progress_text(snapshot) or _no_rate(snapshot)}", width),
    ]
    if snapshot.down:
        lines.append(_line(f"down: {snapshot.down}; trying again", width, _STYLES["error"]))
    elif health_level(o) != "ok":
        lines += [
            _line(f"{line['level']}: {line['text']}", width, _STYLES[line["level"]])
            for line in o["health"][:_N_HEALTH]
            if line["level"] != "ok"
        ]
    return lines


def _no_rate(snapshot: Snapshot) -> str:
    return "not known yet" if snapshot.rates.total[0] is None else "no task finishes now"


def _foot(view: View, width: int) -> list[Text]:
    if view.mode == FILTERING:
        text = f"filter: {view.typed}█"
    elif view.mode == ASKING_KEY:
        text = f"key of the task (future.key): {view.typed}█"
    elif view.mode == CONFIRMING and view.retiring is not None:
        text = f"retire {view.retiring.name}? It finishes what it runs, and leaves (y/n)"
    elif view.mode == READING:
        text = "↑ ↓ scroll, any other key goes back"
    else:
        text = view.message or _KEYS
    style = "reverse" if view.mode in (FILTERING, ASKING_KEY, CONFIRMING) else "dim"
    return [_line(text, width, style)]


def _page(view: View, height: int, width: int) -> Group:
    lines: list[str] = []
    for line in view.page.split("\n"):
        lines += textwrap.wrap(line, width, subsequent_indent="    ") or [""]
    return _padded([_line(line, width) for line in lines[view.offset :]], height)


# --- Tables ---------------------------------------------------------------------------------------

_RATIOS: Final = {"worker": 1, "function": 1, "task": 1, "error": 2}
_COLUMNS: Final = {
    WORKERS: (
        ("worker", "left", 0),
        ("state", "left", 0),
        ("tasks", "right", 0),
        ("cpu", "right", 0),
        ("memory", "left", 0),
        ("results", "right", NARROW),
        ("of limit", "left", NARROW),
        ("host", "left", WIDE),
        ("seen", "right", WIDE),
    ),
    FUNCTIONS: (
        ("function", "left", 0),
        ("finished", "right", 0),
        ("failed", "right", 0),
        ("unfinished", "right", 0),
        ("running", "right", NARROW),
        ("per second", "right", NARROW),
        ("left", "right", 0),
        ("mean time", "right", WIDE),
    ),
    FAILURES: (
        ("ago", "right", 0),
        ("task", "left", 0),
        ("error", "left", 0),
        ("on", "left", NARROW),
    ),
}


def _table(snapshot: Snapshot, view: View, height: int, width: int) -> RenderableType:
    rows = view.rows(snapshot)
    room = max(1, height - 2)
    ids = [id_of(view.tab, row) for row in rows]
    place = ids.index(view.selected) if view.selected in ids else 0
    # The chosen row is always on the screen.
    first = min(max(0, place - room + 1), max(0, len(rows) - room))
    shown = rows[first : first + room]
    table = Table(box=None, expand=True, padding=(0, 1), pad_edge=False, width=width)
    columns = [column for column in _COLUMNS[view.tab] if width >= column[2]]
    for name, side, _ in columns:
        justify: Any = side
        # The long texts share what the others leave.
        ratio = _RATIOS.get(name)
        table.add_column(
            Text(name), justify=justify, no_wrap=True, overflow="ellipsis", ratio=ratio
        )
    for row in shown:
        cells = dict(
            zip([c[0] for c in _COLUMNS[view.tab]], _cells(view, row, snapshot), strict=True)
        )
        style = "reverse" if id_of(view.tab, row) == view.selected else ""
        table.add_row(*[cells[name] for name, _, _ in columns], style=style)
    tabs = "  ".join(f"[{tab}]" if tab == view.tab else tab for tab in TABS)
    wanted = view.filters[view.tab]
    n_rows = counted(len(rows), view.tab[:-1])
    title = f"{tabs}   {n_rows}, sorted by {view.order.name}" + (
        f", with {wanted!r}" if wanted else ""
    )
    if len(rows) > room:
        title += f", {first + 1} to {first + len(shown)}"
    blank = [Text("")] * (room - len(shown))
    return Group(_line(title, width, "bold"), table, *blank)


def _cells(view: View, row: Mapping[str, Any], snapshot: Snapshot) -> list[Text]:
    if view.tab == WORKERS:
        return _worker_cells(row)
    if view.tab == FUNCTIONS:
        return _function_cells(row, snapshot)
    return [
        Text(short_time(row["age_s"])),
        Text(row["key"]),
        Text(row["text"].partition("\n")[0]),
        Text(row["worker"]),
    ]


def _worker_cells(worker: Mapping[str, Any]) -> list[Text]:
    state = state_of(worker)
    metrics = worker["metrics"]
    share = memory_share(worker)
    style = _STYLES["error"] if share >= 0.95 else _STYLES["warning"] if share >= 0.8 else "cyan"
    n_filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    bar = Text("━" * n_filled, style=style)
    bar.append("─" * (_BAR_WIDTH - n_filled), style="dim")
    bar.append(f" {share_text(metrics.get('rss', 0), worker['memory_limit']):>4}")
    return [
        Text(worker["name"]),
        Text(state, style=_STATE_STYLES[state]),
        Text(f"{worker['n_processing']}/{worker['nthreads']}"),
        Text(f"{metrics['cpu']} %" if "cpu" in metrics else ""),
        bar,
        Text(sized(worker["nbytes"]) if worker["nbytes"] else ""),
        Text(memory_text(metrics.get("rss", 0), worker["memory_limit"])),
        Text(worker["host"]),
        Text(short_time(worker["last_seen_s"])),
    ]


def _function_cells(function: Mapping[str, Any], snapshot: Snapshot) -> list[Text]:
    per_second, eta_s = snapshot.rates.of_functions[function["name"]]
    left = function["n_unfinished"]
    return [
        Text(function["name"]),
        Text(short_number(function["n_finished"])),
        Text(short_number(function["n_failed"]), style="red" if function["n_failed"] else ""),
        Text(short_number(left)),
        Text(short_number(function["n_processing"])),
        Text(short_number(per_second) if per_second else ""),
        Text(short_time(eta_s) if left and eta_s is not None else ""),
        Text(mean_time(dict(function))),
    ]
