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
from ...protocol.wording import counted, grouped, lasting, rated, sized
from ..overview.wording import n_unfinished
from .documents import document, live_switch

Info = Mapping[str, Any]

#: Rows of the page; the others have a page of their own, or are added up.
MAX_WORKERS: Final = 20
MAX_FUNCTIONS: Final = 20
MAX_CLIENTS: Final = 20
#: Parts of the memory limit from which a bar is in another colour.
_HIGH: Final = 0.8
_FULL: Final = 0.95
#: The space between thousands that the SI asks for, without a break.
_THIN: Final = "\u202f"
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
    """

    overview: Info
    workers: Mapping[str, Info] = field(default_factory=dict)
    clients: Sequence[Info] = ()
    rates: Mapping[str, SeenRate] = field(default_factory=dict)
    total_rate: SeenRate = (None, None)
    as_of: str = ""
    refresh_s: float = 2.0


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
        _functions(shown),
        _workers_at_top(shown),
        _failures(info["failures"]),
        _clients(shown),
        _totals(info),
        _foot(shown),
    )
    return document(_title(info), _name(info), content, "status", shown.refresh_s)


def workers_page(shown: PageContent, order: str) -> str:
    """Return the page of all workers, in an order of `ORDERS`."""
    rows = sorted(shown.workers.items(), key=lambda item: ORDERS[order].key(item[1]))
    content = join(
        element(
            "section",
            element("h2", "Workers", element("small", counted(len(rows), "worker"))),
            _worker_table(rows, order) if rows else _no_workers(),
        ),
        _foot(shown),
    )
    name = _name(shown.overview)
    return document(f"Workers – {name}", name, content, "workers", shown.refresh_s)


def _name(info: Info) -> str:
    return str(info["name"]) or "weft"


def _title(info: Info) -> str:
    """Return the title: what is wrong, or how much is left, is visible in the tab."""
    n = n_unfinished(info["tasks"])
    state = f"{_number(n)} left" if n else "idle"
    level = info["health"][0]["level"]
    if level != "ok":
        state = f"{_LEVELS[level]}, {state}"
    return f"{state} – {_name(info)}"


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
    info = shown.overview
    tasks, memory, n_workers = info["tasks"], info["memory"], info["n_workers"]
    n_left = n_unfinished(info["tasks"])
    per_second, eta_s = shown.total_rate
    if not n_left:
        left = "nothing to do"
    else:
        waiting = n_left - tasks["processing"]
        left = f"{_number(tasks['processing'])} at workers, {_number(waiting)} waiting"
    others = [f"{n} {state}" for state, n in n_workers.items() if n and state != "running"]
    if info["desired_workers"] and info["desired_workers"] > n_workers["running"]:
        others.append(f"work for {_number(info['desired_workers'])} workers")
    share = memory["resident"] / memory["limit"] if memory["limit"] else 0.0
    limit = f" of {sized(memory['limit'])}" if memory["limit"] else ""
    busy = info["threads_busy"] / info["threads"] if info["threads"] else 0.0
    return element(
        "dl",
        _tile("Tasks left", _number(n_left), "", left),
        _tile(
            "Throughput",
            _rate(per_second),
            " tasks/s",
            "measured with the next refresh"
            if per_second is None
            else f"about {lasting(eta_s)} left"
            if n_left and eta_s is not None
            else "",
        ),
        _tile(
            "Workers",
            _number(n_workers["running"]),
            f" with {counted(info['threads'], 'thread')}",
            ", ".join(others) or f"{_number(info['threads_busy'])} threads busy",
            _bar([(busy, "run")], f"{busy:.0%} of the threads are busy"),
        ),
        _tile(
            "Memory of workers",
            sized(memory["resident"]),
            limit,
            f"{sized(memory['managed'])} in results",
            _memory_bar(memory["managed"], memory["resident"], memory["limit"]) if share else None,
        ),
        class_="tiles",
    )


def _tile(name: str, big: str, unit: str, note: str, bar: Markup | None = None) -> Markup:
    value = element("dd", big, element("small", unit) if unit else None, class_="big")
    return element(
        "div",
        element("dt", name),
        value,
        element("dd", bar) if bar else None,
        element("dd", note, class_="note") if note else None,
    )


def _functions(shown: PageContent) -> Markup:
    functions = shown.overview["functions"]
    if not functions:
        return _section("Progress", "No task has been submitted yet.")
    rows = [_function_row(function, shown.rates) for function in functions[:MAX_FUNCTIONS]]
    rest = functions[MAX_FUNCTIONS:]
    more = None
    if rest:
        n_left = sum(function["n_unfinished"] for function in rest)
        more = element(
            "p",
            f"and {len(rest)} more functions, with {counted(n_left, 'task')} left",
            class_="more soft",
        )
    headers = (
        ("Function", "name"), ("Progress", ""), ("Left", "n wide"), ("At workers", "n wide"),
        ("Per s", "n"), ("Time left", "n"), ("Failed since start", "n wide"),
        ("Mean time", "n wide"),
    )  # fmt: skip
    table = _table("Progress by function", headers, rows)
    return element("section", element("h2", "Progress"), table, more)


def _function_row(function: Info, rates: Mapping[str, SeenRate]) -> Markup:
    name, n_left = str(function["name"]), function["n_unfinished"]
    n_ended = function["n_finished"] + function["n_failed"]
    n_failed = function["n_failed"]
    # While tasks are left, those since it last had none; then all of them.
    is_over = not n_left or "n_done" not in function
    n_round = n_ended if is_over else function["n_done"]
    n_bad = n_failed if is_over else function.get("n_done_failed", 0)
    n_all = n_round + n_left
    running = min(function["n_processing"], n_left)
    per_second, eta_s = rates.get(name, (None, None))
    mean = ""
    if function["n_finished"]:
        mean = lasting(function["compute_s"] / function["n_finished"])
    if n_left:
        done = f"{_number(n_round)} of {_number(n_all)}"
    else:
        done = f"{_number(n_ended - n_bad)} done" if n_ended > n_bad or not n_bad else ""
    failed = element("span", f"{_number(n_bad)} failed", class_="bad") if n_bad else None
    bar = None
    if n_all:
        good, bad, at_workers = (n / n_all for n in (n_round - n_bad, n_bad, running))
        words = f"{good:.0%} finished, {bad:.0%} failed, {at_workers:.0%} at workers"
        bar = _bar([(good, "done"), (bad, "fail"), (at_workers, "run")], words)
    return element(
        "tr",
        element("th", name, scope="row", class_="name"),
        element("td", bar, element("span", done, ", " if done and failed else None, failed)),
        element("td", _number(n_left) if n_left else "–", class_="n wide"),
        element("td", _number(running) if running else "–", class_="n wide"),
        element("td", _rate(per_second) if per_second else "–", class_="n"),
        element("td", lasting(eta_s) if n_left and eta_s is not None else "–", class_="n"),
        element(
            "td",
            _number(n_failed) if n_failed else "–",
            class_="n wide bad" if n_failed else "n wide",
        ),
        element("td", mean or "–", class_="n wide"),
    )


def _failures(failures: Sequence[Info]) -> Markup:
    if not failures:
        return _section("Failures", "No task has failed.")
    rows = [
        element(
            "tr",
            element("td", _ago(failure["age_s"]), class_="when"),
            element("th", failure["function"], scope="row", class_="name"),
            element("td", failure["text"], class_="text bad"),
            element("td", element("code", failure["key"]), class_="wide"),
            element("td", failure["worker"] or "–", class_="wide"),
        )
        for failure in failures
    ]
    headers = (
        ("When", "when"), ("Function", "name"), ("What was raised", "text"), ("Key", "wide"),
        ("Worker", "wide"),
    )  # fmt: skip
    return element(
        "section",
        element("h2", "Failures", element("small", f"the last {len(failures)}")),
        _table("Failures", headers, rows),
    )


def _clients(shown: PageContent) -> Markup:
    n_clients = shown.overview["n_clients"]
    if not n_clients:
        return _section("Clients", "No client is connected.")
    rows = []
    for client in shown.clients[:MAX_CLIENTS]:
        lost_s = client["lost_s"]
        state = "connected" if lost_s is None else f"lost {lasting(lost_s)} ago"
        rows.append(
            element(
                "tr",
                element("th", client["name"], scope="row", class_="name"),
                element("td", state, class_="bad" if lost_s is not None else None),
                element("td", _number(client["n_wants"]), class_="n"),
            )
        )
    n_more = n_clients - len(rows)
    return element(
        "section",
        element("h2", "Clients", element("small", f"{n_clients}")),
        _table("Clients", (("Name", "name"), ("State", ""), ("Futures", "n")), rows),
        element("p", f"and {n_more} more", class_="more soft") if n_more > 0 else None,
    )


def _totals(info: Info) -> Markup:
    totals = info["totals"]
    names = (
        ("submitted", "submitted"), ("completed", "finished"), ("failed", "failed"),
        ("cancelled", "cancelled"), ("retried", "retried"), ("recomputed", "computed again"),
    )  # fmt: skip
    tasks = ", ".join(f"{_number(totals[name])} {label}" for name, label in names)
    lost = counted(totals["workers_lost"], "worker")
    text = f"Tasks since the start of this scheduler: {tasks}. {lost} lost."
    return element("p", text, class_="soft")


def _section(title: str, text: str) -> Markup:
    return element("section", element("h2", title), element("p", text, class_="soft"))


# --- Workers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerOrder:
    """An order of workers: the header of its column, and the key to sort by."""

    label: str
    key: Callable[[Info], Any]


def _memory_share(worker: Info) -> float:
    limit = worker["memory_limit"]
    return worker["metrics"].get("rss", 0) / limit if limit else 0.0


ORDERS: Final[dict[str, WorkerOrder]] = {
    "name": WorkerOrder("Worker", lambda w: (str(w["name"]), w["id"])),
    "memory": WorkerOrder("Memory", lambda w: (-_memory_share(w), str(w["name"]))),
    "tasks": WorkerOrder("Tasks", lambda w: (-w["n_processing"], str(w["name"]))),
    "cpu": WorkerOrder("CPU", lambda w: (-w["metrics"].get("cpu", 0), str(w["name"]))),
}


def _of_interest(worker: Info) -> tuple[Any, ...]:
    """Sort those that are away or leaving first, then those with most memory in use, then busy."""
    is_odd = worker["is_away"] or worker["is_leaving"]
    share = _memory_share(worker)
    return (not is_odd, -round(share, 1), -min(worker["n_processing"], 1), str(worker["name"]))


def _workers_at_top(shown: PageContent) -> Markup:
    rows = sorted(shown.workers.items(), key=lambda item: _of_interest(item[1]))
    if not rows:
        return element("section", element("h2", "Workers"), _no_workers())
    n_more = len(rows) - MAX_WORKERS
    more = None
    if n_more > 0:
        link = element("a", f"and {_number(n_more)} more", href="workers")
        more = element("p", link, class_="more")
    title = element("h2", "Workers", element("small", counted(len(rows), "worker")))
    return element("section", title, _worker_table(rows[:MAX_WORKERS], ""), more)


def _no_workers() -> Markup:
    return element(
        "p", "There is no worker. Start some with ", element("code", "weft worker"), class_="soft"
    )


def _worker_table(rows: Iterable[tuple[str, Info]], order: str) -> Markup:
    def header(name: str, class_: str = "") -> tuple[Content, str, bool]:
        label = ORDERS[name].label
        if not order:
            return label, class_, False
        return element("a", label, href=f"workers?sort={name}"), class_, name == order

    headers: list[tuple[Content, str, bool]] = [
        header("name", "name"),
        ("State", "", False),
        header("memory"),
        header("tasks", "n"),
        ("Threads", "n wide", False),
        header("cpu", "n wide"),
        ("Results", "n wide", False),
        ("Last seen", "n wide", False),
    ]
    return _table("Workers", headers, [_worker_row(*row) for row in rows])


def _worker_row(address: str, worker: Info) -> Markup:
    metrics = worker["metrics"]
    resident, limit = metrics.get("rss", 0), worker["memory_limit"]
    class_: str | None
    if worker["is_away"]:
        state, class_ = "away", "bad"
    elif worker["is_leaving"]:
        state, class_ = "leaving", "soft"
    else:
        n = worker["n_processing"]
        state, class_ = ("running", None) if n else ("idle", "soft")
    memory: Content = "–"
    if resident:
        bar = _memory_bar(metrics.get("managed", 0), resident, limit) if limit else None
        memory = join(
            bar, element("span", sized(resident), f" of {sized(limit)}" if limit else None)
        )
    where = f"{worker['host']}, process {worker['pid']}, {address}"
    return element(
        "tr",
        element("th", worker["name"], scope="row", class_="name", title=where),
        element("td", state, class_=class_),
        element("td", memory),
        element("td", _number(worker["n_processing"]), class_="n"),
        element("td", str(worker["nthreads"]), class_="n wide"),
        element("td", f"{metrics['cpu']} %" if "cpu" in metrics else "–", class_="n wide"),
        element("td", _number(worker["n_in_memory"]), class_="n wide"),
        element("td", _ago(worker["last_seen_s"]), class_="n wide"),
    )


# --- Small parts ----------------------------------------------------------------------------------


def _table(caption: str, headers: Sequence[tuple[Any, ...]], rows: Sequence[Markup]) -> Markup:
    """Return a table with a name; headers are (content, class[, whether it is sorted by])."""
    cells = [
        element(
            "th",
            content,
            scope="col",
            class_=class_ or None,
            aria_sort="other" if is_sorted and is_sorted[0] else None,
        )
        for content, class_, *is_sorted in headers
    ]
    table = element(
        "table",
        element("thead", element("tr", cells)),
        element("tbody", rows),
        aria_label=caption,
    )
    return element("div", table, class_="scroll", role="region", tabindex=0, aria_label=caption)


def _bar(parts: Iterable[tuple[float, str]], label: str) -> Markup:
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


def _memory_bar(managed: int, resident: int, limit: int) -> Markup:
    share = resident / limit if limit else 0.0
    of_results = min(managed, resident) / limit if limit else 0.0
    rest = "fail" if share >= _FULL else "full" if share >= _HIGH else "run"
    label = f"{share:.0%} of the memory limit, {of_results:.0%} are results"
    return _bar([(of_results, "done"), (share - of_results, rest)], label)


def _ago(seconds: float) -> str:
    return "just now" if seconds < 3 else f"{lasting(seconds)} ago"


def _number(n: int) -> str:
    return grouped(n, _THIN)


def _rate(per_second: float | None) -> str:
    return "–" if per_second is None else rated(per_second).replace(" ", _THIN)
