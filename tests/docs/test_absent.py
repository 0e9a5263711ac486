"""The list of missing names in docs/client.md is the one that the errors use."""

from __future__ import annotations

from tests.docs.pages import ROOT
from weft.client.dask.absent_names import ABSENT

TITLES = [
    ("`Client`", ABSENT["Client"], ""),
    ("`Client(...)`", ABSENT["Client()"], "="),
    ("`submit`, `map`, `get`, `gather`", ABSENT["submit()"], "="),
    ("`profile`", ABSENT["profile()"], "="),
    ("`Future`", ABSENT["Future"], ""),
    ("calls of actors", ABSENT["ActorFuture"], ""),
    ("`LocalCluster`", ABSENT["LocalCluster"], ""),
    ("`LocalCluster(...)`", ABSENT["LocalCluster()"], "="),
    ("`Lock`", ABSENT["Lock"], ""),
    ("`Event`", ABSENT["Event"], ""),
    ("`Variable`", ABSENT["Variable"], ""),
    ("`Queue`", ABSENT["Queue"], ""),
    ("`weft`", ABSENT["weft"], ""),
    ("Ray", ABSENT["Ray"], ""),
    ("options of tasks and actors in Ray", ABSENT["Ray()"], "="),
]


def listed() -> str:
    """Return the tables of the page: names with the same advice are in one row."""
    lines = []
    for title, table, suffix in TITLES:
        rows: dict[str, list[str]] = {}
        for name, instead in table.items():
            rows.setdefault(instead, []).append(f"`{name}{suffix}`")
        lines += ["", f"| of {title} | |", "|---|---|"]
        lines += [f"| {', '.join(names)} | {instead} |" for instead, names in rows.items()]
    return "\n".join(lines) + "\n"


def test_the_page_lists_the_missing_names():
    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    assert page.endswith(listed()), f"the end of docs/client.md should be:\n{listed()}"
