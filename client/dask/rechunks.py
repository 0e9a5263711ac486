"""Rechunks of dask's arrays, in the form that weft runs: no task for each piece of a chunk.

dask makes the graph of a rechunk when `rechunk` is called: a task `rechunk-split` for each piece of
an old chunk, and a task `rechunk-merge` for each new one, which puts its pieces together. There is
no expression that could be lowered in another way. So the graph is changed when it is submitted:
new chunks read their pieces out of the old ones, through an index of these. The keys of the new
chunks stay, and the function that puts pieces together is dask's.

Chunks that have no piece in common with each other, not even through others, have indexes of their
own, so that they do not wait for each other. Where a rechunk has hardly more pieces than chunks,
as if chunks are only shifted, it stays as it is: an index would make all wait for all.

dask may plan a rechunk in steps, so as to have fewer pieces. Each is changed by itself. And it may
fuse the task of a new chunk with those behind it, which are a task of their own then.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...protocol.values.parts import TO_THE_END, index_of_parts, read_parts

__all__ = ["with_read_pieces"]

_MERGE: Final = "rechunk-merge-"
#: Fewer pieces that belong together stay as they are.
MIN_PIECES: Final = 16


class _Merge(NamedTuple):
    """A new chunk: its pieces."""

    task: Any
    #: keys of old chunks
    sources: list[Any]
    #: start and stop of each axis of each piece
    numbers: list[int]
    #: keys of the tasks that cut pieces
    splits: list[Any]
    #: key of the task that it is fused into, and the other tasks in that; None = it is not fused
    fused: tuple[Any, list[Any]] | None


class ReadPieces:
    """Puts a new chunk together, by dask's function."""

    def __init__(self, merge: Any) -> None:
        self.__name__ = "rechunk_read"
        self._merge = merge

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadPieces, (self._merge,)

    def __call__(self, index: Any, places: list[int], numbers: list[int], shape: Any) -> Any:
        pieces: dict[int, Any] = {}
        n_numbers = len(numbers) // len(places)
        for taken in read_parts(index, numbers, places=places, n_numbers=n_numbers):
            pieces.update(zip(taken.places, taken.parts, strict=True))
        return self._merge([pieces[place] for place in places], shape)


def with_read_pieces(graph: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a graph in which large rechunks have no tasks for pieces; the same if it has none."""
    module: Any = sys.modules.get("dask.array.rechunk")
    if module is None or not hasattr(module, "concatenate_shaped"):
        return graph
    layers: dict[str, list[_Merge]] = {}
    for key, task in graph.items():
        if key.__class__ is tuple and str(key[0]).startswith(_MERGE):
            merge = _read_merge(graph, task, module) or _read_fused(graph, task, module)
            if merge is not None:
                layers.setdefault(merge.task.key[0], []).append(merge)
    changed: dict[Any, Any] = {}
    for name, merges in layers.items():
        for number, group in enumerate(_connected(merges)):
            sources = list(dict.fromkeys(key for merge in group for key in merge.sources))
            n_pieces = sum(len(merge.sources) for merge in group)
            if n_pieces < MIN_PIECES or n_pieces <= len(group) + len(sources):
                continue
            if not changed:
                changed = dict(graph)
            _change(changed, group, sources, f"{name.replace(_MERGE, 'rechunk-index-')}-{number}")
    return changed or graph


def _read_merge(graph: Mapping[Any, Any], task: Any, module: Any) -> _Merge | None:
    """Return the pieces of a new chunk; None if it is not as dask makes them."""
    spec: Any = sys.modules["dask._task_spec"]
    if type(task) is not spec.Task or task.func is not module.concatenate_shaped or task.kwargs:
        return None
    pieces, shape = task.args
    n_axes = len(shape)
    merge = _Merge(task, [], [], [], None)
    for piece in getattr(pieces, "args", ()):
        if type(piece) is not spec.Alias:
            return None
        split: Any = graph.get(piece.target)
        if getattr(split, "func", None) is not module.getitem:
            merge.sources.append(piece.target)
            merge.numbers.extend([0, TO_THE_END] * n_axes)
            continue
        source, box = split.args
        box = tuple(getattr(box, "args", box))
        if type(source) not in (spec.TaskRef, spec.Alias) or not all(_is_plain(cut) for cut in box):
            return None
        merge.sources.append(source.key if type(source) is spec.TaskRef else source.target)
        merge.numbers.extend(number for cut in box for number in (cut.start, cut.stop))
        merge.splits.append(piece.target)
    if len(set(merge.sources)) < len(merge.sources) or len(merge.numbers) != (
        2 * n_axes * len(merge.sources)
    ):
        return None
    return merge


def _read_fused(graph: Mapping[Any, Any], task: Any, module: Any) -> _Merge | None:
    """Return the new chunk in a task of several; None if there is none, or more than one."""
    spec: Any = sys.modules["dask._task_spec"]
    if type(task) is not spec.Task or not task.has_subgraph():
        return None
    inner = task.args[0]
    merges = [one for key, one in inner.items() if str(key[0]).startswith(_MERGE)]
    merge = _read_merge(graph, merges[0], module) if len(merges) == 1 else None
    if merge is None:
        return None
    others = [one for one in inner.values() if one is not merge.task]
    return merge._replace(fused=(task.key, others)) if others else None


def _is_plain(cut: Any) -> bool:
    return (
        type(cut) is slice
        and cut.step in (None, 1)
        and isinstance(cut.start, int)
        and isinstance(cut.stop, int)
    )


def _connected(merges: Sequence[_Merge]) -> list[list[_Merge]]:
    """Return new chunks in groups of those that have old ones in common, also through others."""
    root_of: dict[Any, Any] = {}

    def find(key: Any) -> Any:
        while (root := root_of.setdefault(key, key)) != key:
            root_of[key] = root_of[root]
            key = root
        return key

    for merge in merges:
        first = find(merge.sources[0])
        for key in merge.sources[1:]:
            root_of[find(key)] = first
    groups: dict[Any, list[_Merge]] = {}
    for merge in merges:
        groups.setdefault(find(merge.sources[0]), []).append(merge)
    return list(groups.values())


def _change(
    graph: dict[Any, Any], merges: Sequence[_Merge], sources: Sequence[Any], index: str
) -> None:
    spec: Any = sys.modules["dask._task_spec"]
    graph[index] = spec.Task(index, index_of_parts, spec.List(*map(spec.TaskRef, sources)))
    places = {key: place for place, key in enumerate(sources)}
    read = ReadPieces(merges[0].task.func)
    for merge in merges:
        key = merge.task.key
        where = spec.DataNode(None, [places[source] for source in merge.sources])
        boxes = spec.DataNode(None, [int(number) for number in merge.numbers])
        shape = spec.DataNode(None, merge.task.args[1])
        graph[key] = spec.Task(key, read, spec.TaskRef(index), where, boxes, shape)
        if merge.fused is not None:
            fused_key, others = merge.fused
            graph[fused_key] = spec.Task.fuse(*others, key=fused_key)
        for split in merge.splits:
            graph.pop(split, None)
