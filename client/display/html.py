"""HTML for notebooks, made of plain dicts: pure functions without I/O.

It is static: no script, no file from elsewhere, no style sheet. Colours are that of the text
around it (`currentColor`), paler or stronger, so it fits light and dark pages, whichever setting
made them so. Every text is cut and escaped, and no description is longer than `MAX_CHARS`.

The descriptions, in which each field may be missing:

- a client or a cluster: `type`, `name`, `status`, `scheduler`, `dashboard` (addresses),
  `n_workers`, `n_expected` (workers that were requested), `threads`, `memory_limit` (bytes of each
  worker), `n_futures`, `note` (a sentence), `workers` (a list) and `as_of` (when these were seen)
- a worker: `name`, `address`, `threads`, `busy`, `memory`, `memory_limit` (bytes), `status`
- a future: `key`, `function`, `status`, `type` (of its result), `error`
- progress: see `of_progress`
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

__all__ = ["MAX_CHARS", "of_cluster", "of_future", "of_futures", "of_progress", "of_workers"]

#: No description is longer, whatever it describes.
MAX_CHARS: Final = 10_000
_MAX_TEXT_CHARS: Final = 120
_MAX_ERROR_CHARS: Final = 300
#: What is left for the end of a description when no further row fits.
_ROOM_CHARS: Final = 700
_LEFT: Final = "text-align:left"
_RIGHT: Final = "text-align:right;font-variant-numeric:tabular-nums"
#: Legible on white and on black.
_BAD: Final = "color:#d9463c"

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
    rows = [(str(seen.get("type") or "Cluster"), _text(seen.get("name")))]
    rows.append(("Status", _text(seen.get("status"))))
    n_workers, n_expected = seen.get("n_workers"), seen.get("n_expected") or 0
    if n_workers is not None:
        starting = f" of {n_expected}, the others are starting" if n_workers < n_expected else ""
        rows.append(("Workers", f"{n_workers}{starting}"))
    rows.append(("Threads", _text(seen.get("threads"))))
    limit = seen.get("memory_limit")
    if isinstance(limit, int) and limit > 0:
        rows.append(("Memory limit", f"{n_expected or n_workers} \u00d7 {_size(limit)}"))
    rows.append(("Futures", _text(seen.get("n_futures"))))
    rows.append(("Scheduler", _text(seen.get("scheduler"))))
    rows.append(("Dashboard", _link(seen.get("dashboard"))))
    rows.append(("Note", _text(seen.get("note"), _MAX_ERROR_CHARS)))
    cells = "".join(
        f"<tr><th style='{_LEFT}'>{name}</th><td style='{_LEFT}'>{cell}</td></tr>"
        for name, cell in rows
        if cell
    )
    text = f"<table>{cells}</table>"
    workers = seen.get("workers")
    if workers:
        as_of = _text(seen.get("as_of"))
        title = f"Workers{f' at {as_of}' if as_of else ''}"
        text += (
            f"<details><summary>{title}</summary>"
            f"{_table_of_workers(workers, MAX_CHARS - len(text) - 200)}</details>"
        )
    return _framed(text)


def of_workers(workers: Sequence[Mapping[str, Any]]) -> str:
    """Describe workers, one row for each."""
    if not workers:
        return _framed("<p>No workers.</p>")
    return _framed(_table_of_workers(workers, MAX_CHARS - 100))


def of_future(seen: Mapping[str, Any]) -> str:
    """Describe a future, in one line."""
    parts = [f"<b>Future</b> <code>{_text(seen.get('key'))}</code>", _status(seen.get("status"))]
    if seen.get("type"):
        parts.append(f"<code>{_text(seen['type'])}</code>")
    if seen.get("error"):
        parts.append(f"<span style='{_BAD}'>{_text(seen['error'], _MAX_ERROR_CHARS)}</span>")
    return " \u00b7 ".join(parts)


def of_futures(groups: Mapping[str, Mapping[str, int]], errors: Sequence[str] = ()) -> str:
    """Describe a list of futures: `{function: {status: number}}`, and some of their errors."""
    statuses = [name for name in _MARKS if any(name in counts for counts in groups.values())]
    n = sum(sum(counts.values()) for counts in groups.values())
    head = "".join(f"<th style='{_RIGHT}'>{_status(name)}</th>" for name in statuses)
    rows = [f"<tr><th style='{_LEFT}'>{n} futures</th>{head}</tr>"]
    ordered = sorted(groups.items(), key=lambda group: -sum(group[1].values()))
    for name, counts in ordered:
        cells = "".join(f"<td style='{_RIGHT}'>{counts.get(one, '')}</td>" for one in statuses)
        rows.append(f"<tr><td style='{_LEFT}'><code>{_text(name)}</code></td>{cells}</tr>")
    kept, n_left = _as_many_as_fit(rows, MAX_CHARS - _ROOM_CHARS - 100)
    text = f"<table>{kept}</table>" + (f"<p>and {n_left} more functions</p>" if n_left else "")
    for error in errors[:3]:
        line = f"<p style='{_BAD}'>{_text(error, _MAX_TEXT_CHARS)}</p>"
        if len(text) + len(line) < MAX_CHARS - 100:
            text += line
    return _framed(text)


def of_progress(seen: Mapping[str, Any]) -> str:
    """Describe progress: `title`, and `rows`, each with `name, done, failed,
    cancelled, total, note`.
    """
    lines = []
    for row in seen.get("rows", ()):
        total = max(row["total"], 1)
        n_bad = row["failed"] + row["cancelled"]
        good = 100 * (row["done"] - n_bad) / total
        bad = 100 * n_bad / total
        bar = (
            "<div style='display:flex;width:12em;height:.8em;border:1px solid currentColor'>"
            f"<div style='width:{good:.1f}%;background:currentColor;opacity:.6'></div>"
            f"<div style='width:{bad:.1f}%;{_BAD};background:currentColor'></div></div>"
        )
        notes = ", ".join(f"{row[what]} {what}" for what in ("failed", "cancelled") if row[what])
        failed = f"<span style='{_BAD}'>{notes}</span>" if notes else ""
        lines.append(
            f"<tr><td style='{_LEFT}'><code>{_text(row['name'], 60)}</code></td><td>{bar}</td>"
            f"<td style='{_RIGHT}'>{row['done']}/{row['total']}</td><td>{failed}</td>"
            f"<td style='{_LEFT}'>{_text(row['note'])}</td></tr>"
        )
    title = f"<div>{_text(seen.get('title'), _MAX_ERROR_CHARS)}</div>" if seen.get("title") else ""
    kept, n_left = _as_many_as_fit(lines, MAX_CHARS - _ROOM_CHARS - len(title))
    more = f"<div>and {n_left} more functions</div>" if n_left else ""
    return _framed(title + (f"<table>{kept}</table>" if kept else "") + more)


def _table_of_workers(workers: Sequence[Mapping[str, Any]], max_chars: int) -> str:
    head = f"<tr><th style='{_LEFT}'>worker</th><th style='{_LEFT}'>address</th>"
    head += "<th>threads</th><th>memory</th><th></th></tr>"
    rows = [head]
    for worker in workers:
        used, limit = worker.get("memory") or 0, worker.get("memory_limit") or 0
        memory = _size(used) if used else ""
        if limit:
            memory = f"{memory or '?'} of {_size(limit)}"
        status = worker.get("status")
        rows.append(
            f"<tr><td style='{_LEFT}'>{_text(worker.get('name'), 60)}</td>"
            f"<td style='{_LEFT}'>{_text(worker.get('address'), 60)}</td>"
            f"<td style='{_RIGHT}'>{_text(worker.get('threads'))}</td>"
            f"<td style='{_RIGHT}'>{memory}</td>"
            f"<td style='{_LEFT}'>{'' if status == 'running' else _text(status)}</td></tr>"
        )
    kept, n_left = _as_many_as_fit(rows, max_chars - 100)
    more = f"<p>and {n_left} more workers</p>" if n_left else ""
    return f"<table>{kept}</table>{more}"


def _as_many_as_fit(rows: Iterable[str], max_chars: int) -> tuple[str, int]:
    """Return the first rows, joined, and the number of those for which there was no room."""
    kept: list[str] = []
    n_chars = n_left = 0
    for row in rows:
        n_chars += len(row)
        if n_left or n_chars > max_chars:
            n_left += 1
        else:
            kept.append(row)
    return "".join(kept), n_left


def _framed(text: str) -> str:
    return f"<div style='color:inherit'>{text}</div>"


def _status(status: object) -> str:
    shown = _text(status)
    mark = _MARKS.get(str(status), "")
    style = f" style='{_BAD}'" if status in ("error", "lost") else ""
    return f"<span{style}>{mark} {shown}</span>"


def _text(value: object, max_chars: int = _MAX_TEXT_CHARS) -> str:
    """Return an escaped text of limited length; "" for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    if len(text) > max_chars:
        text = f"{text[: max_chars - 1]}\u2026"
    return html.escape(text.encode("utf-8", "replace").decode())


def _link(address: object) -> str:
    shown = _text(address, 300)
    if isinstance(address, str) and address.startswith(("http://", "https://")):
        bare = shown.partition("?")[0]  # what follows signs a browser in
        return f"<a href='{shown}' target='_blank' rel='noopener'>{bare}</a>"
    return shown


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"
