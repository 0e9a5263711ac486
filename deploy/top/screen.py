"""Draws the screen of `weft top` with `rich`, from a snapshot and a view. Pure.

Names and texts come from users' programs: they are drawn as text, never read as markup.
"""

from __future__ import annotations

import textwrap
from operator import itemgetter
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...protocol.tables import NARROW, WIDE, Column
from ...protocol.wording import counted, sized
from ..overview.columns import COUNTS, MEAN_TIME
from ..overview.history import spark_text
from ..overview.snapshot import Snapshot
from ..overview.wording import (
    cpu_text,
    health_level,
    late_text,
    memory_share,
    memory_text,
    share_text,
    short_number,
    short_time,
    states_text,
    used_memory_text,
    worker_state,
    worker_state_text,
    workers_text,
)
from .view import (
    ASKING_KEY,
    CONFIRMING,
    FAILURES,
    FILTERING,
    FUNCTIONS,
    HOSTS,
    READING,
    TABS,
    WORKERS,
    Row,
    View,
    id_of,
)

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}
_STATE_STYLES: Final = {
    "busy": "green",
    "idle": "dim",
    "leaving": "yellow",
    "paused": "bold red",
    "blocked": "bold red",
    "away": "bold red",
}
_BAR_WIDTH: Final = 10
#: Characters of the small lines of the last minutes, and the time that one stands for, seconds.
_LEAST_SPARK: Final = 8
_MAX_SPARK: Final = 40
_SPARK_STEP_S: Final = 5.0
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
    lines = [
        _line(f"{named}  {snapshot.address}  {scheduler}", width, "bold"),
        _line(
            f"workers {workers_text(o)}, {short_number(o['threads_busy'])} of "
            f"{short_number(o['threads'])} threads busy",
            width,
        ),
        _line(f"memory  {used_memory_text(o)}", width),
        _line(f"tasks   {states_text(o['tasks'])}", width),
        _line(f"rate    {snapshot.progress or _no_rate(snapshot)}", width),
        *_sparks(snapshot, width),
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


def _sparks(snapshot: Snapshot, width: int) -> list[Text]:
    """Return the line of the last minutes, if it has room and there is something to show."""
    history, o = snapshot.history, snapshot.overview
    n = min((width - 42) // 3, _MAX_SPARK)
    if n < _LEAST_SPARK or len(history.samples) < 3:
        return []
    seconds = n * _SPARK_STEP_S
    rates = history.rates("completed", n, seconds)
    cores = history.rates("cpu_us", n, seconds, unit=1e6)
    managed, other = (history.levels(name, n, seconds) for name in ("managed", "unmanaged"))
    used = [*map(sum, zip(managed, other, strict=True))]
    line = Text(f"{short_time(seconds):<7} ", no_wrap=True, overflow="ellipsis")
    for name, values, most, style in (
        ("tasks/s", rates, 0.0, "green"),
        ("cpu", cores, o["threads"], "cyan"),
        ("memory", used, o["memory"]["limit"], "magenta"),
    ):
        line.append(f"{name} ", "dim").append(spark_text(values, n, most), style).append("   ")
    line.truncate(width, overflow="ellipsis")
    return [line]


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


def _memory_bar(worker: Row) -> Text:
    share, limit = memory_share(worker), worker["memory_limit"]
    style = _STYLES["error"] if share >= 0.95 else _STYLES["warning"] if share >= 0.8 else "cyan"
    n_filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    bar = Text("━" * n_filled, style=style)
    bar.append("─" * (_BAR_WIDTH - n_filled), style="dim")
    return bar.append(f" {share_text(worker['metrics'].get('rss', 0), limit):>4}")


def _memory(worker: Row) -> str:
    return memory_text(worker["metrics"].get("rss", 0), worker["memory_limit"])


def _time_left(function: Row) -> str:
    _, eta_s = function["rate"]
    return short_time(eta_s) if function["n_unfinished"] and eta_s is not None else ""


#: Columns of long texts share what the others leave.
_RATIOS: Final = {"name": 1, "text": 2}
_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    WORKERS: (
        Column("worker", itemgetter("name"), "name"),
        Column("state", worker_state_text, emphasis=lambda w: _STATE_STYLES[worker_state(w)]),
        Column("tasks", lambda w: f"{w['n_processing']}/{w['nthreads']}", "n"),
        Column("cpu", cpu_text, "n"),
        Column("memory", _memory_bar),
        Column("results", lambda w: sized(w["nbytes"]) if w["nbytes"] else "", "n", NARROW),
        Column("of limit", _memory, least_width=NARROW),
        Column("host", itemgetter("host"), least_width=WIDE),
        Column("seen", lambda w: short_time(w["last_seen_s"]), "n", WIDE),
    ),
    HOSTS: (
        Column("host", itemgetter("name"), "name"),
        Column("workers", lambda h: str(h["n_workers"]), "n"),
        Column("tasks", lambda h: f"{h['n_processing']}/{h['nthreads']}", "n"),
        Column("cpu", cpu_text, "n"),
        Column("memory", _memory_bar),
        Column("results", lambda h: sized(h["nbytes"]) if h["nbytes"] else "", "n", NARROW),
        Column("of limit", _memory, least_width=NARROW),
    ),
    FUNCTIONS: (
        *COUNTS,
        Column(
            "per second",
            lambda f: short_number(f["rate"][0]) if f["rate"][0] else "",
            "n",
            NARROW,
        ),
        Column("left", _time_left, "n"),
        MEAN_TIME,
    ),
    FAILURES: (
        Column("ago", lambda f: short_time(f["age_s"]), "n"),
        Column("task", itemgetter("key"), "name"),
        Column("error", lambda f: f["text"].partition("\n")[0], "text"),
        Column("on", itemgetter("worker"), least_width=NARROW),
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
    columns = [column for column in _COLUMNS[view.tab] if width >= column.least_width]
    for column in columns:
        table.add_column(
            Text(str(column.heading)),
            justify="right" if column.kind == "n" else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=_RATIOS.get(column.kind),
        )
    rates = snapshot.rates.of_functions
    for row in shown:
        if view.tab == FUNCTIONS:
            row = {**row, "rate": rates.get(row["name"], (None, None))}
        style = "reverse" if id_of(view.tab, row) == view.selected else ""
        table.add_row(*[_cell(column, row) for column in columns], style=style)
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


def _cell(column: Column, row: Row) -> Text:
    content = column.cell(row)
    return content if isinstance(content, Text) else Text(content, style=column.emphasis(row))
