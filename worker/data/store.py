"""The values of this worker: results of its tasks, and copies that other workers sent.

The only module that touches values. Each is stored under the attempt that made it, as an object or
packed as it came. A copy stays packed until a task needs it, and is unpickled on the thread of that
task: the event loop runs no user code, and a copy that is only passed on is never unpickled at all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from ...protocol.values.serialize import loads
from ...protocol.wire.payload import Blob, blob_nbytes
from .packing import PLAIN_TYPES, pack_for_reader, pack_result

__all__ = ["Store"]

_NOTHING: Final = object()


class _Packed:
    """A value that no task here has needed yet."""

    __slots__ = ("blob",)

    def __init__(self, blob: Blob) -> None:
        self.blob = blob


class Store:
    """All values, and their bytes. Any thread may call any method.

    Attributes:
        nbytes: the sum of the sizes of all values, as far as they are known.
        memory_limit: of this worker, bytes; 0 = none.
    """

    def __init__(self, memory_limit: int = 0) -> None:
        self.memory_limit = memory_limit
        self.nbytes = 0
        #: {attempt: value, or `_Packed`}. Single items are read and replaced without the lock: the
        #: core pins what a task uses, so that it is not dropped meanwhile.
        self._values: dict[int, Any] = {}
        #: {attempt: bytes}. The same attempts; `nbytes` is the sum.
        self._sizes: dict[int, int] = {}
        #: Guards `nbytes`, and that the two dicts have the same attempts.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __contains__(self, attempt: int) -> bool:
        """Return whether the value of an attempt is here."""
        return attempt in self._values

    def nbytes_of(self, attempt: int) -> int:
        """Return the size of one value; 0 if it is not here."""
        return self._sizes.get(attempt, 0)

    def put(self, attempts: Sequence[int], values: Sequence[Any], sizes: Sequence[int]) -> None:
        """Store the results of new attempts; `sizes` are estimates, in bytes."""
        kept, kept_sizes, n = self._values, self._sizes, 0
        with self._lock:
            # Not `dict.update`, which is slower for one row, and most of a chain's have one.
            for attempt, value, nbytes in zip(attempts, values, sizes):  # noqa: B905 - hot
                kept[attempt] = value
                kept_sizes[attempt] = nbytes
                n += nbytes
            self.nbytes += n

    def put_packed(self, attempt: int, blob: Blob) -> int:
        """Store a copy as another worker sent it, and return its size."""
        nbytes = max(1, blob_nbytes(blob))
        with self._lock:
            self._values[attempt] = _Packed(blob)
            self.nbytes += nbytes - self._sizes.get(attempt, 0)
            self._sizes[attempt] = nbytes
        return nbytes

    def load(self, attempt: int) -> Any:
        """Return the value of `attempt`, which is here, for a task."""
        value = self._values[attempt]
        if value.__class__ is _Packed:
            # Two threads may do this at once. Each gets a whole value, and one of them stays.
            value = self._values[attempt] = loads(value.blob)
        return value

    def pack_plain(self, attempt: int, key: str) -> Blob | None:
        """Do `pack` on the event loop; return None if it might run user code (or nothing is here).

        One read of the value decides: a task's thread may unpickle a copy at any moment.
        """
        value = self._values.get(attempt, _NOTHING)
        if type(value) is _Packed:  # not `__class__`, which may be user code
            return value.blob
        return pack_result(value, key) if type(value) in PLAIN_TYPES else None

    def pack(self, attempt: int, key: str) -> Blob | None:
        """Return the pickle of the result of task `key`, for a reader; None if it is not here.

        A result that cannot be pickled is replaced, see `pack_for_reader`.
        """
        value = self._values.get(attempt, _NOTHING)
        if value is _NOTHING:
            return None
        if type(value) is _Packed:
            return value.blob
        return pack_for_reader(value, key, self.nbytes_of(attempt), self.memory_limit)

    def drop(self, attempts: Sequence[int]) -> list[Any]:
        """Forget these values and return them, because their destructors are user code.

        The caller drops them where it holds no lock. Some may not be here.
        """
        pop, pop_size, n = self._values.pop, self._sizes.pop, 0
        dropped = []
        with self._lock:
            for attempt in attempts:
                n += pop_size(attempt, 0)
                dropped.append(pop(attempt, None))
            self.nbytes -= n
        return dropped
