"""The page of what a search has found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...protocol.markup import Markup, element, join
from ...protocol.tables import NARROW, Column, as_table, spaced
from ...protocol.wording import lasting
from .detail_parts import badge, detail_document, section
from .links import search_link, task_link, worker_link
from .visitor import Visitor

Info = Mapping[str, Any]

#: A longer text is cut.
MAX_TEXT_CHARS: Final = 200

_KEYS: Final = (
    Column("Key", lambda row: task_link(row[0]), "name"),
    Column("State", lambda row: badge(row[1])),
    Column("Function", lambda row: row[2], least_width=NARROW),
)
_FUNCTIONS: Final = (
    Column("Function", lambda row: search_link(row[0]), "name"),
    Column("Unfinished", lambda row: spaced(row[1]), "n"),
    Column("Failed", lambda row: spaced(row[2]), "n", emphasis=lambda r: "bad" if r[2] else ""),
)
_WORKERS: Final = (
    Column("Worker", lambda w: worker_link(w["address"], w["name"]), "name"),
    Column("Host", lambda w: w["host"]),
    Column("Address", lambda w: w["address"], least_width=NARROW),
)
_FAILURES: Final = (
    Column("Key", lambda f: task_link(f["key"]), "name"),
    Column("What was raised", lambda f: f["text"], "text", emphasis=lambda f: "bad"),
    Column("When", lambda f: f"{lasting(f['age_s'])} ago", "when", NARROW),
)


def search_page(name: str, text: str, found: Info | None, visitor: Visitor) -> str:
    """Return the page of a search in a cluster of this name; None = nothing was asked for."""
    if found is None:
        content = section(
            "Search",
            element(
                "p",
                "Give a part of a key, of a function's name, of a worker's name, host or "
                "address, or "
                "of what was raised lately.",
                class_="soft",
            ),
        )
        return detail_document("Search", name, content, visitor)
    parts = [
        _part("Functions", _FUNCTIONS, found["functions"]),
        _part("Tasks", _KEYS, found["keys"], "the first ones" if found["is_cut"] else ""),
        _part("Workers", _WORKERS, found["workers"]),
        _part("Failures", _FAILURES, found["failures"], "of the last 20"),
    ]
    if not any(parts):
        parts = [section("Nothing was found", element("p", f"Nothing has “{text}” in its name."))]
    n, n_all = found["n_looked_at"], found["n_tasks"]
    note = ""
    if not found["is_cut"] and n < n_all:
        note = (
            f"The {spaced(n)} latest and oldest of {spaced(n_all)} tasks were looked at. A whole "
            "key is always found."
        )
    content = join(*parts, element("p", note, class_="soft") if note else None)
    return detail_document(f"{text} – Search", name, content, visitor, query=text)


def _part(title: str, columns: Any, rows: Any, note: str = "") -> Markup | None:
    if not rows:
        return None
    return section(title, as_table(title, columns, rows, "–"), note=note)
