"""Access to dask: its graphs, its configuration, its callbacks.

dask is never imported here. If its modules are not in `sys.modules`, there are no objects of dask.
The parts of dask that are used are the classes of `_task_spec`, `__dask_graph__`, `config` and
`Callback`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..protocol.errors import GraphError
from .core.reading import NodeTypes
from .core.tasks import Literal


def node_types() -> NodeTypes | None:
    """Return the classes of dask's nodes, None if there can be no nodes."""
    spec = sys.modules.get("dask._task_spec")
    if spec is None:
        return None
    return NodeTypes(spec.GraphNode, spec.Task, spec.Alias, spec.DataNode, spec.TaskRef)


def as_mapping(dsk: Any) -> Mapping[Any, Any]:
    """Return the graph of a mapping, an expression, a `HighLevelGraph` or a collection of dask.

    Raises:
        GraphError: it is none of these.
    """
    if isinstance(dsk, Mapping):
        return dsk
    make = getattr(dsk, "__dask_graph__", None)
    graph = make() if callable(make) and not isinstance(dsk, type) else None
    if not isinstance(graph, Mapping):
        text = f"a graph is a mapping of keys to tasks, not {type(dsk).__name__}"
        raise GraphError(f"{text}; the order is get(graph, keys)")
    return graph


#: The sections of dask's configuration that are read; dask treats "-" as "_".
_SECTIONS = frozenset(
    {
        "cache",
        "chunksize",
        "multiprocessing",
        "num-workers",
        "num_workers",
        "pool",
        "rerun-exceptions-locally",
        "rerun_exceptions_locally",
    }
)


def has_configuration() -> bool:
    """Return whether `configured` may find anything; calling it takes a microsecond per name."""
    dask_config = sys.modules.get("dask.config")
    return dask_config is not None and not _SECTIONS.isdisjoint(dask_config.config)


def configured(name: str) -> Any:
    """Return a value of dask's configuration, None if there is none."""
    dask_config = sys.modules.get("dask.config")
    return None if dask_config is None else dask_config.get(name, None)


def active_callbacks() -> AbstractContextManager[Any]:
    """Return a context with dask's global callbacks, inside which they are not active globally."""
    callbacks = sys.modules.get("dask.callbacks")
    if callbacks is None or not callbacks.Callback.active:
        return nullcontext(())
    return callbacks.local_callbacks()  # type: ignore[no-any-return]


def as_dask_shows_it(dsk: Mapping[Any, Any], further_keys: Iterable[Any]) -> dict[Any, Any]:
    """Return a graph in the form in which dask's callbacks expect it, a copy.

    Args:
        dsk: the graph.
        further_keys: keys that it refers to besides its own.
    """
    spec = sys.modules.get("dask._task_spec")
    if spec is None:
        return dict(dsk)
    shown = dict(spec.convert_legacy_graph(dsk, {*dsk, *further_keys}))
    for key in dsk.keys() - shown.keys():
        shown[key] = Literal(dsk[key])  # it equals its key, which dask would take for an alias
    return shown
