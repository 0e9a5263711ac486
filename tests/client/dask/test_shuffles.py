"""Shuffles of dask's data frames: how many tasks they are, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from weft.client.dask.shuffles import graph_with_parts
from weft.protocol.values.parts import index_of_parts

N, M = 12, 9


@pytest.fixture(autouse=True)
def by_tasks() -> Any:
    with dask.config.set({"dataframe.shuffle.method": "tasks", "scheduler": "sync"}):
        yield


@pytest.fixture(scope="module")
def frame() -> Any:
    rng = np.random.default_rng(0)
    texts = [f"v{i % 97}" for i in range(600)]
    rows = {"k": rng.integers(0, 100, 600), "x": rng.random(600), "s": texts}
    return dd.from_pandas(pd.DataFrame(rows), npartitions=N)


def other() -> Any:
    rows = pd.DataFrame({"k": range(100), "y": np.arange(100) / 7})
    return dd.from_pandas(rows, npartitions=7)


WORK = {
    "shuffle": lambda f: f.shuffle("k"),
    "another number of partitions": lambda f: f.shuffle("k", npartitions=M),
    "some partitions": lambda f: f.shuffle("k").partitions[2:5],
    "set_index": lambda f: f.set_index("x"),
    "set_index of texts": lambda f: f.set_index("s"),
    "sort_values": lambda f: f.sort_values(["s", "x"], ascending=False),
    "merge": lambda f: f.merge(other(), on="k"),
    "apply": lambda f: f.groupby("k").apply(lambda g: g.x.sum(), meta=("x", "f8")),
    "drop_duplicates": lambda f: f[["k", "s"]].drop_duplicates(split_out=5),
    "a series": lambda f: f.k.drop_duplicates(split_out=5),
    "aggregation": lambda f: f.groupby("k").agg({"x": ["sum", "mean"]}, split_out=4),
}


def test_a_shuffle_has_n_and_m_tasks_and_an_index(frame: Any) -> None:
    expression = frame.shuffle("k", npartitions=M).optimize().expr
    graph = graph_with_parts(expression)
    assert graph is not None
    calls = [getattr(task, "func", None) for task in graph.values()]
    names = [getattr(call, "__name__", "") for call in calls]
    n = min(N, M)  # dask has made fewer partitions of the input first
    assert names.count("shuffle_split") == n
    assert names.count("shuffle_read") == M
    assert calls.count(index_of_parts) == 1
    assert len(graph) < len(expression.__dask_graph__()) / 2


@pytest.mark.parametrize("name", WORK)
def test_the_graph_has_the_keys_and_the_values_of_dasks_own(frame: Any, name: str) -> None:
    expression = WORK[name](frame).optimize().expr
    graph = graph_with_parts(expression)
    assert graph is not None
    keys = list(expression.__dask_keys__())
    expected = dask.get(expression.__dask_graph__(), keys)
    for found, wanted in zip(dask.get(graph, keys), expected, strict=True):
        same = pd.testing.assert_frame_equal
        if isinstance(wanted, pd.Series):
            same = pd.testing.assert_series_equal
        same(found, wanted)


def test_small_shuffles_and_other_graphs_are_dasks(frame: Any) -> None:
    small = frame.partitions[:3].shuffle("k")
    assert graph_with_parts(small.optimize().expr) is None
    assert graph_with_parts((frame.x + 1).optimize().expr) is None
    assert graph_with_parts({"x": 1}) is None
    assert graph_with_parts(dask.delayed(len)([1])) is None


def test_frames_that_columns_do_not_describe_are_dasks() -> None:
    class OtherFrame(pd.DataFrame):
        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return OtherFrame

    from weft.client.dask.shuffles import _is_plain

    index = pd.MultiIndex.from_tuples([(1, 2)])
    assert _is_plain(pd.DataFrame({"x": [1]}))
    assert not _is_plain(OtherFrame({"x": [1]}))
    assert not _is_plain(pd.DataFrame({"x": [1]}, index=index))
    assert not _is_plain(pd.DataFrame([[1, 2]], columns=["x", "x"]))
    assert not _is_plain(pd.Series([1]))


def test_a_client_submits_the_index_as_one(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import weft
    from weft.protocol.wire.messages import INDEX_FUNCTION

    with weft.Client(n_workers=1, threads_per_worker=1, processes=False) as client:
        rows = []
        post = client._engine.post

        def note(operation: Any) -> None:
            function = getattr(operation, "function", None)
            if function is not None and function.id == INDEX_FUNCTION:
                rows.append(operation)
            post(operation)

        monkeypatch.setattr(client._engine, "post_submission", note)
        graph = graph_with_parts(frame.shuffle("k").optimize().expr)
        assert graph is not None
        keys = [key for key in graph if str(key[0]).startswith("taskshuffle")]
        found = client.get(graph, keys)
        assert sum(map(len, found)) == 600
        (row,) = rows
        assert row.options.part_index
        assert [key.rpartition(", ")[2] for key in row.dependencies] == [f"{i})" for i in range(N)]
