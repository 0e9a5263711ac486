"""The interface of a cluster's client that `weft.get` uses: it runs whole graphs elsewhere."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from .core.reading import FindOutside, Graph
from .core.tasks import GraphTask


class ClusterClient(abc.ABC):
    """The base class of `weft.Client`, for code below the client that is given one."""

    #: True if its results have to be awaited.
    asynchronous: bool

    @abc.abstractmethod
    def _run_graph(
        self, dsk: Any, read: Callable[[Mapping[Any, Any], type[GraphTask], FindOutside], Graph]
    ) -> Any:
        """Run a graph on the cluster and return its results, as the engines here do.

        Args:
            dsk: the graph as it was given, which may have annotations.
            mapping: the same as a mapping.
            read: called with the class of its tasks, and a function that finds values that the
                cluster has; returns the linked tasks.
        """
