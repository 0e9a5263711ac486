"""The page of `weft.performance_report`, from plain data. Pure: it asks nothing and reads no clock.

It is one file that needs nothing else: the style sheet is that of the status page, and the only
script draws the axis of the task stream and zooms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.markup import Content, Markup, element, join
from ...protocol.wording import counted, grouped, lasting, sized
from ..insight.attempt_timing import AttemptTiming
from . import timeline
from .page import standing_alone
from .summary import AttemptSums, by_function, by_span, by_worker, in_total

#: Rows of a table; the others are added up.
MAX_ROWS: Final = 100
MAX_FAILURES: Final = 50
MAX_CODE_CHARS: Final = 50_000
_THIN: Final = "\u202f"


@dataclass(frozen=True)
class ReportContent:
    """The data of a report.

    Attributes:
        timings: the attempts that ended while it was made.
        begin, end: seconds since 1970.
        when: the same, for display.
        notes: what the reader must know, a sentence each.
        workers: {address: description}, see `client.scheduler_info()`.
        versions: see `client.get_versions()`.
        failures: see `scheduler/core/insight/overview.py`: the latest failures.
        code: the text of the program that was measured; "" = it is not known.
    """

    timings: Sequence[AttemptTiming]
    begin: float
    end: float
    when: str
    notes: Sequence[str] = ()
    workers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[Mapping[str, Any]] = ()
    code: str = ""

    @property
    def seconds(self) -> float:
        return max(self.end - self.begin, 1e-6)

    @property
    def n_threads(self) -> int:
        return sum(worker["nthreads"] for worker in self.workers.values())


def report_page(shown: ReportContent) -> str:
    """Return the page."""
    title = f"weft report – {shown.when}"
    body = join(
        element(
            "header",
            element("h1", "weft performance report"),
            element("span", shown.when, class_="soft"),
        ),
        element(
            "main",
            _notes(shown.notes),
            _tiles(shown),
            _stream(shown),
            _functions(shown),
            _spans(shown),
            _workers(shown),
            _failures(shown.failures),
            _code(shown.code),
            _versions(shown.versions),
        ),
    )
    return standing_alone(title, body)


# -- parts -----------------------------------------------------------------------------------------
def _notes(notes: Sequence[str]) -> Markup | None:
    if not notes:
        return None
    lines = [
        element("li", element("b", "Note"), element("span", note), class_="warning")
        for note in notes
    ]
    return element("section", element("ul", lines, class_="health"), class_="bare")


def _tiles(shown: ReportContent) -> Markup:
    total = in_total(shown.timings)
    n_threads = shown.n_threads
    share = total.compute_s / (shown.seconds * n_threads) if n_threads else 0.0
    tiles = [
        ("Duration", lasting(shown.seconds), ""),
        ("Tasks", _number(total.n), f"{_number(total.n_failed)} raised" if total.n_failed else ""),
        ("Computed", lasting(total.compute_s), f"{share:.0%} of the threads' time"),
        (
            "Inputs fetched",
            lasting(total.transfer_s),
            "from other workers; threads do other work meanwhile",
        ),
        ("Results", sized(total.nbytes), ""),
        ("Workers", _number(len(shown.workers)), f"with {counted(n_threads, 'thread')}"),
    ]
    return element("dl", (_tile(*tile) for tile in tiles), class_="tiles")


def _tile(name: str, value: str, note: str) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", value, class_="big"),
        element("dd", note, class_="note") if note else None,
    )


def _stream(shown: ReportContent) -> Markup:
    return element(
        "section",
        element(
            "h2",
            "Task stream",
            element("small", "one line per thread; the wheel zooms, a double click shows all"),
        ),
        timeline.timeline(shown.timings, shown.begin, shown.end, shown.n_threads),
    )


def _functions(shown: ReportContent) -> Markup | None:
    compute_s = in_total(shown.timings).compute_s
    return _table_of_sums("Functions", "function", by_function(shown.timings), compute_s)


def _spans(shown: ReportContent) -> Markup | None:
    compute_s = in_total(shown.timings).compute_s
    return _table_of_sums("Spans", "span", by_span(shown.timings), compute_s)


_COLUMNS: Final[Sequence[tuple[str, Callable[[AttemptSums], Content]]]] = (
    ("tasks", lambda sums: _number(sums.n)),
    ("raised", lambda sums: _number(sums.n_failed) if sums.n_failed else ""),
    ("computed", lambda sums: lasting(sums.compute_s)),
    ("mean", lambda sums: lasting(sums.compute_s / sums.n)),
    ("longest", lambda sums: lasting(sums.longest_s)),
    ("waited", lambda sums: lasting(sums.waited_s) if sums.waited_s else ""),
    ("inputs fetched", lambda sums: lasting(sums.transfer_s) if sums.transfer_s else ""),
    ("results", lambda sums: sized(sums.nbytes)),
)


def _table_of_sums(
    title: str, of: str, found: Mapping[str, AttemptSums], compute_s: float
) -> Markup | None:
    """Return a table of sums, with bars of their parts of `compute_s`, what all computed."""
    if not found:
        return None
    shown = [*found.items()][:MAX_ROWS]
    columns = [(head, cell) for head, cell in _COLUMNS if any(cell(sums) for _, sums in shown)]
    rows: list[list[Content]] = [
        [name, *(cell(sums) for _, cell in columns), _bar(sums.compute_s / max(compute_s, 1e-9))]
        for name, sums in shown
    ]
    heads = [of, *(head for head, _ in columns), "of all computed"]
    return _section(title, "", heads, rows, more=_more(len(found) - len(rows), of))


def _workers(shown: ReportContent) -> Markup | None:
    sums = by_worker(shown.timings)
    rows: list[list[Content]] = []
    for address in sorted({*shown.workers, *sums}, key=lambda a: -_compute_s(sums, a)):
        worker = shown.workers.get(address)
        mine = sums.get(address) or AttemptSums()
        if worker is None:
            name = next(one.worker for one in shown.timings if one.address == address)
            rows.append([f"{name} (left)", "", "", _number(mine.n), lasting(mine.compute_s)])
            rows[-1] += [lasting(mine.transfer_s), "", ""]
            continue
        share = mine.compute_s / (shown.seconds * worker["nthreads"])
        rss, limit = worker["metrics"].get("rss", 0), worker["memory_limit"] or 0
        memory = f"{sized(rss)} of {sized(limit)}" if limit and rss else sized(rss) if rss else ""
        rows.append(
            [
                worker["name"],
                worker["host"],
                worker["nthreads"],
                _number(mine.n),
                lasting(mine.compute_s),
                lasting(mine.transfer_s) if mine.transfer_s else "",
                memory,
                _bar(share),
            ]
        )
    heads = ["worker", "host", "threads", "tasks", "computed", "inputs fetched", "memory", "busy"]
    if not rows:
        return None
    more = _more(len(rows) - MAX_ROWS, "worker")
    return _section("Workers", "as at the end", heads, rows[:MAX_ROWS], more=more)


def _compute_s(sums: Mapping[str, AttemptSums], address: str) -> float:
    mine = sums.get(address)
    return 0.0 if mine is None else mine.compute_s


def _failures(failures: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not failures:
        return None
    rows: list[list[Content]] = [
        [one["function"], element("code", one["key"]), one["worker"], one["kind"], one["text"]]
        for one in failures[:MAX_FAILURES]
    ]
    heads = ["function", "task", "worker", "reason", "text"]
    return _section("Failures", "the latest", heads, rows, n_texts=len(heads))


def _code(code: str) -> Markup | None:
    if not code:
        return None
    if len(code) > MAX_CODE_CHARS:
        code = f"{code[:MAX_CODE_CHARS]}\n[...]"
    return element("section", element("h2", "Code"), element("pre", element("code", code)))


def _versions(versions: Mapping[str, Any]) -> Markup | None:
    """Return the versions of packages, and of those that differ how many processes have which."""
    mine = versions.get("client")
    if not mine:
        return None
    workers = (versions.get("workers") or {}).values()
    processes = [mine, versions.get("scheduler") or {}]
    processes += [found for found in workers if isinstance(found, Mapping)]
    rows: list[list[Content]] = []
    for name in mine["packages"]:
        counts: dict[str, int] = {}
        for process in processes:
            version = (process.get("packages") or {}).get(name) or "none"
            counts[version] = counts.get(version, 0) + 1
        if len(counts) > 1:
            text = ", ".join(f"{version} in {_processes(n)}" for version, n in counts.items())
            rows.append([name, text])
        elif "none" not in counts:
            rows.append([name, *counts])
    heads = ["package", "version"]
    return _section("Versions", f"of {_processes(len(processes))}", heads, rows, n_texts=2)


def _processes(n: int) -> str:
    return "1 process" if n == 1 else f"{n} processes"


# -- small parts -----------------------------------------------------------------------------------
def _section(
    title: str,
    note: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Content]],
    *,
    more: str = "",
    n_texts: int = 1,
) -> Markup:
    """Return a table with a title; its first `n_texts` columns are texts, the others numbers."""
    head = element(
        "tr",
        (
            element("th", name, scope="col", class_=None if i < n_texts else "n")
            for i, name in enumerate(heads)
        ),
    )
    body = [
        element(
            "tr",
            element("th", row[0], scope="row", class_="name"),
            (
                element("td", cell, class_="text" if i < n_texts else "n")
                for i, cell in enumerate(row[1:], 1)
            ),
        )
        for row in rows
    ]
    return element(
        "section",
        element("h2", title, element("small", note) if note else None),
        element(
            "div",
            element("table", element("thead", head), element("tbody", body)),
            class_="scroll",
            tabindex=0,
            role="group",
            aria_label=title,
        ),
        element("p", more, class_="soft more") if more else None,
    )


def _more(n: int, of: str) -> str:
    return f"and {counted(n, f'more {of}')}" if n > 0 else ""


def _bar(share: float) -> Markup:
    """Return a bar from 0 to 100 %, and the number, so that it needs no scale."""
    bar = element(
        "svg",
        element("rect", class_="done", width=f"{min(share, 1.0) * 100:.1f}%", height="100%"),
        class_="bar",
        aria_hidden="true",
    )
    return element("span", bar, element("span", f"{share:.0%}"), class_="share")


def _number(n: int) -> str:
    return grouped(n, _THIN)
