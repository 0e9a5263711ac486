"""Tables as data: columns with a heading, the cell of a row, and its emphasis. Pure.

A drawing lists its columns. Painters make text (`as_lines`) and HTML (`as_table`) of them, and
`weft top` the cells of its screen. The classes are those of `page_style`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from .markup import Content, Markup, element
from .wording import grouped

#: The space between thousands that the SI asks for, without a break.
THIN: Final = "\u202f"
#: Widths of a screen from which on a table has more columns.
NARROW: Final = 80
WIDE: Final = 110


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        heading: its name.
        cell: returns the content for a row; "" or None = nothing.
        kind: "name" is the heading of its row, "n" a number, on the right, "text" a long one.
        least_width: of a screen, in characters, from which on it is shown; 0 = always.
        emphasis: returns a class of the page, or a style of the screen, for the cell of a row.
        title: returns more about a row, for the one who points at it.
        is_sorted: the rows are in its order.
    """

    heading: Content
    cell: Callable[[Any], Any]
    kind: Literal["", "name", "n", "text", "when"] = ""
    least_width: int = 0
    emphasis: Callable[[Any], str] = lambda row: ""
    title: Callable[[Any], str | None] = lambda row: None
    is_sorted: bool = False

    def class_(self, emphasis: str = "") -> str | None:
        """Return the class of a cell."""
        parts = self.kind, "wide" if self.least_width else "", emphasis
        return " ".join(filter(None, parts)) or None


def as_lines(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    """Return a table as text: a line of headings, and one for each row."""
    cells = [[column.heading for column in columns]]
    cells += [[column.cell(row) for column in columns] for row in rows]
    texts = [["" if cell is None else str(cell) for cell in line] for line in cells]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    sides = [str.rjust if column.kind == "n" else str.ljust for column in columns]
    return [
        "  ".join(
            side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True)
        ).rstrip()
        for line in texts
    ]


def as_table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Any],
    blank: str = "",
    group_of: Callable[[Any], Content] = lambda row: None,
) -> Markup:
    """Return a table of a page, with a name; `blank` stands where there is nothing.

    Neighbours of the same group, if it is not None, stand below a row with its name.
    """
    heads = [
        element(
            "th",
            column.heading,
            scope="col",
            class_=column.class_(),
            aria_sort="other" if column.is_sorted else None,
        )
        for column in columns
    ]
    bodies = []
    for group, members in groupby(rows, group_of):
        lines = [
            element("tr", (_cell(column, row, blank) for column in columns)) for row in members
        ]
        if group is not None:
            name = element("th", group, scope="rowgroup", colspan=len(columns), class_="group")
            lines.insert(0, element("tr", name))
        bodies.append(element("tbody", lines))
    table = element(
        "table",
        element("thead", element("tr", heads)),
        bodies or element("tbody"),
        aria_label=caption,
    )
    return element("div", table, class_="scroll", role="region", tabindex=0, aria_label=caption)


def _cell(column: Column, row: Any, blank: str) -> Markup:
    content, class_ = column.cell(row), column.class_(column.emphasis(row))
    is_name = column.kind == "name"
    return element(
        "th" if is_name else "td",
        blank if content in ("", None) else content,
        scope="row" if is_name else None,
        class_=class_,
        title=column.title(row),
    )


def tile(name: str, big: str, unit: str = "", note: str = "", bar: Markup | None = None) -> Markup:
    """Return one of the large numbers above the tables of a page."""
    return element(
        "div",
        element("dt", name),
        element("dd", big, element("small", unit) if unit else None, class_="big"),
        element("dd", bar) if bar else None,
        element("dd", note, class_="note") if note else None,
    )


def spaced(n: float) -> str:
    """Return a whole number for a page: `12 345`, with a thin space that does not break."""
    return grouped(n, THIN)
