"""The page of one worker: what it does, what it has, and how well it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...protocol.amounts import amount_text
from ...protocol.markup import Content, Markup, element, join
from ...protocol.tables import spaced, tile
from ...protocol.wording import counted, lasting, sized
from ..overview.wording import cpu_text, memory_share, memory_text, worker_state_text
from .detail_parts import detail_document, facts, lines, order_link, section
from .links import task_link
from .status_page import bar_of, memory_bar
from .visitor import Visitor

Info = Mapping[str, Any]

_NOT_FOR_VIEW: Final = (
    "Stacks and log lines are shown to visitors who may do more than look: open the pages by "
    "client.dashboard_link."
)

#: Versions that tell two machines apart for the checks, and nothing to a reader.
_NOT_SHOWN: Final = ("python-bits", "byteorder", "OS-release", "LC_ALL", "LANG")


def worker_page(name: str, worker: Info, visitor: Visitor, refresh_s: float) -> str:
    """Return the page of a worker of a cluster of this name."""
    content = join(
        _head(worker, visitor),
        _tiles(worker),
        element("div", _facts(worker), _software(worker), class_="half"),
        _calls(worker),
        _given(worker),
        _log(worker),
        None if visitor.may_read else element("p", _NOT_FOR_VIEW, class_="soft"),
    )
    return detail_document(f"Worker {worker['name']}", name, content, visitor, refresh_s)


def _head(worker: Info, visitor: Visitor) -> Markup:
    buttons: list[Markup] = []
    if visitor.may_order:
        if worker["supervisor"]:
            buttons.append(order_link("Restart …", "restart", worker=worker["id"]))
        if not worker["is_leaving"]:
            buttons.append(order_link("Retire …", "retire", worker=worker["id"]))
    state = worker_state_text(worker)
    return element(
        "section",
        element(
            "div",
            element("h2", f"Worker {worker['name']}", class_="key"),
            element("span", state, class_="state"),
            element("div", buttons, class_="actions") if buttons else None,
            class_="top",
        ),
        element("p", worker["why_not"], class_="why") if worker.get("why_not") else None,
    )


def _tiles(worker: Info) -> Markup:
    metrics, limit = worker["metrics"], worker["memory_limit"]
    resident, managed = metrics.get("rss", 0), metrics.get("managed", 0)
    n, threads = worker["n_processing"], worker["nthreads"]
    spilled = metrics.get("spilled", 0)
    note = f"{sized(managed)} in results" + (f", {sized(spilled)} on disk" if spilled else "")
    busy = min(n / threads, 1.0) if threads else 0.0
    bar = bar_of([(busy, "run")], f"{busy:.0%} of the threads have a task")
    return element(
        "dl",
        tile("Tasks", spaced(n), f" for {counted(threads, 'thread')}", "given, and not ended", bar),
        tile("CPU", cpu_text(worker) or "–", "", "of one core"),
        tile(
            "Memory",
            sized(resident),
            f" of {sized(limit)}" if limit else "",
            note,
            memory_bar(managed, resident, limit) if memory_share(worker) else None,
        ),
        tile("Results", spaced(worker["n_in_memory"]), "", sized(worker["nbytes"])),
        class_="tiles",
    )


def _facts(worker: Info) -> Markup:
    resources = [f"{key}: {amount_text(key, n)}" for key, n in worker["resources"].items()]
    rows: list[tuple[str, Content]] = [
        ("Address", element("code", worker["address"])),
        ("Host", f"{worker['host']}, process {worker['pid']}"),
        ("Memory", memory_text(worker["metrics"].get("rss", 0), worker["memory_limit"])),
        ("Resources", ", ".join(resources)),
        (
            "Work",
            f"{lasting(worker['occupancy_s'])}, as estimated" if worker["occupancy_s"] else "",
        ),
        (
            "Fetched",
            sized(worker["metrics"]["fetched"]) if worker["metrics"].get("fetched") else "",
        ),
        ("Last seen", f"{lasting(worker['last_seen_s'])} ago"),
        ("Started by", f"supervisor {worker['supervisor'][:8]}" if worker["supervisor"] else ""),
        ("Id", element("code", worker["id"])),
    ]
    return section("Worker", facts(rows))


def _software(worker: Info) -> Markup:
    versions = worker.get("versions")
    if not versions:
        text = "It does not answer now: perhaps a task holds its interpreter."
        return section("Software", element("p", text, class_="soft"))
    found: dict[str, Content] = {}
    for name, value in versions.items():
        parts = value if isinstance(value, dict) else {name: value}
        found |= {str(k): str(v) for k, v in parts.items() if v and k not in _NOT_SHOWN}
    rows = list(found.items())
    return section("Software", facts(rows[:20]))


def _calls(worker: Info) -> Markup | None:
    if "stacks" not in worker:
        return None
    stacks = worker["stacks"]
    if stacks is None:
        text = "It does not answer now, so what it runs is not known."
        return section("Calls under way", element("p", text, class_="soft"))
    if not stacks:
        return section("Calls under way", element("p", "It runs no task.", class_="soft"))
    shown = [
        (element("p", task_link(key)), lines("\n".join(map(str, frames)), f"Stack of {key}"))
        for key, frames in list(stacks.items())[:20]
    ]
    return section("Calls under way", shown, note=counted(len(stacks), "call"))


def _given(worker: Info) -> Markup:
    keys, n = worker["given"], worker["n_given"]
    if not keys:
        return section("Tasks", element("p", "It has nothing to do.", class_="soft"))
    links = element("ul", (element("li", task_link(key)) for key in keys), class_="links")
    more = f"and {spaced(n - len(keys))} more" if n > len(keys) else ""
    rest = element("p", more, class_="more soft") if more else None
    note = f"{spaced(n)}, in the order in which it was given them"
    return section("Tasks", links, rest, note=note)


def _log(worker: Info) -> Markup | None:
    if "log" not in worker:
        return None
    records = worker["log"]
    if not records:
        text = "It does not answer now." if records is None else "It has logged nothing."
        return section("Log", element("p", text, class_="soft"))
    return section("Log", lines("\n".join(records), "Log"))


def unknown_worker_page(name: str, address: str, visitor: Visitor) -> str:
    """Return the page for a worker that is not connected."""
    content = section(
        f"There is no worker {address}" if address else "Which worker?",
        element(
            "p",
            "It has left, or was restarted: a new process has another address. The workers "
            "that are "
            "there are on ",
            element("a", "Workers", href="workers"),
            ".",
        ),
    )
    return detail_document("No such worker", name, content, visitor)
