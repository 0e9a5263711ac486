"""The exceptions of erred tasks that the scheduler keeps for its clients, bounded in bytes.

One may have 8 MiB, and a `map` may fail a million times. When those that are kept take too much
memory, new ones are cut to type and text: the client raises `TaskErred` then, which shows both.
"""

from __future__ import annotations

from typing import Any, Final

from ....protocol.wire.failure import Failure

#: Bytes of exceptions that are kept whole, in all.
MAX_NBYTES: Final = 256 << 20
_MAX_TEXT_CHARS: Final = 500
_CUT: Final = (
    "[the scheduler holds too many failures to keep this one's exception and traceback; "
    "release futures of failed tasks, or raise smaller exceptions]"
)
#: Approximate memory of a list and its items, beside their contents.
_OVERHEAD: Final = 300


class Failures:
    """Counts the failures of erred tasks. Tasks that fail for the same reason share one."""

    __slots__ = ("_shared", "nbytes")

    def __init__(self) -> None:
        #: {id: [failure, how many tasks have it, its bytes]}
        self._shared: dict[int, list[Any]] = {}
        #: sum of their bytes
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._shared)

    def fit(self, failure: Failure) -> Failure:
        """Return a new failure, cut if there is no room for the whole."""
        if self.nbytes + failure_nbytes(failure) <= MAX_NBYTES or failure[0] != "exception":
            return failure
        if len(failure) < 7:
            return failure  # no worker of weft packs such a thing; the client reports it
        kind, key, _, name, text, _, _, *rest = failure
        text = text if len(text) <= _MAX_TEXT_CHARS else text[:_MAX_TEXT_CHARS] + " [...]"
        return [kind, key, b"", name[:_MAX_TEXT_CHARS], text, _CUT, b"", *rest]

    def add(self, failure: Failure) -> None:
        """Count one more task with this failure."""
        entry = self._shared.get(id(failure))
        if entry is None:
            nbytes = failure_nbytes(failure)
            self._shared[id(failure)] = [failure, 1, nbytes]
            self.nbytes += nbytes
        else:
            entry[1] += 1

    def remove(self, failure: Failure) -> None:
        """Count one task less with this failure."""
        entry = self._shared[id(failure)]
        entry[1] -= 1
        if not entry[1]:
            del self._shared[id(failure)]
            self.nbytes -= entry[2]


def failure_nbytes(failure: Failure) -> int:
    """Return what a failure takes in memory, about."""
    nbytes = _OVERHEAD
    for item in failure:
        kind = type(item)
        if kind is str or kind is bytes:
            nbytes += len(item)
    return nbytes
