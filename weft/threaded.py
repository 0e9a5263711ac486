"""`weft.threaded.get(graph, keys)` runs a graph on threads; see docs/embedded.md."""

from __future__ import annotations

from .graphs.drivers.thread_pools import shutdown
from .graphs.get import get_threaded as get

__all__ = ["get", "shutdown"]

# In messages and in `help`, it is what users call it.
get.__module__, get.__name__, get.__qualname__ = __name__, "get", "get"
