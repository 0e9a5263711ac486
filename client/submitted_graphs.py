"""Runs graphs on a cluster: each task is submitted once, with futures in the place of keys.

This waits for no result. A future is released when the last task that needs it was submitted; from
then on the scheduler keeps the result for as long as it is needed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..graphs.core.reading import Graph, read_graph
from ..graphs.core.state import finish
from ..graphs.core.tasks import GraphTask, HasValue, Literal
from ..graphs.dask_graphs import node_types
from ..graphs.options import checked_order, priorities_of
from ..protocol.errors import MissingKey, SerializationError
from ..protocol.host.collector import paused_collector
from ..protocol.values.exceptions import add_note
from ..protocol.wire.keys import text_of
from .annotations import NAMES, TaskOptions, active_annotations, check_options, read_annotated
from .core.tasks import SubmitOptions
from .future import Future, join_dask

if TYPE_CHECKING:
    from .shell.engine import Engine

#: Number of characters of a key that become part of the name of its task on the cluster.
_MAX_KEY_CHARS = 80
_NOT_HELD: Final = (
    "weft: this client has no future of that key either. If it is part of a persisted collection, "
    "its futures were released, or belong to another client: keep that collection, or persist it "
    "with this client"
)


class SubmittedTask(GraphTask):
    """A task whose value is its future; a reader of its pickle gets that future's result."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.value,)


def run_submitted(client: Any, dsk: Any, read: Callable[..., Graph]) -> Any:
    """Run a graph on the cluster of a client and return its results, as the graph engines do."""
    mapping, annotations = read_annotated(dsk)
    options = TaskOptions({}, active_annotations(), annotations)
    graph = read(mapping, SubmittedTask, FuturesOutside(client._running()).find)
    try:
        _submit_tasks(client._submit_task, graph, options)
        futures = graph.results()
    finally:
        graph.unlink()
    return client._values_of(futures)


def submit_graph(
    client: Any, dsk: Any, keys: Any, options: Mapping[str, Any], *, as_futures: bool = False
) -> Any:
    """Submit the tasks that are needed for `keys`.

    Args:
        client: the one that submits.
        dsk: a graph, in any form.
        keys: a key, or a list of keys and of such lists.
        options: for each task, beside its annotations; `order` is that of the whole graph.
        as_futures: make a task of each literal that is requested.

    Returns:
        Futures, and values of literals, nested like `keys`.

    Raises:
        UnknownOption: an option or an annotation looks misspelt.
        NotSupported: an annotation is one that weft cannot honour.
        ConfigError: `order` is none.
        GraphError: see `read_graph`.
        SerializationError: a task cannot be pickled.
    """
    join_dask()
    check_options(options)
    given = {name: options.get(name) for name in NAMES}
    mapping, annotations = read_annotated(dsk)
    of_tasks = TaskOptions(given, active_annotations(), annotations)
    order = checked_order(options.get("order"))
    outside = FuturesOutside(client._running())
    try:
        with paused_collector():
            graph = read_graph(
                mapping,
                keys,
                task_class=SubmittedTask,
                node_types=node_types(),
                outside=outside.find,
            )
    except MissingKey as error:
        if mapping:
            add_note(error, _NOT_HELD)
        raise
    try:
        if order is not None:
            graph.sort(priorities_of(order, mapping))
        _submit_tasks(client._submit_task, graph, of_tasks)
        if not as_futures:
            return _as_lists(graph.outputs)
        run = uuid.uuid4().hex[:12]

        def submit_literal(key: Any, value: Any) -> Any:
            name = f"{_readable(key)[:_MAX_KEY_CHARS]}-{run}"
            return client._submit_task(return_it, (value,), name, of_tasks.of(key), None)

        return _as_futures(graph.outputs, keys, submit_literal)
    finally:
        graph.unlink()


class FuturesOutside:
    """Finds the futures of a client by the keys that they have in graphs.

    dask replaces futures by references to their keys when it optimizes a graph.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._states = engine.table.states

    def find(self, key: Any, is_in_graph: bool) -> HasValue | None:
        """Return a reference to the future of a key; None if the client has none.

        A task that is in the graph as well is run again if it has failed.
        """
        if is_in_graph:
            return None
        try:
            state = self._states.get(text_of(key))
        except (TypeError, ValueError):
            return None
        if state is None or not self._engine.table.share(state):
            return None
        return Literal(Future(self._engine, state))


def _submit_tasks(submit: Callable[..., Any], graph: Graph, options: TaskOptions) -> None:
    run = uuid.uuid4().hex[:12]
    numbers = itertools.count()
    ranks = _ranks_of(graph)
    ready = graph.sources
    dropped: list[Any] = []
    while ready:
        task = ready.pop()
        try:
            suffix = f"{run}-{next(numbers)}"
            rank = None if ranks is None else ranks[task.key]
            future = _submit(submit, task, suffix, options.of(task.key), rank)
        except SerializationError as exc:
            where = f"task {task.key!r}: {exc.where}"
            raise SerializationError(where, exc.type_name, exc.text) from exc
        finish(task, future, ready, dropped)
        dropped.clear()


def _ranks_of(graph: Graph) -> dict[Any, int] | None:
    """Return the place of each task in the order that was given for the graph; None = no order."""
    if graph.priorities is None:
        return None
    get = graph.priorities.get
    keys = sorted([task.key for task in graph.tasks], key=lambda key: get(key, float("inf")))
    return {key: rank for rank, key in enumerate(keys)}


def _submit(
    submit: Callable[..., Any],
    task: GraphTask,
    suffix: str,
    options: SubmitOptions,
    rank: int | None,
) -> Any:
    name = f"{_readable(task.key)[:_MAX_KEY_CHARS]}-{suffix}"
    if all(isinstance(ref, GraphTask) for _, ref in task.refs):
        args = task.args.copy()
        for i, ref in task.refs:
            args[i] = ref.value
        return submit(task.func, args, name, options, rank)
    # The worker fills the containers, because calls may be among them.
    return submit(call_filled, (task.func, task.args, task.refs), name, options, rank)


def _readable(key: Any) -> str:
    """Return the text of a key, also of one that only graphs have."""
    try:
        return text_of(key)
    except (TypeError, ValueError):
        return str(key)


def call_filled(func: Callable[..., Any], args: list[Any], refs: list[tuple[int, HasValue]]) -> Any:
    """Call `func(*args)`, on a worker, with the values of `refs` in their places."""
    for i, ref in refs:
        args[i] = ref.value
    return func(*args)


def return_it(value: Any) -> Any:
    """Return the argument: the task of a literal."""
    return value


def _as_futures(outputs: Any, keys: Any, submit_literal: Callable[[Any, Any], Any]) -> Any:
    """Do as `_as_lists`, with futures of literals."""
    if outputs.__class__ is list:
        return [
            _as_futures(output, key, submit_literal)
            for output, key in zip(outputs, keys, strict=True)
        ]
    value = outputs.value
    return value if isinstance(value, Future) else submit_literal(keys, value)


def _as_lists(outputs: Any) -> Any:
    if outputs.__class__ is list:
        return [_as_lists(output) for output in outputs]
    return outputs.value
