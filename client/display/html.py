"""HTML for notebooks, made of plain dicts: pure functions without I/O.

It is static: no script, no file from elsewhere, no style sheet. Colours are that of the text
around it (`currentColor`), paler or stronger, so it fits light and dark pages, whichever setting
made them so. Every text is cut, and escaped by its type (`markup`), and no description is longer
than `MAX_CHARS`.

The descriptions, in which each field may be missing:

- a client or a cluster: `type`, `name`, `status`, `scheduler`, `dashboard` (addresses),
  `no_dashboard` (how to get one),
  `n_workers`, `n_expected` (workers that were requested), `threads`, `memory_limit` (bytes of each
  worker), `n_futures`, `note` (a sentence), `workers` (a list) and `as_of` (when these were seen)
- a worker: `name`, `address`, `threads`, `busy`, `memory`, `memory_limit` (bytes), `status`
- a future: `key`, `function`, `status`, `type` (of its result), `error`
- progress: see `of_progress`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...protocol.markup import Content, Markup, element, join
from ...protocol.wording import counted, sized

#: No description is longer, whatever it describes.
MAX_CHARS: Final = 10_000
_MAX_TEXT_CHARS: Final = 120
_MAX_ERROR_CHARS: Final = 300
#: What is left for the end of a description when no further row fits.
_ROOM_CHARS: Final = 700
_LEFT: Final = "text-align:left"
_RIGHT: Final = "text-align:right;font-variant-numeric:tabular-nums"
#: The contrast is above 4.5 on white as on black.
_BAD: Final = "color:#d83b30"

#: {status of a future: its mark}, so that colour is not the only difference.
_MARKS: Final = {
    "pending": "\u25cb",
    "finished": "\u25cf",
    "error": "\u2716",
    "cancelled": "\u2205",
    "lost": "?",
}


def of_cluster(seen: Mapping[str, Any]) -> str:
    """Describe a cluster, or a client and its cluster."""
    n_workers, n_expected = seen.get("n_workers"), seen.get("n_expected") or 0
    present: Content = n_workers
    if n_workers is not None and n_workers < n_expected:
        present = f"{n_workers} of {n_expected}, the others are starting"
    limit = seen.get("memory_limit")
    has_limit = isinstance(limit, int) and limit > 0
    rows: list[tuple[str, Content]] = [
        (str(seen.get("type") or "Cluster"), _text(seen.get("name"))),
        ("Status", _text(seen.get("status"))),
        ("Workers", present),
        ("Threads", _text(seen.get("threads"))),
        (
            "Memory limit",
            f"{n_expected or n_workers} \u00d7 {sized(limit)}" if has_limit and limit else None,
        ),
        ("Futures", _text(seen.get("n_futures"))),
        ("Scheduler", _text(seen.get("scheduler"))),
        (
            "Dashboard",
            _link(seen.get("dashboard")) or _text(seen.get("no_dashboard"), _MAX_ERROR_CHARS),
        ),
        ("Note", _text(seen.get("note"), _MAX_ERROR_CHARS)),
    ]
    text = element(
        "table",
        (
            element("tr", element("th", name, style=_LEFT), element("td", cell, style=_LEFT))
            for name, cell in rows
            if cell not in (None, "")
        ),
    )
    workers = seen.get("workers")
    if workers:
        as_of = _text(seen.get("as_of"))
        title = f"Workers{f' at {as_of}' if as_of else ''}"
        table = _table_of_workers(workers, MAX_CHARS - len(text) - 200)
        text = join(text, element("details", element("summary", title), table))
    return _framed(text)


def of_workers(workers: Sequence[Mapping[str, Any]]) -> str:
    """Describe workers, one row for each."""
    if not workers:
        return _framed(element("p", "No workers."))
    return _framed(_table_of_workers(workers, MAX_CHARS - 100))


def of_future(seen: Mapping[str, Any]) -> str:
    """Describe a future, in one line."""
    parts: list[Content] = [
        (element("b", "Future"), " ", element("code", _text(seen.get("key")))),
        _status(seen.get("status")),
    ]
    if seen.get("type"):
        parts.append(element("code", _text(seen["type"])))
    if seen.get("error"):
        parts.append(element("span", _text(seen["error"], _MAX_ERROR_CHARS), style=_BAD))
    return join((" \u00b7 ", part) if i else part for i, part in enumerate(parts))


def of_futures(groups: Mapping[str, Mapping[str, int]], errors: Sequence[str] = ()) -> str:
    """Describe a list of futures: `{function: {status: number}}`, and some of their errors."""
    statuses = [name for name in _MARKS if any(name in counts for counts in groups.values())]
    n = sum(sum(counts.values()) for counts in groups.values())
    head = [element("th", _status(name), style=_RIGHT) for name in statuses]
    rows = [element("tr", element("th", counted(n, "future"), style=_LEFT), head)]
    ordered = sorted(groups.items(), key=lambda group: -sum(group[1].values()))
    for name, counts in ordered:
        cells = [element("td", counts.get(one, ""), style=_RIGHT) for one in statuses]
        rows.append(element("tr", element("td", _code(name), style=_LEFT), cells))
    kept, n_left = _as_many_as_fit(rows, MAX_CHARS - _ROOM_CHARS - 100)
    text = join(element("table", kept), _more("p", n_left, "function"))
    for error in errors[:3]:
        line = element("p", _text(error), style=_BAD)
        if len(text) + len(line) < MAX_CHARS - 100:
            text = join(text, line)
    return _framed(text)


def of_progress(seen: Mapping[str, Any]) -> str:
    """Describe progress: `title`, and `rows`, each with `name, done, failed,
    cancelled, total, note`.
    """
    title = None
    if seen.get("title"):
        title = element("div", _text(seen["title"], _MAX_ERROR_CHARS))
    rows = [_row_of_progress(row) for row in seen.get("rows", ())]
    kept, n_left = _as_many_as_fit(rows, MAX_CHARS - _ROOM_CHARS - len(title or ""))
    table = element("table", kept) if kept else None
    return _framed(join(title, table, _more("div", n_left, "function")))


def _row_of_progress(row: Mapping[str, Any]) -> Markup:
    total = max(row["total"], 1)
    n_bad = row["failed"] + row["cancelled"]
    good, bad = 100 * (row["done"] - n_bad) / total, 100 * n_bad / total
    bar = element(
        "div",
        element("div", style=f"width:{good:.1f}%;background:currentColor;opacity:.6"),
        element("div", style=f"width:{bad:.1f}%;{_BAD};background:currentColor"),
        style="display:flex;width:12em;height:.8em;border:1px solid currentColor",
    )
    notes = ", ".join(f"{row[what]} {what}" for what in ("failed", "cancelled") if row[what])
    return element(
        "tr",
        element("td", _code(row["name"], 60), style=_LEFT),
        element("td", bar),
        element("td", f"{row['done']}/{row['total']}", style=_RIGHT),
        element("td", element("span", notes, style=_BAD) if notes else None),
        element("td", _text(row["note"]), style=_LEFT),
    )


def _table_of_workers(workers: Sequence[Mapping[str, Any]], max_chars: int) -> Markup:
    columns = [("worker", _LEFT), ("address", _LEFT), ("threads", _RIGHT), ("memory", _RIGHT)]
    if any(worker.get("status") != "running" for worker in workers):
        columns.append(("status", _LEFT))
    rows = [element("tr", (element("th", name, style=style) for name, style in columns))]
    for worker in workers:
        used, limit = worker.get("memory") or 0, worker.get("memory_limit") or 0
        memory = sized(used) if used else ""
        if limit:
            memory = f"{memory or '?'} of {sized(limit)}"
        texts = (
            _text(worker.get("name"), 60),
            _text(worker.get("address"), 60),
            _text(worker.get("threads")),
            memory,
            _text(worker.get("status")),
        )
        cells = zip(texts, columns, strict=False)  # the last text only if its column is shown
        rows.append(element("tr", (element("td", t, style=style) for t, (_, style) in cells)))
    kept, n_left = _as_many_as_fit(rows, max_chars - 100)
    return join(element("table", kept), _more("p", n_left, "worker"))


def _as_many_as_fit(rows: Iterable[Markup], max_chars: int) -> tuple[list[Markup], int]:
    """Return the first rows, and the number of those for which there was no room."""
    kept: list[Markup] = []
    n_chars = n_left = 0
    for row in rows:
        n_chars += len(row)
        if n_left or n_chars > max_chars:
            n_left += 1
        else:
            kept.append(row)
    return kept, n_left


def _more(name: str, n_left: int, noun: str) -> Markup | None:
    return element(name, f"and {counted(n_left, f'more {noun}')}") if n_left else None


def _framed(content: Markup) -> str:
    return element("div", content, style="color:inherit")


def _status(status: object) -> Markup:
    style = _BAD if status in ("error", "lost") else None
    return element("span", f"{_MARKS.get(str(status), '')} {_text(status)}", style=style)


def _code(value: object, max_chars: int = _MAX_TEXT_CHARS) -> Markup:
    return element("code", _text(value, max_chars))


def _text(value: object, max_chars: int = _MAX_TEXT_CHARS) -> str:
    """Return a text of limited length that can be encoded; "" for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    if len(text) > max_chars:
        text = f"{text[: max_chars - 1]}\u2026"
    return text.encode("utf-8", "replace").decode()


def _link(address: object) -> Content:
    href = _text(address, 300)
    if not href.startswith(("http://", "https://")):
        return href
    bare = href.partition("?")[0]  # what follows signs a browser in
    return element("a", bare, href=href, target="_blank", rel="noopener")
