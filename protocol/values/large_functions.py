"""The pickles of functions with much data in them, found again by comparing the data.

A function that reads a large array, or a method of an object that has one, is pickled for each
`submit`, because the array may have been changed in place. Pickled with the array *beside* the
pickle, this takes 0.1 ms whatever the size. What is expensive is to copy the data into one piece
and to hash it: 0.15 s for 100 MB. `LargeFunctions` keeps the latest results, and compares the data
with their bytes, at the speed of memory: 6 ms for 100 MB. So each change is noticed, equal content
is copied and hashed once, and two functions with equal content share one pickle.

Data without buffers (lists, dicts, tables of strings) is pickled each time, and only not hashed.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from .digests import digest_of
from .pickling import PROTOCOL

#: Smaller functions are hashed each time: this takes no longer than to look for them.
LARGE_NBYTES: Final = 64 * 1024
#: The results that are kept, beside the latest one.
MAX_KEPT_NBYTES: Final = 256 << 20
_MAX_KEPT: Final = 64
#: Other threads may run between two pieces, each of which takes a millisecond or less.
_PIECE_NBYTES: Final = 8 << 20
#: From here on a hash with several threads is faster.
_LONG_NBYTES: Final = 4 << 20


class _OnePiece:
    """A pickle and its buffers; pickled, this is one piece that plain `pickle.loads` reads."""

    __slots__ = ("_buffers", "_data")

    def __init__(self, data: bytes, buffers: Sequence[memoryview]) -> None:
        self._data = data
        self._buffers = list(map(pickle.PickleBuffer, buffers))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The buffers come first, so nothing before them looks like the header of one.
        return functools.partial(pickle.loads, buffers=self._buffers), (self._data,)


class _Kept:
    """A result, and where the data of its buffers is in it."""

    __slots__ = ("data", "places", "result")

    def __init__(
        self, data: bytes, places: list[tuple[int, int]], result: tuple[bytes, bytes]
    ) -> None:
        #: The pickle beside the buffers.
        self.data = data
        #: (start, number of bytes) of each buffer in the blob.
        self.places = places
        self.result = result

    def is_of(self, data: bytes, buffers: Sequence[memoryview]) -> bool:
        """Return whether this is the result for a pickle with these buffers."""
        if [nbytes for _, nbytes in self.places] != [view.nbytes for view in buffers]:
            return False
        if self.data != data:
            return False
        blob = self.result[1]
        return all(
            # The only comparison with a part of `bytes` that copies nothing.
            blob.startswith(view[at : at + _PIECE_NBYTES], start + at)
            for view, (start, nbytes) in zip(buffers, self.places, strict=True)
            for at in range(0, nbytes, _PIECE_NBYTES)
        )


class LargeFunctions:
    """The latest large functions of one client. Any thread may call any method.

    Args:
        on_looked_at: called with a function and its size each time that it was pickled and compared
            or hashed, if it is of at least `report_nbytes`.
        report_nbytes: see `on_looked_at`.
    """

    def __init__(
        self,
        on_looked_at: Callable[[Callable[..., Any], int], object] | None = None,
        report_nbytes: int = 0,
    ) -> None:
        self._on_looked_at = on_looked_at
        self._report_nbytes = report_nbytes
        #: In the order of their last use, the latest first. Replaced, never changed: two threads at
        #: once may lose one of them, which is then hashed again.
        self._kept: tuple[_Kept, ...] = ()

    @property
    def nbytes(self) -> int:
        """The size of what is kept."""
        return sum(len(kept.result[1]) for kept in self._kept)

    def result(
        self, func: Callable[..., Any], data: bytes, buffers: Sequence[memoryview]
    ) -> tuple[bytes, bytes]:
        """Return the id and the blob of a function that was pickled with its buffers beside it."""
        nbytes = len(data) + sum(view.nbytes for view in buffers)
        if nbytes <= LARGE_NBYTES:
            return _identified(in_one_piece(data, buffers))
        result = self.find(data, buffers)
        if result is None:
            blob = in_one_piece(data, buffers)
            result = _identified(blob)
            self._keep(_Kept(data, _places(blob, buffers), result))
        if self._on_looked_at is not None and nbytes >= self._report_nbytes:
            self._on_looked_at(func, nbytes)
        return result

    def find(self, data: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, bytes] | None:
        """Return the result that is kept for equal content."""
        for kept in self._kept:
            if kept.is_of(data, buffers):
                self._keep(kept)
                return kept.result
        return None

    def _keep(self, latest: _Kept) -> None:
        if self._kept and self._kept[0] is latest:
            return
        kept = [latest]
        nbytes = 0
        for other in self._kept[: _MAX_KEPT - 1]:
            if other is not latest:
                nbytes += len(other.result[1])
                if nbytes + len(latest.result[1]) > MAX_KEPT_NBYTES:
                    break
                kept.append(other)
        self._kept = tuple(kept)


def in_one_piece(data: bytes, buffers: Sequence[memoryview]) -> bytes:
    """Return the pickle of a function with its buffers in it."""
    return pickle.dumps(_OnePiece(data, buffers), PROTOCOL) if buffers else data


def identified(data: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, bytes]:
    """Return the id and the blob of a function of which nothing is kept."""
    return _identified(in_one_piece(data, buffers))


def _identified(blob: bytes) -> tuple[bytes, bytes]:
    if len(blob) < _LONG_NBYTES:
        return blake2b(blob, digest_size=16).digest(), blob
    return bytes.fromhex(digest_of([blob])), blob


def _places(blob: bytes, buffers: Sequence[memoryview]) -> list[tuple[int, int]]:
    """Return start and size of each buffer in the blob of `in_one_piece`."""
    places = []
    end = 0
    for view in buffers:
        header = _header(view.nbytes, is_frozen=view.readonly)
        start = blob.index(header, end) + len(header)
        end = start + view.nbytes
        places.append((start, view.nbytes))
    return places


def _header(nbytes: int, *, is_frozen: bool) -> bytes:
    """Return what precedes the bytes of a large buffer in a pickle."""
    if not is_frozen:
        return pickle.BYTEARRAY8 + nbytes.to_bytes(8, "little")
    if nbytes < 1 << 32:
        return pickle.BINBYTES + nbytes.to_bytes(4, "little")
    return pickle.BINBYTES8 + nbytes.to_bytes(8, "little")
