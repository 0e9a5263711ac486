"""The page of `weft.performance_report`, from plain data. Pure: it asks nothing and reads no clock.

It is one file that needs nothing else: the style sheet and the scripts are those of the pages of a
scheduler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ...protocol import flame_graph
from ...protocol.markup import Content, Markup, element, embedded, join
from ...protocol.tables import Column, as_table, spaced, tile
from ...protocol.wording import counted, lasting, sized
from ..insight.attempt_timing import AttemptTiming
from . import timeline
from .page import standing_alone
from .summary import (
    AttemptSums,
    by_function,
    by_span,
    by_worker,
    figures_by_function,
    in_total,
)

#: Rows of a table; the others are added up.
MAX_ROWS: Final = 100
MAX_FAILURES: Final = 50
MAX_CODE_CHARS: Final = 50_000


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
        profile: the stacks that were sampled, see `flame_graph.as_data`; None = none were.
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
    profile: dict[str, Any] | None = None

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
            _profile(shown.profile),
            _failures(shown.failures),
            _code(shown.code),
            _versions(shown.versions),
        ),
        _figures(shown),
    )
    has_flames = shown.profile is not None
    return standing_alone(title, body, has_stream=bool(shown.timings), has_flames=has_flames)


# -- figures: what `weft compare` reads of a report ------------------------------------------------
_FIGURES: Final = re.compile(r'<script type="application/json" class="figures">(.*?)</script>')


def _figures(shown: ReportContent) -> Markup:
    figures = {
        "format": 1,
        "when": shown.when,
        "seconds": shown.seconds,
        "n_threads": shown.n_threads,
        "functions": figures_by_function(shown.timings),
    }
    return embedded("figures", figures)


def figures_in(page: str) -> dict[str, Any] | None:
    """Return the figures of a report; None = the text is none, or one of an older version."""
    found = _FIGURES.search(page)
    return None if found is None else json.loads(found[1])


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
        ("Tasks", spaced(total.n), f"{spaced(total.n_failed)} raised" if total.n_failed else ""),
        ("Computed", lasting(total.compute_s), f"{share:.0%} of the threads' time"),
        (
            "Inputs fetched",
            lasting(total.transfer_s),
            "from other workers; threads do other work meanwhile",
        ),
        ("Results", sized(total.nbytes), ""),
        ("Workers", spaced(len(shown.workers)), f"with {counted(n_threads, 'thread')}"),
    ]
    return element("dl", (tile(name, big, note=note) for name, big, note in tiles), class_="tiles")


def _stream(shown: ReportContent) -> Markup:
    hosts = {address: str(one.get("host", "")) for address, one in shown.workers.items()}
    return element(
        "section",
        element(
            "h2",
            "Task stream",
            element("small", "one line per thread; the wheel zooms, a double click shows all"),
        ),
        timeline.timeline(shown.timings, shown.begin, shown.end, shown.n_threads, hosts),
    )


def _functions(shown: ReportContent) -> Markup | None:
    compute_s = in_total(shown.timings).compute_s
    return _table_of_sums("Functions", "function", by_function(shown.timings), compute_s)


def _spans(shown: ReportContent) -> Markup | None:
    compute_s = in_total(shown.timings).compute_s
    return _table_of_sums("Spans", "span", by_span(shown.timings), compute_s)


_SUMS: Final = (
    Column("tasks", lambda one: spaced(one[1].n), "n"),
    Column("raised", lambda one: spaced(one[1].n_failed) if one[1].n_failed else "", "n"),
    Column("computed", lambda one: lasting(one[1].compute_s), "n"),
    Column("mean", lambda one: lasting(one[1].compute_s / one[1].n), "n"),
    Column("longest", lambda one: lasting(one[1].longest_s), "n"),
    Column("waited", lambda one: lasting(one[1].waited_s) if one[1].waited_s else "", "n"),
    Column("inputs fetched", lambda one: _fetched(one[1]), "n"),
    Column("results", lambda one: sized(one[1].nbytes), "n"),
)


def _fetched(sums: AttemptSums) -> str:
    return lasting(sums.transfer_s) if sums.transfer_s else ""


def _table_of_sums(
    title: str, of: str, found: Mapping[str, AttemptSums], compute_s: float
) -> Markup | None:
    """Return a table of sums, with bars of their parts of `compute_s`, what all computed."""
    if not found:
        return None
    rows = [*found.items()][:MAX_ROWS]
    columns = (
        Column(of, itemgetter(0), "name"),
        *(column for column in _SUMS if any(map(column.cell, rows))),
        Column("of all computed", lambda one: _bar(one[1].compute_s / max(compute_s, 1e-9)), "n"),
    )
    return _section(title, "", columns, rows, len(found) - len(rows), of)


class _WorkerRow(NamedTuple):
    name: str
    seen: Mapping[str, Any]  #: its description; {} = it has left
    sums: AttemptSums
    busy: Content  #: a bar


_WORKERS: Final = (
    Column("worker", lambda w: w.name, "name"),
    Column("host", lambda w: w.seen.get("host"), "n"),
    Column("threads", lambda w: w.seen.get("nthreads"), "n"),
    Column("tasks", lambda w: spaced(w.sums.n), "n"),
    Column("computed", lambda w: lasting(w.sums.compute_s), "n"),
    Column("inputs fetched", lambda w: _fetched(w.sums), "n"),
    Column("memory", lambda w: _memory(w.seen), "n"),
    Column("busy", lambda w: w.busy, "n"),
)


def _memory(worker: Mapping[str, Any]) -> str:
    rss, limit = worker.get("metrics", {}).get("rss", 0), worker.get("memory_limit")
    return f"{sized(rss)} of {sized(limit)}" if limit and rss else sized(rss) if rss else ""


def _workers(shown: ReportContent) -> Markup | None:
    sums, rows = by_worker(shown.timings), []
    for address in {**shown.workers, **sums}:
        worker, mine = shown.workers.get(address), sums.get(address) or AttemptSums()
        if worker is None:
            name = next(one.worker for one in shown.timings if one.address == address)
            rows.append(_WorkerRow(f"{name} (left)", {}, mine, ""))
        else:
            share = mine.compute_s / (shown.seconds * worker["nthreads"])
            rows.append(_WorkerRow(worker["name"], worker, mine, _bar(share)))
    if not rows:
        return None
    rows.sort(key=lambda row: -row.sums.compute_s)
    n_more = len(rows) - MAX_ROWS
    return _section("Workers", "as at the end", _WORKERS, rows[:MAX_ROWS], n_more, "worker")


_FAILURES: Final = (
    Column("function", lambda one: one["function"], "name"),
    Column("task", lambda one: element("code", one["key"]), "text"),
    Column("worker", lambda one: one["worker"], "text"),
    Column("reason", lambda one: one["kind"], "text"),
    Column("text", lambda one: one["text"], "text"),
)


def _failures(failures: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not failures:
        return None
    return _section("Failures", "the latest", _FAILURES, failures[:MAX_FAILURES])


def _profile(profile: dict[str, Any] | None) -> Markup | None:
    if profile is None:
        return None
    notes = [element("p", note, class_="soft") for note in profile["notes"]]
    title = element("h2", "Profile", element("small", "which calls took the time of tasks"))
    return element("section", title, flame_graph.flame_graph(profile), *notes)


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
    rows: list[tuple[str, str]] = []
    for name in mine["packages"]:
        counts: dict[str, int] = {}
        for process in processes:
            version = (process.get("packages") or {}).get(name) or "none"
            counts[version] = counts.get(version, 0) + 1
        if len(counts) > 1:
            text = ", ".join(f"{version} in {_processes(n)}" for version, n in counts.items())
            rows.append((name, text))
        elif "none" not in counts:
            rows.append((name, *counts))
    columns = Column("package", itemgetter(0), "name"), Column("version", itemgetter(1), "text")
    return _section("Versions", f"of {_processes(len(processes))}", columns, rows)


def _processes(n: int) -> str:
    return "1 process" if n == 1 else f"{n} processes"


# -- small parts -----------------------------------------------------------------------------------
def _section(
    title: str,
    note: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    n_more: int = 0,
    of: str = "",
) -> Markup:
    """Return a table with a title, and how many rows it lacks."""
    more = element("p", f"and {counted(n_more, f'more {of}')}", class_="soft more")
    return element(
        "section",
        element("h2", title, element("small", note) if note else None),
        as_table(title, columns, rows),
        more if n_more > 0 else None,
    )


def _bar(share: float) -> Markup:
    """Return a bar from 0 to 100 %, and the number, so that it needs no scale."""
    bar = element(
        "svg",
        element("rect", class_="done", width=f"{min(share, 1.0) * 100:.1f}%", height="100%"),
        class_="bar",
        aria_hidden="true",
    )
    return element("span", bar, element("span", f"{share:.0%}"), class_="share")
