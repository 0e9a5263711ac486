"""The rows of an array: which numbers they have, and the arguments of their calls.

A pure function of the parts of an array, so that no row needs a record before it is near to
running. A *position* counts the rows from 0; a row is named by its number, which is the end of its
key. The arguments are pickles that are written here, since a scheduler has no `pickle`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Any, Final

#: The most rows of an array: a mistyped one should not run for days.
MAX_ROWS: Final = 10_000_000
#: The most parts, the highest number, and the most digits that a number is filled up to.
MAX_PARTS: Final = 1000
MAX_NUMBER: Final = 1 << 48
MAX_WIDTH: Final = 20
#: Between the key of an array and the number of a row.
SLASH: Final = "/"
#: The most numbers that a text of some rows names.
N_NAMED: Final = 5

# Opcodes of pickle, protocol 5.
_PROTO: Final = b"\x80\x05"
_BININT: Final = b"J"
_LONG1: Final = b"\x8a\x08"
_SHORT_TEXT: Final = b"\x8c"
_TUPLE1_STOP: Final = b"\x85."


class ArrayRows:
    """The numbers of an array.

    Args:
        parts: `(first, stop, step, width)` of each part, in the order of their numbers. With a
            width of 0 a call gets its number; else a text, with zeros in front up to that many
            digits.

    Raises:
        ValueError: they are no such parts; the text says why.
    """

    __slots__ = ("_ranges", "_starts", "_widths", "n")

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        if not 0 < len(parts) <= MAX_PARTS:
            raise ValueError(f"an array has 1 to {MAX_PARTS} parts, not {len(parts)}")
        self._ranges: list[range] = []
        self._widths: list[int] = []
        last = -1
        for part in parts:
            if len(part) != 4 or not all(type(n) is int and 0 <= n <= MAX_NUMBER for n in part):
                raise ValueError("a part is a first number, an end, a step and a width")
            first, stop, step, width = part
            if not step or width > MAX_WIDTH or first >= stop:
                raise ValueError("a part has a step, a width of at most 20, and a number")
            if first <= last:
                raise ValueError(f"the part from {first} on begins before the one before it ends")
            self._ranges.append(numbers := range(first, stop, step))
            self._widths.append(width)
            last = numbers[-1]
        #: {place of a part: the position of its first row}, ascending
        self._starts = [0, *accumulate(map(len, self._ranges))]
        #: how many rows there are
        self.n = self._starts.pop()
        if self.n > MAX_ROWS:
            raise ValueError(f"an array has at most {MAX_ROWS} rows, not {self.n}")

    def name(self, position: int) -> str:
        """Return the number of a row as its key has it."""
        part = bisect_right(self._starts, position) - 1
        number = self._ranges[part][position - self._starts[part]]
        return f"{number:0{self._widths[part]}}"

    def position(self, name: str) -> int | None:
        """Return the position of a row by its number; None = there is none."""
        if not (name.isascii() and name.isdecimal() and len(name) <= MAX_WIDTH):
            return None
        number = int(name)
        for start, numbers, width in zip(self._starts, self._ranges, self._widths, strict=True):
            if number in numbers:
                is_it = f"{number:0{width}}" == name
                return start + numbers.index(number) if is_it else None
        return None

    def arguments(self, position: int) -> bytes:
        """Return the pickled arguments of the call of a row."""
        part = bisect_right(self._starts, position) - 1
        if self._widths[part]:
            text = self.name(position).encode()
            return _PROTO + _SHORT_TEXT + bytes([len(text)]) + text + _TUPLE1_STOP
        number = self._ranges[part][position - self._starts[part]]
        if number < 1 << 31:
            return _PROTO + _BININT + number.to_bytes(4, "little") + _TUPLE1_STOP
        return _PROTO + _LONG1 + number.to_bytes(8, "little") + _TUPLE1_STOP


def check_parts(value: Any, _buffers: list[Any]) -> list[list[int]]:
    """Check the parts of an array, as an option of a task."""
    if type(value) is not list or not set(map(type, value)) <= {list}:
        raise TypeError("a list of parts is expected")
    ArrayRows(value)
    return value


def key_of_row(key: str, name: str) -> str:
    """Return the key of a row of an array."""
    return f"{key}{SLASH}{name}"


def row_of_key(key: str) -> tuple[str, str]:
    """Return the key of the array, "" = it is none, and the number of a row, by its key."""
    array, _, name = key.rpartition(SLASH)
    return array, name


def named(names: Iterable[str], n: int) -> str:
    """Return a text of some of `n` rows."""
    shown = list(islice(names, N_NAMED))
    more = f" and {n - len(shown)} more" if n > len(shown) else ""
    return ", ".join(shown) + more
