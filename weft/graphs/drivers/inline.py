"""The calling thread runs the graph, task by task, which suits debuggers best."""

from __future__ import annotations

import threading
from typing import Any

from ..core.reading import Graph
from ..core.state import finish
from ..core.tasks import call
from .failing import told
from .observing import Observer


def run_inline(graph: Graph, observer: Observer | None = None) -> Any:
    """Run a graph in this thread and return its results.

    Args:
        graph: used up by this.
        observer: notified of each task.

    Raises:
        BaseException: the exception of the first task that failed; no other task was run.
    """
    ready = graph.sources
    dropped: list[Any] = []
    while ready:
        task = ready.pop()
        if observer is not None:
            observer.pretask(task)
        try:
            value = call(task)
        except BaseException as exc:
            graph.unlink()
            raise told(exc, task.key)  # noqa: B904 - it is the same exception
        finish(task, value, ready, dropped)
        if observer is not None:
            observer.posttask(task, value, threading.get_ident())
        value = None  # otherwise it would stay alive during the next call
        dropped.clear()
    return graph.results()
