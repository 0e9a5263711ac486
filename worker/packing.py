"""Does the pickle of a result fit into this worker's memory, beside the result?

A worker above its memory limit is killed, and a result that kills its worker whenever it is pickled
for a reader would be computed again just to do so again. So the pickle of a result that is large,
measured by the limit, is made twice: once to count its bytes, which are thrown away as they come,
and then to keep them. Buffers that travel beside the pickle (arrays) are not copied, and so are not
counted. It is no proof: reductions may need memory of their own. What kills the worker all the same
is noted (`started`), and counted by the scheduler.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

import psutil

from ..protocol.values.pickling import PROTOCOL, buffer_taker

#: A worker above this part of its memory limit is killed.
TERMINATE_FRACTION: Final = 0.95
#: Smaller ones fit if anything does.
_LARGE_FRACTION: Final = 1 / 8


class _TooLarge(Exception):
    """Ends the pickling."""


class _Counter:
    """A file that keeps nothing."""

    def __init__(self, most: float) -> None:
        self.nbytes = 0
        self._most = most

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        self.nbytes += n
        if self.nbytes > self._most:
            raise _TooLarge
        return n


def is_large(nbytes: int, memory_limit: int) -> bool:
    """Whether a result of this size may be what kills a worker that serves it."""
    return 0 < memory_limit * _LARGE_FRACTION < nbytes


def why_too_large(value: object, nbytes: int, memory_limit: int) -> str:
    """Say why the pickle of a result does not fit beside it; "" if it does, as far as is known.

    Args:
        value: the result.
        nbytes: its size, as it was estimated.
        memory_limit: of this worker, bytes; 0 = none.
    """
    if not is_large(nbytes, memory_limit):
        return ""
    # Neither is exact: what was never touched is not resident, and shared parts count twice.
    resident = min(nbytes, psutil.Process().memory_info().rss)
    counter = _Counter(TERMINATE_FRACTION * memory_limit - resident)
    try:
        pickle.Pickler(counter, PROTOCOL, buffer_callback=buffer_taker([])).dump(value)
    except _TooLarge:
        return (
            f"the result takes {nbytes} bytes and its pickle, which is made beside it, at least "
            f"{counter.nbytes}, and the worker may use {memory_limit} in all; return it in parts "
            "or as an array, which is not copied, or raise the memory limit"
        )
    except Exception:  # whoever pickles it for good says why
        return ""
    return ""
