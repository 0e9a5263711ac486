"""`weft.multiprocessing.get(graph, keys)` runs a graph on processes; see docs/embedded.md."""

from __future__ import annotations

from .graphs.get import get_multiprocessing as get
from .graphs.processes.pool import shutdown

__all__ = ["get", "shutdown"]

# In messages and in `help`, it is what users call it.
get.__module__, get.__name__, get.__qualname__ = __name__, "get", "get"
