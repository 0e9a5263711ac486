"""Shows progress: in a cell, in a terminal, or as lines of a log."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO

from ...protocol.host.forks import after_fork
from . import html
from .notebook import in_notebook

#: Where lines cannot be replaced: after so many seconds comes the first, and then each next one.
FIRST_LINE_S: Final = 10.0
NEXT_LINES_S: Final = 60.0
_MIN_WIDTH: Final = 40
_BAR: Final = 20
_NAME: Final = 24

#: {"rows": [{"name", "done", "failed", "cancelled", "total", "note"}], "summary": text, "seconds":
#: number}; `done` includes those that failed or were cancelled.
Seen = Mapping[str, Any]


class Painter(Protocol):
    """Shows one progress. `paint` may be called often; `finish` once, at the end."""

    def paint(self, seen: Seen) -> None:
        """Show the progress as it is now."""

    def finish(self, seen: Seen) -> None:
        """Replace it by its summary."""


def make_painter(notebook: bool | None = None, stream: TextIO | None = None) -> Painter:
    """Return the painter that fits.

    Args:
        notebook: show it in a cell; None = if the program runs in a kernel.
        stream: else write there; None = standard error.
    """
    if in_notebook() if notebook is None else notebook:
        return CellPainter()
    stream = sys.stderr if stream is None else stream
    if stream is None:  # a program without standard error
        return NoPainter()
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    return TerminalPainter(stream) if is_terminal else LinePainter(stream)


class NoPainter:
    """Shows nothing."""

    def paint(self, seen: Seen) -> None:
        """See `Painter`."""

    def finish(self, seen: Seen) -> None:
        """See `Painter`."""


class CellOutput:
    """An output below a cell that is shown anew, by messages that every front end knows."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._is_shown = False

    def show(self, page: str, text: str) -> None:
        """Show HTML, or a text where a front end has none, in the place of what was shown."""
        from IPython import display

        display.publish_display_data(  # type: ignore[no-untyped-call]
            {"text/html": page, "text/plain": text},
            transient={"display_id": self._id},
            update=self._is_shown,
        )
        self._is_shown = True


class CellPainter:
    """Shows progress below a cell."""

    def __init__(self) -> None:
        self._output = CellOutput()

    def paint(self, seen: Seen) -> None:
        """See `Painter`."""
        text = "\n".join(lines_of(seen["rows"], 80))
        self._output.show(html.of_progress({"rows": seen["rows"]}), text)

    def finish(self, seen: Seen) -> None:
        """See `Painter`."""
        self._output.show(html.of_progress({"title": seen["summary"]}), seen["summary"])


#: Held while a terminal is written to; and the painters that have lines there now.
_terminal_lock = threading.RLock()
_on_terminal: list[TerminalPainter] = []


@after_fork
def _renew_lock() -> None:
    """Take another lock in a forked child: the thread that holds this one may not be there."""
    global _terminal_lock  # noqa: PLW0603
    _terminal_lock = threading.RLock()
    _on_terminal.clear()


class TerminalPainter:
    """Shows progress in the last lines of a terminal, which it replaces each time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._uses_colour = not os.environ.get("NO_COLOR")
        #: The lines that are there now.
        self._n_lines = 0

    def paint(self, seen: Seen) -> None:
        """See `Painter`."""
        size = shutil.get_terminal_size()
        lines = lines_of(seen["rows"], max(size.columns - 1, _MIN_WIDTH), self._uses_colour)
        if len(lines) > max(size.lines - 2, 1):  # what has scrolled away cannot be replaced
            n_left = len(lines) - max(size.lines - 3, 1)
            lines = [*lines[:-n_left], f"and {n_left} more functions"]
        with undisturbed():
            self._write("\n".join(lines))
            self._n_lines = len(lines)
            _on_terminal.append(self)

    def finish(self, seen: Seen) -> None:
        """See `Painter`."""
        with undisturbed():
            self._write(seen["summary"] + "\n")

    def erase(self) -> None:
        """Remove the lines."""
        up = f"\x1b[{self._n_lines - 1}A" if self._n_lines > 1 else ""
        self._n_lines = 0
        self._write(f"\r{up}\x1b[J")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Write to the terminal while no progress is shown there; it is shown again at its next tick.

    Progress of several calls is shown by turns.
    """
    with _terminal_lock:
        for painter in _on_terminal:
            painter.erase()
        _on_terminal.clear()
        yield


class LinePainter:
    """Writes a line now and then, where lines cannot be replaced: into files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_s = FIRST_LINE_S

    def paint(self, seen: Seen) -> None:
        """See `Painter`."""
        if seen["seconds"] < self._next_s:
            return
        self._next_s = seen["seconds"] + NEXT_LINES_S
        rows = seen["rows"]
        parts = [f"{row['name']} {row['done']}/{row['total']}{_failed(row)}" for row in rows[:8]]
        parts += [f"and {len(rows) - 8} more functions"] if len(rows) > 8 else []
        parts += [rows[0]["note"]] if len(rows) == 1 and rows[0]["note"] else []
        self._write(f"weft: {', '.join(parts)}\n")

    def finish(self, seen: Seen) -> None:
        """See `Painter`."""
        self._write(f"weft: {seen['summary']}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _failed(row: Mapping[str, Any]) -> str:
    return "".join(f", {row[what]} {what}" for what in ("failed", "cancelled") if row[what])


def lines_of(rows: Sequence[Mapping[str, Any]], width: int, colour: bool = False) -> list[str]:
    """Return one line for each row, none longer than `width` (marks of colour do not count).

    In a bar, `x` stands for those that failed or were cancelled; they are red with `colour`.
    """
    lines = []
    for row in rows:
        name = row["name"] if len(row["name"]) <= _NAME else f"{row['name'][: _NAME - 1]}~"
        good, bad = _bar_of(row)
        rest = "-" * (_BAR - len(good) - len(bad))
        note = f"  {row['note']}" if row["note"] else ""
        # (text, whether it is red)
        parts = [(f"{name:<{min(_NAME, width // 3)}}", False)]
        if width >= 72:
            parts += [(f" [{good}", False), (bad, True), (f"{rest}]", False)]
        parts += [(f" {row['done']}/{row['total']}", False), (_failed(row), True), (note, False)]
        lines.append(_cut(parts, width, colour))
    return lines


def _bar_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the parts of a bar for tasks that finished, and that ended otherwise."""
    total = max(row["total"], 1)
    n_bad = row["failed"] + row["cancelled"]
    filled = _BAR * row["done"] // total
    # A single failure is visible, unless nothing else would be.
    bad = min(max(_BAR * n_bad // total, 1), filled) if n_bad else 0
    if bad == filled > 1 and n_bad < row["done"]:
        bad -= 1
    return "#" * (filled - bad), "x" * bad


def _cut(parts: Sequence[tuple[str, bool]], width: int, colour: bool) -> str:
    line = ""
    for text, is_red in parts:
        text = text[:width]
        width -= len(text)
        line += f"\x1b[31m{text}\x1b[0m" if colour and is_red and text else text
    return line
