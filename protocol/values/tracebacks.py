"""Tracebacks as plain rows, and back into real ones that raise and print as they did on the worker.

A row is `(file, function, line, module, (end line, column, end column) or None, first line)`.
Rebuilding makes one frame for each row by running a one-line code object that was renamed to the
row's file and function, and links them with the row's line. Its first line is that of the function:
tools that show the source around a line (IPython) look for the function there. tblib works alike,
but prints its own columns: the carets that Python 3.11 and later put under the failing expression
then point at something else.

Source lines are not sent: the reader's `linecache` finds them where the file is the same, as it is
for a notebook cell or a script of the client itself.
"""

from __future__ import annotations

import os
import sys
import traceback
import types
from collections.abc import Iterable
from typing import TypeAlias

Columns: TypeAlias = "tuple[int, int, int] | None"
Row: TypeAlias = "tuple[str, str, int, str, Columns, int]"

#: An endless recursion has a thousand frames, all of them alike.
MAX_FRAMES = 200

#: How many texts of tracebacks are kept, and of how many frames each at most.
_MAX_KEPT = 256
_MAX_KEPT_FRAMES = 32
#: {(id of the code, instruction, line) of each frame: (text, the code objects)}
_printed: dict[tuple[int, ...], tuple[str, list[types.CodeType]]] = {}

#: The folder of the weft package, with the separator.
_OWN_FOLDER = os.path.abspath(f"{__file__}/../../..") + os.sep


class _Stop(Exception):
    """Raised by the code of rebuilt frames, once, to see where it raises."""


def without_own_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    """Drop the outermost frames that are weft's own; keep all if there are no others."""
    inner = tb
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        inner = inner.tb_next
    return inner if inner is not None else tb


def to_rows(tb: types.TracebackType | None) -> list[Row]:
    """Return a row for each frame, outermost first; the middle of more than 200 is left out."""
    rows: list[Row] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        module = tb.tb_frame.f_globals.get("__name__")
        if not isinstance(module, str):
            module = ""
        first = code.co_firstlineno
        rows.append((code.co_filename, code.co_name, tb.tb_lineno, module, _columns(tb), first))
        tb = tb.tb_next
    if len(rows) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        rows[half:-half] = []
    return rows


def print_rows(tb: types.TracebackType) -> str:
    """Return what `traceback.format_tb` prints of `tb`.

    Tasks that fail often fail at the same place, so the texts of the latest places are kept.
    """
    place: list[int] = []
    codes: list[types.CodeType] = []
    inner: types.TracebackType | None = tb
    while inner is not None and len(codes) < _MAX_KEPT_FRAMES:
        code = inner.tb_frame.f_code
        codes.append(code)
        place += (id(code), inner.tb_lasti, inner.tb_lineno)
        inner = inner.tb_next
    if inner is not None:
        return "".join(traceback.format_tb(tb))
    key = tuple(place)
    kept = _printed.get(key)
    if kept is None:
        if len(_printed) >= _MAX_KEPT:
            _printed.clear()
        # With the code objects, because the ids of those that are gone are used again.
        kept = _printed[key] = "".join(traceback.format_tb(tb)), codes
    return kept[0]


def from_rows(rows: Iterable[Row]) -> types.TracebackType | None:
    """Return a traceback with a frame for each row, None for no rows."""
    tb = None
    for file, function, line, module, columns, first in reversed(list(rows)):
        frame, lasti = _make_frame(file, function, line, module, columns, first)
        tb = types.TracebackType(tb, frame, lasti, line)
    return tb


def _columns(tb: types.TracebackType) -> Columns:
    """Return the end line and the columns of the failing expression, if known."""
    if sys.version_info >= (3, 11):
        # Instructions are two bytes each, and so are the entries of co_positions.
        for i, (_, end_line, column, end_column) in enumerate(tb.tb_frame.f_code.co_positions()):
            if i == tb.tb_lasti // 2:
                if end_line is None or column is None or end_column is None:
                    return None
                return end_line, column, end_column
    return None


def _make_frame(
    file: str, function: str, line: int, module: str, columns: Columns, first: int
) -> tuple[types.FrameType, int]:
    code = _STUB.replace(co_filename=file, co_name=function, co_firstlineno=first)
    if sys.version_info >= (3, 11):
        table = _position_table(len(code.co_code) // 2, line, columns, line - first)
        code = code.replace(co_qualname=function, co_linetable=table)
    # Not started, so that nothing has called it.
    generator = types.FunctionType(code, {"__name__": module, "__file__": file})()
    frame: types.FrameType = generator.gi_frame
    return frame, _LASTI


#: The code of a generator. Frames that have run keep the ones that called them, up to that of the
#: program that reads the exception: with its local variables, and the exception among them, that
#: would be a cycle. Flags and all come from the compiler; only names and positions are replaced.
_STUB: types.CodeType = next(
    constant
    for constant in compile("def stub():\n raise _Stop\n yield", "<weft>", "exec").co_consts
    if isinstance(constant, types.CodeType)
)


def _place_of_raise() -> int:
    """Return where the stub raises: tools that show a frame look at the instruction there."""
    try:
        next(types.FunctionType(_STUB, {"_Stop": _Stop})())
    except _Stop as stop:
        made = stop.__traceback__
        while made is not None and made.tb_frame.f_code is not _STUB:
            made = made.tb_next
        assert made is not None, "the stub raises in its own frame"
        return made.tb_lasti
    raise AssertionError("the stub raises")


_LASTI = _place_of_raise()


def _position_table(n_units: int, line: int, columns: Columns, delta: int) -> bytes:
    """Return a `co_linetable` that gives the same position to all `n_units` of instructions.

    The format is in CPython's InternalDocs/code_objects.md: entries of at most 8 units, a first
    byte with the kind and the length, then numbers of 6 bits per byte, least significant first. The
    first number is how much further down than the last entry, at first than the code's first line,
    this one is; with the sign in its lowest bit.
    """
    table = bytearray()
    down = delta << 1 if delta >= 0 else -delta << 1 | 1
    while n_units > 0:
        length = min(n_units, 8)
        n_units -= length
        if columns is None:
            table.append(0x80 | 13 << 3 | length - 1)  # kind 13: a line without columns
            numbers = [down]
        else:
            end_line, column, end_column = columns
            table.append(0x80 | 14 << 3 | length - 1)  # kind 14: all four numbers
            numbers = [down, max(end_line - line, 0), column + 1, end_column + 1]
        down = 0
        for number in numbers:
            while number >= 64:
                table.append(64 | number & 63)
                number >>= 6
            table.append(number)
    return bytes(table)
