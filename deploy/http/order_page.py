"""Pages that ask whether to give an order, and say what it has done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from ...protocol.markup import Content, element
from .detail_parts import detail_document, section
from .links import task_link, worker_link
from .visitor import FORM_TOKEN, Visitor


@dataclass(frozen=True, slots=True)
class OrderKind:
    """What an admin may order here.

    Attributes:
        field: the name of what it is about: "key", "worker" or "n".
        question: asked before it is done; `{}` is what it is about.
        consequences: what follows.
        button: which orders it.
    """

    field: str
    question: str
    consequences: str
    button: str


ORDER_KINDS: Final[Mapping[str, OrderKind]] = {
    "cancel": OrderKind(
        "key",
        "Cancel task {}?",
        "It is cancelled for all clients, also if it runs now. Tasks that read it fail as "
        "cancelled.",
        "Cancel the task",
    ),
    "retry": OrderKind(
        "key",
        "Run task {} again?",
        "It runs again, with those of its inputs that failed. The futures of clients are pending "
        "again.",
        "Run it again",
    ),
    "restart": OrderKind(
        "worker",
        "Restart worker {}?",
        "Its process ends at once and another one is started. What it runs is placed again and "
        "costs no retry; results that only it has are computed again if they are needed.",
        "Restart the worker",
    ),
    "retire": OrderKind(
        "worker",
        "Let worker {} leave?",
        "It gets nothing more, finishes what it runs, gives its results to others, and leaves. It "
        "is kept if others have no room for them, or if it has an actor.",
        "Let it leave",
    ),
    "scale": OrderKind(
        "n",
        "Have {} workers in the cluster?",
        "More are started by the `weft worker` processes that are connected; surplus ones finish "
        "what they run, and leave.",
        "Change the number of workers",
    ),
}


def about(kind: OrderKind, value: str) -> Content:
    """Return what an order is about, with a link to its page."""
    if kind.field == "key":
        return task_link(value)
    return worker_link(value) if kind.field == "worker" else value


def question_page(name: str, order: str, value: str, shown: str, visitor: Visitor) -> str:
    """Return the page that asks whether to give an order.

    Args:
        name: of the cluster.
        order: one of `ORDER_KINDS`.
        value: what it is about.
        shown: that for display, for instance the name of a worker.
        visitor: an admin.
    """
    kind = ORDER_KINDS[order]
    back = {
        "key": f"task?{urlencode({'key': value})}",
        "worker": f"worker?{urlencode({'address': value})}",
        "n": "workers",
    }
    content = section(
        kind.question.format(shown),
        element("p", kind.consequences),
        element(
            "form",
            element("input", type="hidden", name="do", value=order),
            element("input", type="hidden", name=kind.field, value=value),
            element("input", type="hidden", name=FORM_TOKEN, value=visitor.form_token),
            element("button", kind.button, type="submit", class_="danger"),
            element("a", "No, go back", href=back[kind.field], class_="button"),
            method="post",
            action="order",
            class_="actions",
        ),
    )
    return detail_document(kind.button, name, content, visitor)


def done_page(
    name: str, order: str, value: str, lines: Iterable[str], visitor: Visitor, *, is_done: bool
) -> str:
    """Return the page that says what an order has done, or why it has done nothing."""
    kind = ORDER_KINDS[order]
    title = "Done" if is_done else "Nothing was done"
    onward = element("a", "Go on to Workers", href="workers") if kind.field == "n" else None
    content = section(
        title,
        element("ul", (element("li", line) for line in lines), class_="steps", role="status"),
        element("p", onward or ("Go on to ", about(kind, value)), class_="more"),
    )
    return detail_document(title, name, content, visitor)


def refused_page(name: str, text: str, visitor: Visitor) -> str:
    """Return the page for an order that the visitor may not give, or that is none."""
    content = section("Nothing was done", element("p", text, role="alert", class_="silent"))
    return detail_document("Nothing was done", name, content, visitor)
