"""The same graphs on a cluster: each task is submitted once, with futures in the place of keys.

Nothing is waited for. A future is let go of when the last task that needs it was submitted; from
there on the scheduler keeps the result for as long as it is needed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.errors import SerializationError, UnknownOption
from ..collector import paused_collector
from .dask_graphs import as_mapping, node_types
from .reading import Graph, read_graph
from .state import finish
from .tasks import GraphTask, HasValue, Literal

_OPTIONS = frozenset({"allow_other_workers", "priority", "resources", "retries", "workers"})
#: So much of a key goes into the name of its task on the cluster.
_MAX_KEY_CHARS = 80


class SubmittedTask(GraphTask):
    """A task whose value is its future; pickled, it stands for that future's result."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.value,)


def run_submitted(client: Any, read: Callable[[type[GraphTask]], Graph]) -> Any:
    """Run a graph on the cluster of a client and return its results, as the engines here do."""
    graph = read(SubmittedTask)
    try:
        _submit_tasks(client.submit, graph, {})
        futures = graph.results()
    finally:
        graph.unlink()
    return client.gather(futures)


def submit_graph(
    submit: Callable[..., Any], dsk: Any, keys: Any, options: Mapping[str, Any]
) -> Any:
    """Submit what is needed for `keys`.

    Args:
        submit: of a client.
        dsk: a graph, in any form.
        keys: a key, or a list of keys and of such lists.
        options: for each `submit`.

    Returns:
        Futures, and values of literals, nested like `keys`.

    Raises:
        UnknownOption: an option is none of `submit`.
        GraphError: see `read_graph`.
        SerializationError: a task cannot be pickled.
    """
    if not options.keys() <= _OPTIONS:
        name = min(options.keys() - _OPTIONS)
        raise UnknownOption(f"there is no option {name!r}; here are {', '.join(sorted(_OPTIONS))}")
    mapping = as_mapping(dsk)
    with paused_collector():
        graph = read_graph(mapping, keys, task_class=SubmittedTask, node_types=node_types())
    try:
        _submit_tasks(submit, graph, options)
        return _as_lists(graph.outputs)
    finally:
        graph.unlink()


def _submit_tasks(submit: Callable[..., Any], graph: Graph, options: Mapping[str, Any]) -> None:
    run = uuid.uuid4().hex[:12]
    numbers = itertools.count()
    ready = graph.sources
    dropped: list[Any] = []
    while ready:
        task = ready.pop()
        try:
            future = _submit(submit, task, f"{run}-{next(numbers)}", options)
        except SerializationError as exc:
            where = f"task {task.key!r}: {exc.where}"
            raise SerializationError(where, exc.type_name, exc.text) from exc
        finish(task, future, ready, dropped)
        dropped.clear()


def _submit(
    submit: Callable[..., Any], task: GraphTask, suffix: str, options: Mapping[str, Any]
) -> Any:
    name = f"{str(task.key)[:_MAX_KEY_CHARS]}-{suffix}"
    if all(isinstance(ref, GraphTask) for _, ref in task.refs):
        args = task.args.copy()
        for i, ref in task.refs:
            args[i] = ref.value
        return submit(task.func, *args, key=name, **options)
    # Containers are filled there: calls may be among them.
    return submit(call_filled, task.func, task.args, task.refs, key=name, **options)


def call_filled(func: Callable[..., Any], args: list[Any], refs: list[tuple[int, HasValue]]) -> Any:
    """Call `func(*args)` with the values of `refs` in their places; on a worker."""
    for i, ref in refs:
        args[i] = ref.value
    return func(*args)


def _as_lists(outputs: Any) -> Any:
    if outputs.__class__ is list:
        return [_as_lists(output) for output in outputs]
    return outputs.value
