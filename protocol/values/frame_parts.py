"""Data frames of pandas in parts, as a shuffle splits them and puts them together again.

A frame is split by sorting its rows by the numbers of their parts. The columns are kept, not the
frame: a part is a stretch of each, and stretches of many frames are put together column by column,
at a fraction of the time that `pandas.concat` takes for many small frames. Rows keep the order that
they have in the frames, and these the order of the index, so the result is that of dask's own
shuffle by tasks.

pandas is imported only where there is a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .parts import Taken

__all__ = ["FrameParts", "join_frames", "split_frame"]


class Stretches:
    """Stretches of one column of several frames, in their order, joined where their types agree."""

    __slots__ = ("arrays", "counts")

    def __init__(self, arrays: list[Any], counts: list[int]) -> None:
        #: each is of one or several frames
        self.arrays = arrays
        #: for each array of how many frames it is
        self.counts = counts

    def __reduce__(self) -> tuple[Any, ...]:
        return Stretches, (self.arrays, self.counts)

    def split(self, lengths: Sequence[int]) -> Iterator[Any]:
        """Return the stretch of each frame."""
        which = iter(lengths)
        for array, count in zip(self.arrays, self.counts, strict=True):
            start = 0
            for _ in range(count):
                stop = start + next(which)
                yield array[start:stop]
                start = stop


class FramePiece:
    """One part of several frames."""

    __slots__ = ("columns", "lengths")

    def __init__(self, columns: list[Stretches], lengths: list[int]) -> None:
        self.columns = columns
        #: rows of each frame in the part
        self.lengths = lengths

    def __reduce__(self) -> tuple[Any, ...]:
        return FramePiece, (self.columns, self.lengths)


class FrameParts:
    """The rows of one frame in the order of their parts."""

    __slots__ = ("columns", "offsets")

    def __init__(self, columns: list[Any], offsets: Any) -> None:
        #: an array for each column, the index first
        self.columns = columns
        #: part i is from offsets[i] to offsets[i + 1]
        self.offsets = offsets

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameParts, (self.columns, self.offsets)

    def __sizeof__(self) -> int:
        return 64 + sum(int(column.nbytes) for column in self.columns) + int(self.offsets.nbytes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def __weft_parts__(cls, values: Iterable[FrameParts], part: int) -> FramePiece:
        """Return a part of several frames, with their stretches joined."""
        rows: list[list[Any]] = []
        lengths: list[int] = []
        for value in values:
            start, stop = int(value.offsets[part]), int(value.offsets[part + 1])
            lengths.append(stop - start)
            rows.append([_stretch(column, start, stop) for column in value.columns])
        return FramePiece([_joined(list(each)) for each in zip(*rows, strict=True)], lengths)


# --- Columns --------------------------------------------------------------------------------------


class ArrowColumn:
    """An array of Arrow, and the type that it has in pandas, where it would be a chunk for each."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: Any, dtype: Any) -> None:
        self.array = array
        self.dtype = dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowColumn, (self.array, self.dtype)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: slice) -> ArrowColumn:
        return ArrowColumn(self.array[rows], self.dtype)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


def _stretch(column: Any, start: int, stop: int) -> Any:
    """Return rows of a column; of objects a copy, because a view would keep all of them."""
    found = column[start:stop]
    return found.copy() if getattr(column.dtype, "hasobject", False) else found


def _joined(stretches: list[Any]) -> Stretches:
    """Join neighbours of the same type."""
    arrays: list[Any] = []
    counts: list[int] = []
    start = 0
    for i in range(1, len(stretches) + 1):
        if i == len(stretches) or stretches[i].dtype != stretches[start].dtype:
            arrays.append(_concatenated(stretches[start:i]))
            counts.append(i - start)
            start = i
    return Stretches(arrays, counts)


def _concatenated(arrays: list[Any]) -> Any:
    """Return arrays of one type as one, in memory of its own."""
    import numpy as np

    first = arrays[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(arrays)
    if not isinstance(first, ArrowColumn):
        return type(first)._concat_same_type(arrays)
    import pyarrow as pa

    return ArrowColumn(pa.concat_arrays([one.array for one in arrays]), first.dtype)


def _is_arrow(dtype: Any) -> bool:
    """Return whether arrays of a type of pandas are Arrow's, which are joined there."""
    storage = getattr(dtype, "storage", None)
    return hasattr(dtype, "__from_arrow__") and (
        storage == "pyarrow" or type(dtype).__name__ == "ArrowDtype"
    )


def _taken(column: Any, order: Any) -> Any:
    """Return the values of a series or an index in an order."""
    import numpy as np

    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return np.asarray(column.to_numpy()).take(order)
    array = column.array.take(order)
    if not _is_arrow(dtype):
        return array
    import pyarrow as pa

    found = pa.array(array)
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    return ArrowColumn(found, dtype)


def _as_values(array: Any) -> Any:
    """Return what pandas makes a column of."""
    if isinstance(array, ArrowColumn):
        return array.dtype.__from_arrow__(array.array)
    return array


# --- Frames ---------------------------------------------------------------------------------------


def split_frame(frame: Any, column: str, n_parts: int, ignore_index: bool) -> FrameParts:
    """Split a frame into parts by the numbers in one of its columns, which are taken modulo.

    Args:
        frame: of pandas, with distinct names of columns and one index.
        column: has the number of the part of each row.
        n_parts: how many there are.
        ignore_index: leave the index out.
    """
    import numpy as np

    numbers = np.mod(frame[column].to_numpy().astype(np.int64, copy=False), n_parts)
    narrow = np.uint16 if n_parts <= 1 << 16 else np.int64
    # Sorting narrow numbers stably takes linear time.
    order = np.argsort(numbers.astype(narrow), kind="stable")
    counts = np.bincount(numbers, minlength=n_parts)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    kept = [] if ignore_index else [_taken(frame.index, order)]
    kept += [_taken(frame.iloc[:, i], order) for i in range(frame.shape[1])]
    return FrameParts(kept, offsets)


def join_frames(taken: Sequence[Taken], meta: Any, ignore_index: bool) -> Any:
    """Put the same part of several frames together.

    Args:
        taken: what `read_parts` returned.
        meta: an empty frame with the columns and the index of the parts.
        ignore_index: they have no index.
    """
    import pandas as pd

    n_columns = meta.shape[1] + (not ignore_index)
    where: dict[int, int] = {}
    for one in taken:
        where.update(dict.fromkeys(one.places, 0))
    order = sorted(where)
    n_rows = sum(sum(one.parts.lengths) for one in taken)
    columns = []
    for i in range(n_columns):
        pieces: dict[int, Any] = {}
        for one in taken:
            stretches = one.parts.columns[i].split(one.parts.lengths)
            pieces.update(zip(one.places, stretches, strict=True))
        columns.append(_whole([pieces[place] for place in order]))
    index = pd.RangeIndex(n_rows)
    if not ignore_index:
        index = pd.Index(columns.pop(0), name=meta.index.name)
    made = {i: pd.Series(values, index=index, copy=False) for i, values in enumerate(columns)}
    frame = pd.DataFrame(made, index=index, copy=False)
    frame.columns = meta.columns
    return frame


def _whole(pieces: list[Any]) -> Any:
    """Return pieces of one column as one; their types need not agree, as after `pandas.concat`."""
    found = _joined([piece for piece in pieces if len(piece)] or pieces[:1])
    if len(found.arrays) == 1:
        return _as_values(found.arrays[0])
    import pandas as pd

    concat: Callable[..., Any] = pd.concat
    try:
        from dask.dataframe.dispatch import concat  # it unites categories
    except ImportError:
        pass
    series = [pd.Series(_as_values(array)) for array in found.arrays]
    return concat(series).array
