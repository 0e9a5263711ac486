"""The page of one task: where it is and why, what it reads, how its attempts ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...protocol.markup import Content, Markup, element, join
from ...protocol.tables import Column, as_table, spaced
from ...protocol.wording import lasting, sized
from .detail_parts import badge, detail_document, facts, keys_section, lines, order_link, section
from .links import graph_link, task_link, worker_link
from .visitor import Visitor

Info = Mapping[str, Any]

_ACTIVE: Final = ("waiting", "queued", "no_worker", "processing")
_NOT_FOR_VIEW: Final = (
    "The traceback, the arguments and the line that it has reached are shown to visitors "
    "who may do "
    "more than look: open the pages by client.dashboard_link."
)


def task_page(name: str, task: Info, visitor: Visitor, refresh_s: float) -> str:
    """Return the page of a task of a cluster of this name."""
    key = task["key"]
    content = join(
        _head(task, visitor),
        _failure(task),
        _stack(task),
        element("div", _facts(task), _times(task), class_="half")
        if task["state"] != "forgotten"
        else None,
        _call(task),
        _attempts(task),
        keys_section("Reads", task.get("inputs", ()), task.get("n_inputs", 0)),
        keys_section("Is read by", task.get("dependents", ()), task.get("n_dependents", 0)),
        _story(task),
        None if visitor.may_read else element("p", _NOT_FOR_VIEW, class_="soft"),
    )
    return detail_document(key, name, content, visitor, refresh_s)


def _head(task: Info, visitor: Visitor) -> Markup:
    state, key = task["state"], task["key"]
    buttons: list[Markup] = []
    if visitor.may_order and state in _ACTIVE:
        buttons.append(order_link("Cancel …", "cancel", key=key))
    if visitor.may_order and state == "erred":
        buttons.append(order_link("Retry …", "retry", key=key))
    steps = [
        element("li", task_link(step), " ", badge(its_state), " ", why)
        for step, its_state, why in task.get("steps", ())[1:]
    ]
    details = [element("li", text) for text in task.get("details", ())]
    return element(
        "section",
        element(
            "div",
            element("h2", key, class_="key"),
            badge(state),
            element("div", buttons, class_="actions") if buttons else None,
            class_="top",
        ),
        element("p", task["why"], " · ", graph_link(task["key"], "Graph"), class_="why"),
        element("ol", steps, class_="steps") if steps else None,
        element("ul", details, class_="steps soft") if details else None,
    )


def _failure(task: Info) -> Markup | None:
    if "failure" not in task:
        return None
    culprit = task["culprit"]
    of = (
        None if culprit == task["key"] else element("p", "It failed with ", task_link(culprit), ".")
    )
    text = task["traceback"]
    return section("Failure", of, lines(text, "Traceback") if text else None, note=task["failure"])


def _stack(task: Info) -> Markup | None:
    if "stack" not in task:
        return None
    return section("It is now at", lines("\n".join(map(str, task["stack"])), "Stack"))


def _facts(task: Info) -> Markup:
    where: Content = None
    if task["worker"]:
        where = worker_link(task["worker_address"], task["worker"])
    holders = [(", " if i else "", worker_link(holder)) for i, holder in enumerate(task["holders"])]
    n_more = task["n_holders"] - len(task["holders"])
    category = task.get("options", {}).get("category")
    use = task.get("measured", {})
    rows: list[tuple[str, Content]] = [
        ("Function", task["function"]),
        ("Worker", where),
        ("Result", None if task["nbytes"] is None else sized(task["nbytes"])),
        (
            "Result is on",
            [holders, f" and {n_more} more" if n_more > 0 else None] if holders else None,
        ),
        ("Needs", task["restrictions"]),
        ("Category", category["name"] if isinstance(category, dict) else category),
        ("Time limit", lasting(task["timeout_s"]) if task["timeout_s"] else None),
        ("Arguments", sized(task["args_nbytes"])),
        ("Peak memory", sized(use["peak_nbytes"]) if use.get("peak_nbytes") else None),
        ("CPU time", lasting(use["cpu_us"] / 1e6) if use.get("cpu_us") else None),
        ("Wanted by", ", ".join(task["wanted_by"])),
        ("Span", " / ".join(map(str, task["span"]))),
    ]
    return section("Task", facts(rows))


def _times(task: Info) -> Markup:
    rows = [(name[:1].upper() + name[1:], lasting(s)) for name, s in task.get("times", {}).items()]
    return section("Where its time went", facts(rows))


def _call(task: Info) -> Markup | None:
    if "call" not in task:
        return None
    return section("Call", lines(f"{task['function']}{task['call']}", "Call"))


_ATTEMPTS: Final = (
    Column("Worker", lambda row: worker_link(row[0]) if row[0] else "", "name"),
    Column("How it ended", lambda row: row[1], "text"),
)


def _attempts(task: Info) -> Markup | None:
    ends = task.get("attempts", ())
    if not ends:
        return None
    return section("Attempts", as_table("Attempts", _ATTEMPTS, ends, "–"), note=str(len(ends)))


_STORY: Final = (
    Column("When", lambda row: f"{lasting(row[0])} ago", "when"),
    Column("What happened", lambda row: row[1], "name"),
)


def _story(task: Info) -> Markup:
    story = task.get("story", ())
    if not story:
        text = "Nothing is on record any more: the latest moves of tasks are kept."
        return section("Story", element("p", text, class_="soft"))
    return section("Story", as_table("Story", _STORY, story, "–"), note=spaced(len(story)))


def unknown_task_page(name: str, key: str, visitor: Visitor) -> str:
    """Return the page for a key that the scheduler does not know."""
    content = section(
        f"There is no task {key}" if key else "Which task?",
        element(
            "p",
            "The scheduler forgets a task when no client has a future of it and no other "
            "task reads "
            "it. Keys are as future.key has them; a search finds them by a part.",
        ),
        element("p", element("a", "Search", href="search"), class_="more"),
    )
    return detail_document("No such task", name, content, visitor)
