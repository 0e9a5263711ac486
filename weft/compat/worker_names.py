"""What `distributed.get_worker()` returns in a task of weft: its worker, with names of dask's."""

from __future__ import annotations

from typing import Any

from ..client import get_client
from ..worker.context import get_worker as worker_here


def get_worker() -> Any:
    """Return the worker of the calling task.

    Raises:
        NotInTask: the caller is not in a task; this is a `ValueError`, as it is with dask.
    """
    return WorkerNames(worker_here())


class WorkerNames:
    """A `WorkerContext`, with the number of its threads. Attributes are those of the context."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        object.__setattr__(self, "_context", context)

    @property
    def nthreads(self) -> int:
        """The number of tasks that the worker runs at once."""
        address = self._context.address
        return int(get_client().nthreads(address)[address])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._context, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._context, name)
