"""Values that consist of parts, and the reading of one part of each of many values.

A task reads parts through an index (`index_of_parts`). On a cluster the index is no list of the
values, but says where they are (`protocol/wire/part_index.py`), and `read_parts` requests the parts
from their holders: each joins the parts that it has to one value, in `take_parts`. Where the values
themselves are at hand, the same functions read them, so a graph means the same everywhere.

A part is named by whole numbers. Values that have parts:

- an array: a box in it, named by start and stop of each axis;
- a sequence or mapping: an item, named by one number;
- any object that has `__weft_parts__`, a class method that joins a part of several such objects. It
  gets these one after the other, since they may be larger than memory together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ..wire.part_index import PartIndex, read_index

__all__ = ["TO_THE_END", "Taken", "fetch_parts_here", "index_of_parts", "read_parts", "take_parts"]

#: Stands for the end of any axis, where a reader does not know how long it is.
TO_THE_END: Final = 1 << 62


class SourceValues(Protocol):
    """Values that are read one after the other, more than once if need be."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class Taken(NamedTuple):
    """The parts of some values, joined to one value or in a list."""

    #: the places of the values in their index
    places: Sequence[int]
    parts: Any


#: `(index, places, numbers that name the parts, how many for each or 0)`
Fetch = Callable[[PartIndex, Sequence[int], Sequence[int], int], list[Taken]]


class _FetchHere(threading.local):
    fetch: Fetch | None = None


_here = _FetchHere()


def fetch_parts_here(fetch: Fetch | None) -> None:
    """Have `read_parts` on the calling thread read through indexes by this."""
    _here.fetch = fetch


def index_of_parts(values: list[Any]) -> Any:
    """Return what `read_parts` reads, for tasks that read parts of `values`.

    A client submits a call of this in a graph as an index: it does not run, and no task gets all
    the values.
    """
    return values


def read_parts(
    index: Any, numbers: Sequence[int], *, places: Sequence[int] | None = None, n_numbers: int = 0
) -> list[Taken]:
    """Read a part of each value of an index.

    Args:
        index: what `index_of_parts` has returned, as the input of a task.
        numbers: name the parts: `n_numbers` for each place, or if that is 0 the same for all.
        places: of the values in the index; None = all.
        n_numbers: see `numbers`.

    Returns:
        The parts, of each holder together, or of all.
    """
    found = read_index(index)
    if found is None:
        places = range(len(index)) if places is None else places
        values = [index[place] for place in places]
        return [Taken(places, take_parts(values, numbers, n_numbers))]
    fetch = _here.fetch
    if fetch is None:
        raise RuntimeError("parts are read through an index only in tasks, on their own threads")
    return fetch(found, range(len(found.keys)) if places is None else places, numbers, n_numbers)


def take_parts(values: SourceValues, numbers: Sequence[int], n_numbers: int) -> Any:
    """Return the named parts of values, joined by their class if that of the first can."""
    if n_numbers:
        if len(numbers) != n_numbers * len(values):
            n, m = len(numbers), len(values)
            raise ValueError(f"{n} numbers do not name parts of {m} values, {n_numbers} for each")
        named = [numbers[i : i + n_numbers] for i in range(0, len(numbers), n_numbers)]
        return [_part_of(value, name) for value, name in zip(values, named, strict=True)]
    kind = next(map(type, values), None)
    join = getattr(kind, "__weft_parts__", None)
    if join is not None:
        return join(iter(values), *numbers)
    return [_part_of(value, numbers) for value in values]


def _part_of(value: Any, name: Sequence[int]) -> Any:
    shape = getattr(value, "shape", None)
    if shape is not None:
        starts, stops = name[::2], name[1::2]
        if len(name) != 2 * len(shape) or not all(
            0 <= a <= min(b, n) and (b <= n or b == TO_THE_END)
            for a, b, n in zip(starts, stops, shape, strict=True)
        ):
            raise IndexError(f"an array of shape {shape} has no box from {starts} to {stops}")
        return value[tuple(map(slice, starts, stops))]
    if len(name) != 1:
        raise IndexError(f"an item of a value is named by one number, not by {len(name)}")
    return value[name[0]]
