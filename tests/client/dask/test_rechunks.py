"""Rechunks of dask's arrays: no task for each piece, and the values of dask's own graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.client.dask.rechunks import with_read_pieces
from weft.protocol.values.parts import index_of_parts


def graph_of(array: Any) -> tuple[dict[Any, Any], list[Any]]:
    expression = dask.base.collections_to_expr([array]).optimize()
    return dict(expression.__dask_graph__()), list(dask.core.flatten(array.__dask_keys__()))


def n_calls(graph: dict[Any, Any], prefix: str) -> int:
    return sum(str(key[0]).startswith(prefix) for key in graph if type(key) is tuple)


def indexes(graph: Any) -> list[Any]:
    return [key for key, task in graph.items() if getattr(task, "func", None) is index_of_parts]


@st.composite
def chunks(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    cuts = draw(st.sets(st.integers(1, size - 1), max_size=size - 1))
    return tuple(b - a for a, b in pairwise([0, *sorted(cuts), size]))


@given(
    data=st.data(),
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    has_steps=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_rechunk_has_the_values_of_dasks_own(
    data: st.DataObject, sizes: list[int], has_steps: bool
) -> None:
    array = np.arange(np.prod(sizes)).reshape(sizes)
    old = tuple(data.draw(chunks(size)) for size in sizes)
    new = tuple(data.draw(chunks(size)) for size in sizes)
    rechunked = da.from_array(array, chunks=old).rechunk(new)
    graph, keys = graph_of(rechunked * 2 + 1 if has_steps else rechunked)
    expected = dask.get(graph, keys)
    for found, wanted in zip(dask.get(with_read_pieces(graph), keys), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_new_chunks_read_pieces_of_old_ones_without_tasks_for_these() -> None:
    graph, _ = graph_of(da.ones((12, 12, 12), chunks=(3, 12, 12)).rechunk((12, 3, 4)))
    assert n_calls(graph, "rechunk-split-") == 4 * 12
    changed = dict(with_read_pieces(graph))
    assert n_calls(changed, "rechunk-split-") == 0
    assert n_calls(changed, "rechunk-merge-") == 12
    assert len(indexes(changed)) == 1
    assert len(changed) == len(graph) - 4 * 12 + 1


def test_steps_behind_new_chunks_are_tasks_of_their_own() -> None:
    with dask.config.set({"array.rechunk.threshold": 100}):
        graph, keys = graph_of(da.ones((20, 20), chunks=(1, 20)).rechunk((20, 1)) * 2 + 1)
    assert n_calls(graph, "rechunk-split-") == 20 * 20
    fused = [task for task in graph.values() if hasattr(task, "func") and task.has_subgraph()]
    assert len(fused) == 20
    changed = dict(with_read_pieces(graph))
    assert n_calls(changed, "rechunk-split-") == 0
    assert len(indexes(changed)) == 1
    assert len(changed) == len(graph) - 20 * 20 + 1 + 20
    assert all((part == 3).all() for part in dask.get(changed, keys))


def test_chunks_that_have_nothing_in_common_do_not_wait_for_each_other() -> None:
    array = da.ones((2, 8, 8), chunks=(1, 2, 8)).rechunk((1, 8, 2))
    graph, _ = graph_of(array)
    assert len(indexes(with_read_pieces(graph))) == 2


@pytest.mark.parametrize(
    ("old", "new"), [((10,), (7,)), ((50,), (100,)), ((100,), (20,)), ((33,), (33,))]
)
def test_a_rechunk_with_few_pieces_stays_as_it_is(old: Any, new: Any) -> None:
    graph, _ = graph_of(da.ones(100, chunks=old).rechunk(new))
    assert with_read_pieces(graph) is graph


def test_other_graphs_stay_as_they_are() -> None:
    graph: dict[Any, Any] = {("rechunk-merge-x", 0): (sum, [1, 2]), "y": 1}
    assert with_read_pieces(graph) is graph
