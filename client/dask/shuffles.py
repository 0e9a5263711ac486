"""Shuffles of dask's data frames, in the form that weft runs: n + m tasks for n to m partitions.

dask lowers a shuffle to a node `TaskShuffle` of its expression, whose graph has a task for each
pair of partitions, or several stages of such. It has no way to add another method. But a scheduler
gets the expression itself, and the graph is what its nodes return as their layers. So where weft
makes the graph of an expression, it asks each node for its layer as dask does, and makes that of
large shuffles itself, with the same keys. Nothing of dask is changed, and the nodes around a
shuffle do not see a difference.

- n tasks split a partition into `FrameParts`,
- an index (`index_of_parts`) says where these are,
- m tasks read one part of all, and put it together.

Shuffles that are no plain data frames of pandas, or small, have dask's own tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from ...graphs.core.tasks import CallOf, ListOf, ValuesOf
from ...protocol.values.frame_parts import join_frames, split_frame
from ...protocol.values.parts import index_of_parts, read_parts

__all__ = ["graph_with_parts", "in_order"]

#: The column in which dask has the numbers of the parts.
_COLUMN: Final = "_partitions"
#: Shuffles of fewer pairs of partitions keep dask's own tasks: see `benchmarks/shuffle.py`.
MIN_PAIRS: Final = 16


class ReadPart:
    """Puts one partition of a shuffle together."""

    def __init__(self, meta: Any, ignore_index: bool) -> None:
        self.__name__ = "shuffle_read"
        self._meta = meta
        self._ignore_index = ignore_index

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadPart, (self._meta, self._ignore_index)

    def __call__(self, index: Any, part: int) -> Any:
        return join_frames(read_parts(index, [part]), self._meta, self._ignore_index)


def shuffle_split(frame: Any, n_parts: int, ignore_index: bool) -> Any:
    """Split a partition by the numbers that dask has put into it."""
    return split_frame(frame, _COLUMN, n_parts, ignore_index)


def graph_with_parts(dsk: Any) -> Mapping[Any, Any] | None:
    """Return the graph of an expression of dask with large shuffles in weft's form.

    None = it has none of these.
    """
    shuffles: Any = sys.modules.get("dask.dataframe.dask_expr._shuffle")
    if shuffles is None:
        return None
    base: Any = sys.modules["dask._expr"].Expr
    if not isinstance(dsk, base) or type(dsk).__dask_graph__ is not base.__dask_graph__:
        return None
    kinds = (shuffles.TaskShuffle, shuffles.SimpleShuffle)
    graph: dict[Any, Any] = {}
    seen: set[str] = set()
    stack = [dsk]
    is_found = False
    while stack:
        node = stack.pop()
        if node._name in seen:
            continue
        seen.add(node._name)
        if type(node) in kinds and _is_large(node) and _is_plain(node.frame._meta):
            graph.update(_layer_of(node))
            is_found = True
        else:
            graph.update(node._layer())
        stack += node.dependencies()
    return graph if is_found else None


def in_order(given: Any) -> Any:
    """Return the argument of `index_of_parts` as a list of references, in the order of the node."""
    values = given.refs[0][1] if given.__class__ is CallOf else None
    if values.__class__ is not ValuesOf:
        return given
    found = dict(values.refs)
    names = [item.target if hasattr(item, "target") else item.key for item in given.func.args]
    inner = ListOf([None] * len(names))
    inner.refs = [(i, found[name]) for i, name in enumerate(names)]
    return inner


def _is_large(node: Any) -> bool:
    index = node.partitioning_index
    if index not in (_COLUMN, [_COLUMN]):
        return False
    return bool(node.frame.npartitions * len(node._partitions) >= MIN_PAIRS)


def _is_plain(meta: Any) -> bool:
    """Return whether frames like an empty one can be split by columns."""
    pandas: Any = sys.modules["pandas"]
    return (
        type(meta) is pandas.DataFrame
        and not isinstance(meta.index, pandas.MultiIndex)
        and bool(meta.columns.is_unique)
    )


def _layer_of(node: Any) -> dict[Any, Any]:
    spec: Any = sys.modules["dask._task_spec"]
    name, frame = node._name, node.frame
    token = name.rpartition("-")[2]
    split, index = f"shuffle-split-{token}", f"shuffle-index-{token}"
    ignore_index = bool(node.ignore_index)
    graph: dict[Any, Any] = {}
    keys = [(split, i) for i in range(frame.npartitions)]
    for i, key in enumerate(keys):
        source = spec.TaskRef((frame._name, i))
        graph[key] = spec.Task(key, shuffle_split, source, node.npartitions_out, ignore_index)
    graph[index] = spec.Task(index, index_of_parts, spec.List(*map(spec.TaskRef, keys)))
    read = ReadPart(node._meta, ignore_index)
    for i, part in enumerate(node._partitions):
        graph[name, i] = spec.Task((name, i), read, spec.TaskRef(index), part)
    return graph
