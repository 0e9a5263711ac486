"""The status page as HTML, from plain data. Pure: it asks nothing and reads no clock.

`overview` is the scheduler's answer to the question of that name, workers and clients those to
`workers` and `clients`. All texts are escaped (`markup`), numbers have units, colours never carry a
meaning alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.markup import Content, Markup, element, join
from ...protocol.rates import SeenRate
from ...protocol.tables import NARROW, THIN, Column, as_table, spaced, tile
from ...protocol.wording import counted, lasting, named_with_user, rated, sized
from ..overview.history import ClusterHistory
from ..overview.hosts import by_host, natural
from ..overview.wording import (
    cpu_text,
    mean_time,
    memory_share,
    memory_text,
    n_unfinished,
    worker_state,
    worker_state_text,
)
from .documents import document, live_switch
from .links import search_link, task_link, worker_link
from .sparkline import sparkline
from .visitor import LOOKING, Visitor

Info = Mapping[str, Any]

#: Rows of the page; the others have a page of their own, or are added up.
MAX_WORKERS: Final = 20
MAX_FUNCTIONS: Final = 20
MAX_CLIENTS: Final = 20
MAX_GROUPS: Final = 20
#: Parts of the memory limit from which a bar is in another colour.
_HIGH: Final = 0.8
_FULL: Final = 0.95
#: The part of time of the small lines, at least and at most, and of one point, seconds.
_LEAST_SPARK_S: Final = 20.0
_SPARK_S: Final = 300.0
_SPARK_STEP_S: Final = 3.0
#: Emphasis of the states of workers.
_STATES: Final = {
    "away": "bad",
    "paused": "bad",
    "blocked": "bad",
    "leaving": "soft",
    "idle": "soft",
}
_LEVELS: Final = {"ok": "OK", "warning": "Warning", "error": "Error"}


@dataclass(frozen=True)
class PageContent:
    """The data that a page shows.

    Attributes:
        overview: see `scheduler/core/insight/overview.py`.
        workers: {address: description}.
        clients: their descriptions, at most MAX_CLIENTS.
        rates: {function: its rate}.
        total_rate: of all tasks.
        as_of: the time of the overview, for display.
        refresh_s: the page is fetched again so often.
        history: the last hour.
        visitor: who looks.
    """

    overview: Info
    workers: Mapping[str, Info] = field(default_factory=dict)
    clients: Sequence[Info] = ()
    rates: Mapping[str, SeenRate] = field(default_factory=dict)
    total_rate: SeenRate = (None, None)
    as_of: str = ""
    refresh_s: float = 2.0
    history: ClusterHistory = field(default_factory=ClusterHistory)
    visitor: Visitor = LOOKING


# --- Pages ----------------------------------------------------------------------------------------


def status_page(shown: PageContent) -> str:
    """Return the page of the whole cluster: health first."""
    info = shown.overview
    health = element(
        "section",
        element("h2", "Health", class_="sr"),
        element("ul", map(_health_line, info["health"]), class_="health"),
        class_="bare",
        aria_label="Health",
    )
    content = join(
        health,
        _tiles(shown),
        element("div", _functions(shown), _workers_at_top(shown), class_="pair"),
        _failures(info["failure_groups"], info["totals"]["failed"]),
        _clients(shown),
        _totals(info),
        _foot(shown),
    )
    return document(
        _title(info), name_of(info), content, "status", shown.refresh_s, visitor=shown.visitor.name
    )


def workers_page(shown: PageContent, order: str) -> str:
    """Return the page of all workers, in an order of `ORDERS`, below their hosts if there are more.

    In the order of their names workers stand below the name of their host.
    """
    rows = sorted(shown.workers.items(), key=lambda item: ORDERS[order].key(item[1]))
    hosts = by_host(shown.workers.values())
    is_grouped = len(hosts) > 1 and order == "name"
    if is_grouped:
        rows.sort(key=lambda item: natural(str(item[1]["host"])))
    content = join(
        _table_section("Hosts", f"{len(hosts)}", _HOSTS, hosts) if len(hosts) > 1 else None,
        element(
            "section",
            element("h2", "Workers", element("small", counted(len(rows), "worker"))),
            _worker_table(rows, order, is_grouped=is_grouped) if rows else _no_workers(),
            _scale_form(len(rows)) if shown.visitor.may_order else None,
        ),
        _foot(shown),
    )
    name = name_of(shown.overview)
    return document(
        f"Workers – {name}", name, content, "workers", shown.refresh_s, visitor=shown.visitor.name
    )


def _scale_form(n: int) -> Markup:
    """Return the form that leads to the question whether to have another number of workers."""
    number = element(
        "input", type="number", name="n", id="n", value=n, min=0, max=999_999, class_="field number"
    )
    return element(
        "form",
        element("input", type="hidden", name="do", value="scale"),
        element("label", "Workers wanted", for_="n"),
        number,
        element("button", "Scale …", type="submit"),
        action="order",
        class_="scale",
    )


def name_of(info: Info) -> str:
    """Return the name of a cluster, for display."""
    return str(info["name"]) or "weft"


def _title(info: Info) -> str:
    """Return the title: what is wrong, or how much is left, is visible in the tab."""
    n = n_unfinished(info["tasks"])
    state = f"{spaced(n)} left" if n else "idle"
    level = info["health"][0]["level"]
    if level != "ok":
        state = f"{_LEVELS[level]}, {state}"
    return f"{state} – {name_of(info)}"


def _foot(shown: PageContent) -> Markup:
    info = shown.overview
    release = f"weft {info['version']}, " if info["version"] else ""
    where = f"{release}Python {info['python']}, process {info['pid']} on {info['host']}"
    return element(
        "footer",
        element("span", f"As of {shown.as_of}"),
        live_switch(),
        element("span", f"up {lasting(info['uptime_s'])}"),
        element("span", where),
    )


# --- Parts of the status page ---------------------------------------------------------------------


def _health_line(line: Info) -> Markup:
    level = line["level"] if line["level"] in _LEVELS else "warning"
    return element("li", element("b", _LEVELS[level]), element("span", line["text"]), class_=level)


def _tiles(shown: PageContent) -> Markup:
    info, history = shown.overview, shown.history
    tasks, memory, n_workers = info["tasks"], info["memory"], info["n_workers"]
    n_left = n_unfinished(info["tasks"])
    per_second, eta_s = shown.total_rate
    if not n_left:
        left = "nothing to do"
    else:
        waiting = n_left - tasks["processing"]
        left = f"{spaced(tasks['processing'])} at workers, {spaced(waiting)} waiting"
    others = [f"{n} {state}" for state, n in n_workers.items() if n and state != "running"]
    if info["desired_workers"] and info["desired_workers"] > n_workers["running"]:
        others.append(f"work for {spaced(info['desired_workers'])} workers")
    share = memory["resident"] / memory["limit"] if memory["limit"] else 0.0
    limit = f" of {sized(memory['limit'])}" if memory["limit"] else ""
    busy = info["threads_busy"] / info["threads"] if info["threads"] else 0.0
    return element(
        "dl",
        tile(
            "Tasks left",
            spaced(n_left),
            "",
            left,
            _spark(history, ("processing", "queued", "waiting"), "full", "Tasks left"),
        ),
        tile(
            "Throughput",
            _rate(per_second),
            " tasks/s",
            "measured with the next refresh"
            if per_second is None
            else f"about {lasting(eta_s)} left"
            if n_left and eta_s is not None
            else "",
            _spark(history, ("completed",), "done", "Tasks per second", unit=1.0),
        ),
        tile(
            "Workers",
            spaced(n_workers["running"]),
            f" with {counted(info['threads'], 'thread')}",
            ", ".join(others) or f"{counted(info['threads_busy'], 'thread')} busy",
            join(
                bar_of([(busy, "run")], f"{busy:.0%} of the threads are busy"),
                _spark(history, ("cpu_us",), "run", "CPU of workers", info["threads"], 1e6),
            ),
        ),
        tile(
            "Memory of workers",
            sized(memory["resident"]),
            limit,
            f"{sized(memory['managed'])} in results",
            join(
                memory_bar(memory["managed"], memory["resident"], memory["limit"])
                if share
                else None,
                _spark(
                    history, ("managed", "unmanaged"), "run", "Memory of workers", memory["limit"]
                ),
            ),
        ),
        class_="tiles",
    )


def _spark(
    history: ClusterHistory,
    columns: Sequence[str],
    kind: str,
    label: str,
    most: float = 0.0,
    unit: float = 0.0,
) -> Markup | None:
    """Return the small line of the sum of columns; with a unit, of how they grow for each second.

    It has the last five minutes, or, of a younger scheduler, what there is.
    """
    seconds = min(max(history.span_s, _LEAST_SPARK_S), _SPARK_S)
    n = round(seconds / _SPARK_STEP_S)
    if unit:
        values = [history.rates(name, n, seconds, unit=unit) for name in columns]
    else:
        values = [history.levels(name, n, seconds) for name in columns]
    sums = [*map(sum, zip(*values, strict=True))]
    return sparkline(sums, n, kind, f"{label}, last {lasting(seconds)}", most)


def _n_running(function: Info) -> int:
    n: int = min(function["n_processing"], function["n_unfinished"])
    return n


def _time_left(function: Info) -> str:
    _, eta_s = function["rate"]
    return lasting(eta_s) if function["n_unfinished"] and eta_s is not None else ""


def _bad_if_failed(function: Info) -> str:
    return "bad" if function["n_failed"] else ""


def _progress(function: Info) -> Content:
    n_left, n_failed = function["n_unfinished"], function["n_failed"]
    n_ended = function["n_finished"] + n_failed
    # While tasks are left, those since it last had none; then all of them.
    is_over = not n_left or "n_done" not in function
    n_round = n_ended if is_over else function["n_done"]
    n_bad = n_failed if is_over else function.get("n_done_failed", 0)
    n_all = n_round + n_left
    if n_left:
        done = f"{spaced(n_round)} of {spaced(n_all)}"
    else:
        done = f"{spaced(n_ended - n_bad)} done" if n_ended > n_bad or not n_bad else ""
    failed = element("span", f"{spaced(n_bad)} failed", class_="bad") if n_bad else None
    bar = None
    if n_all:
        parts = n_round - n_bad, n_bad, _n_running(function)
        good, bad, at_workers = (n / n_all for n in parts)
        words = f"{good:.0%} finished, {bad:.0%} failed, {at_workers:.0%} at workers"
        bar = bar_of([(good, "done"), (bad, "fail"), (at_workers, "run")], words)
    return bar, element("span", done, ", " if done and failed else None, failed)


_FUNCTIONS: Final = (
    Column("Function", lambda f: str(f["name"]), "name"),
    Column("Progress", _progress),
    Column("Left", lambda f: _number(f["n_unfinished"]), "n", NARROW),
    Column("At workers", lambda f: _number(_n_running(f)), "n", NARROW),
    Column("Per s", lambda f: _rate(f["rate"][0]) if f["rate"][0] else "", "n"),
    Column("Time left", _time_left, "n"),
    Column("Failed since start", lambda f: _number(f["n_failed"]), "n", NARROW, _bad_if_failed),
    Column("Mean time", mean_time, "n", NARROW),
)


def _functions(shown: PageContent) -> Markup:
    functions = shown.overview["functions"]
    if not functions:
        return _section("Progress", "No task has been submitted yet.")
    rest = functions[MAX_FUNCTIONS:]
    n_left = sum(function["n_unfinished"] for function in rest)
    more = f"{len(rest)} more functions, with {counted(n_left, 'task')} left" if rest else ""
    rows = [
        {**function, "rate": shown.rates.get(function["name"], (None, None))}
        for function in functions[:MAX_FUNCTIONS]
    ]
    return _table_section("Progress", "", _FUNCTIONS, rows, more)


_FAILURES: Final = (
    Column("Times", lambda f: spaced(f["n"]), "n"),
    Column("Function", lambda f: search_link(f["function"]), "name"),
    Column(
        "What was raised last",
        lambda f: task_link(f["key"], f["text"]),
        "text",
        emphasis=lambda f: "bad",
    ),
    Column("When", lambda f: _ago(f["age_s"]), "when", NARROW),
    Column("Key", lambda f: task_link(f["key"], element("code", f["key"])), least_width=NARROW),
    Column(
        "Worker",
        lambda f: worker_link(f["worker"]) if f["worker"] else "",
        least_width=NARROW,
    ),
)


def _failures(groups: Sequence[Info], n_failed: int) -> Markup:
    """Return the failures by function and type, each with the last of its kind."""
    if not groups:
        return _section("Failures", "No task has failed.")
    n_more = len(groups) - MAX_GROUPS
    more = counted(n_more, "more kind") if n_more > 0 else ""
    note = f"{counted(n_failed, 'task')}, by function and type"
    return _table_section("Failures", note, _FAILURES, groups[:MAX_GROUPS], more)


_CLIENTS: Final = (
    Column("Name", named_with_user, "name"),
    Column(
        "State",
        lambda c: "connected" if c["lost_s"] is None else f"lost {lasting(c['lost_s'])} ago",
        emphasis=lambda c: "" if c["lost_s"] is None else "bad",
    ),
    Column("Futures", lambda c: spaced(c["n_wants"]), "n"),
)


def _clients(shown: PageContent) -> Markup:
    n_clients = shown.overview["n_clients"]
    if not n_clients:
        return _section("Clients", "No client is connected.")
    clients = shown.clients[:MAX_CLIENTS]
    n_more = n_clients - len(clients)
    more = f"{n_more} more" if n_more > 0 else ""
    return _table_section("Clients", f"{n_clients}", _CLIENTS, clients, more)


def _totals(info: Info) -> Markup:
    totals = info["totals"]
    names = (
        ("submitted", "submitted"), ("completed", "finished"), ("failed", "failed"),
        ("cancelled", "cancelled"), ("retried", "retried"), ("recomputed", "computed again"),
    )  # fmt: skip
    tasks = ", ".join(f"{spaced(totals[name])} {label}" for name, label in names)
    lost = counted(totals["workers_lost"], "worker")
    text = f"Tasks since the start of this scheduler: {tasks}. {lost} lost."
    return element("p", text, class_="soft")


# --- Workers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerOrder:
    """An order of workers: the header of its column, and the key to sort by."""

    label: str
    key: Callable[[Info], Any]


ORDERS: Final[dict[str, WorkerOrder]] = {
    "name": WorkerOrder("Worker", lambda w: (str(w["name"]), w["id"])),
    "memory": WorkerOrder("Memory", lambda w: (-memory_share(w), str(w["name"]))),
    "tasks": WorkerOrder("Tasks", lambda w: (-w["n_processing"], str(w["name"]))),
    "cpu": WorkerOrder("CPU", lambda w: (-w["metrics"].get("cpu", 0), str(w["name"]))),
}


def _of_interest(worker: Info) -> tuple[Any, ...]:
    """Sort those that are away, leaving or paused first, then by memory in use, then the busy."""
    is_odd = worker_state(worker) in ("away", "leaving", "paused", "blocked")
    share = memory_share(worker)
    return (not is_odd, -round(share, 1), -min(worker["n_processing"], 1), str(worker["name"]))


def _workers_at_top(shown: PageContent) -> Markup:
    rows = sorted(shown.workers.items(), key=lambda item: _of_interest(item[1]))
    if not rows:
        return element("section", element("h2", "Workers"), _no_workers())
    n_more = len(rows) - MAX_WORKERS
    more = None
    if n_more > 0:
        link = element("a", f"and {spaced(n_more)} more", href="workers")
        more = element("p", link, class_="more")
    title = element("h2", "Workers", element("small", counted(len(rows), "worker")))
    return element("section", title, _worker_table(rows[:MAX_WORKERS], ""), more)


def _no_workers() -> Markup:
    return element(
        "p", "There is no worker. Start some with ", element("code", "weft worker"), class_="soft"
    )


def _worker_table(
    rows: Iterable[tuple[str, Info]], order: str, *, is_grouped: bool = False
) -> Markup:
    def heading(name: str) -> Content:
        label = ORDERS[name].label
        return element("a", label, href=f"workers?sort={name}") if order else label

    columns = (
        Column(
            heading("name"),
            lambda w: worker_link(w["address"], str(w["name"])),
            "name",
            title=_place,
            is_sorted=order == "name",
        ),
        Column(
            "State",
            worker_state_text,
            title=lambda w: w.get("why_not", ""),
            emphasis=lambda w: _STATES.get(worker_state(w), ""),
        ),
        Column(heading("memory"), _memory, is_sorted=order == "memory"),
        Column(
            heading("tasks"), lambda w: spaced(w["n_processing"]), "n", is_sorted=order == "tasks"
        ),
        Column("Threads", lambda w: str(w["nthreads"]), "n", NARROW),
        Column(heading("cpu"), cpu_text, "n", NARROW, is_sorted=order == "cpu"),
        Column("Results", lambda w: spaced(w["n_in_memory"]), "n", NARROW),
        Column("Last seen", lambda w: _ago(w["last_seen_s"]), "n", NARROW),
    )
    workers = ({**worker, "address": address} for address, worker in rows)
    if is_grouped:
        return as_table("Workers", columns, workers, "–", lambda w: str(w["host"]))
    return as_table("Workers", columns, workers, "–")


def _place(worker: Info) -> str:
    return f"{worker['host']}, process {worker['pid']}, {worker['address']}"


def _memory(worker: Info) -> Content:
    metrics, limit = worker["metrics"], worker["memory_limit"]
    resident = metrics.get("rss", 0)
    if not resident:
        return ""
    bar = memory_bar(metrics.get("managed", 0), resident, limit) if limit else None
    return bar, element("span", memory_text(resident, limit))


_HOSTS: Final = (
    Column("Host", lambda h: str(h["name"]), "name"),
    Column("Workers", lambda h: spaced(h["n_workers"]), "n", NARROW),
    Column("Busy", lambda h: f"{spaced(h['n_busy'])}/{spaced(h['nthreads'])}", "n"),
    Column("Memory", _memory),
    Column("Queued", lambda h: _number(h["n_queued"]), "n"),
    Column("CPU", cpu_text, "n", NARROW),
)


# --- Small parts ----------------------------------------------------------------------------------


def _section(title: str, text: str) -> Markup:
    return element("section", element("h2", title), element("p", text, class_="soft"))


def _table_section(
    title: str, note: str, columns: Sequence[Column], rows: Sequence[Info], more: str = ""
) -> Markup:
    return element(
        "section",
        element("h2", title, element("small", note) if note else None),
        as_table(title, columns, rows, "–"),
        element("p", f"and {more}", class_="more soft") if more else None,
    )


def bar_of(parts: Iterable[tuple[float, str]], label: str) -> Markup:
    """Return a bar of parts of 1, one behind the other."""
    start = 0.0
    rects = []
    for part, class_ in parts:
        width = min(max(part, 0.0), 1.0 - start)
        # A share above zero is visible, however small it is.
        shown = max(width, 0.01) if part > 0 else 0.0
        if shown:
            x, w = f"{100 * start:.1f}", f"{100 * shown:.1f}"
            rects.append(element("rect", x=x, width=w, height=10, class_=class_))
        start += width
    return element(
        "svg",
        rects,
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def memory_bar(managed: int, resident: int, limit: int) -> Markup:
    """Return a bar of the memory that results take, and of the rest that is in use."""
    share = resident / limit if limit else 0.0
    of_results = min(managed, resident) / limit if limit else 0.0
    rest = "fail" if share >= _FULL else "full" if share >= _HIGH else "run"
    label = f"{share:.0%} of the memory limit, {of_results:.0%} are results"
    return bar_of([(of_results, "done"), (share - of_results, rest)], label)


def _ago(seconds: float) -> str:
    return "just now" if seconds < 3 else f"{lasting(seconds)} ago"


def _number(n: int) -> str:
    return spaced(n) if n else ""


def _rate(per_second: float | None) -> str:
    return "–" if per_second is None else rated(per_second).replace(" ", THIN)
