"""Chains of tasks around shuffles: one task each, with the values that all of them would have."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from weft.client.dask.chains import CallsInTurn, with_chains
from weft.client.dask.shuffles import graph_with_parts
from weft.protocol.values.serialize import dumps, loads

N = 12
FACTOR = 3


def frame_of(i: int) -> pd.DataFrame:
    rng = np.random.default_rng(i)
    return pd.DataFrame({"k": rng.integers(0, 100, 40), "x": rng.random(40)})


@pytest.fixture(autouse=True)
def by_tasks() -> Any:
    with dask.config.set({"dataframe.shuffle.method": "tasks", "scheduler": "sync"}):
        yield


def frame() -> Any:
    return dd.from_map(frame_of, range(N))


def scaled(part: pd.DataFrame) -> pd.DataFrame:
    return part * FACTOR


def graph_of(collection: Any) -> tuple[Any, list[Any]]:
    expression = collection.expr.optimize(fuse=False)  # as `compute` does: nothing is joined
    graph = graph_with_parts(expression)
    assert graph is not None
    return graph, list(expression.__dask_keys__())


WORK = {
    "a map behind it": lambda f: f.shuffle("k").map_partitions(scaled),
    "a filter before it": lambda f: f[f.x > 0.5].assign(y=f.k * 2).shuffle("k").y + 1,
    "two readers": lambda f: f.shuffle("k").x + f.shuffle("k").k,
    "merge": lambda f: f.merge(frame(), on="k").x_x.map_partitions(np.sqrt),
    "set_index": lambda f: f.set_index("x").k * 2,
    "apply": lambda f: f.groupby("k").apply(lambda g: g.x.sum(), meta=("x", "f8")) + 1,
    "two shuffles in turn": lambda f: f.shuffle("k").assign(z=1).shuffle("x").z,
}


@pytest.mark.parametrize("name", WORK)
def test_values_are_those_of_all_tasks_one_by_one(name: str) -> None:
    graph, keys = graph_of(WORK[name](frame()))
    joined = with_chains(graph, [keys], {})
    assert len(joined) < len(graph)
    same = pd.testing.assert_frame_equal
    for found, wanted in zip(dask.get(joined, keys), dask.get(graph, keys), strict=True):
        same(pd.DataFrame(found), pd.DataFrame(wanted))


def test_a_shuffle_of_what_is_made_and_mapped_has_two_tasks_for_each_partition() -> None:
    graph, keys = graph_of(frame().shuffle("k").map_partitions(scaled).x)
    assert len(with_chains(graph, keys, {})) == 2 * N + 1


def test_a_requested_or_held_result_stays_a_task() -> None:
    shuffled = frame().shuffle("k")
    graph, keys = graph_of(shuffled.map_partitions(scaled))
    inner = [key for key in graph if str(key[0]).startswith("taskshuffle")]
    assert len(inner) == N
    assert not {*inner} & {*with_chains(graph, keys, {})}
    assert {*inner} <= {*with_chains(graph, [keys, inner], {})}
    held = {str(key) for key in inner}
    assert {*inner} <= {*with_chains(graph, keys, held)}


def test_graphs_without_parts_are_not_changed() -> None:
    expression = (frame().x + 1).expr.optimize(fuse=False)
    graph = expression.__dask_graph__()
    assert with_chains(graph, list(expression.__dask_keys__()), {}) is graph


def test_common_arguments_of_chains_are_pickled_once_with_the_function() -> None:
    graph, keys = graph_of(frame().shuffle("k"))
    joined = with_chains(graph, keys, {})
    tasks = [task for key, task in joined.items() if str(key[0]).startswith("shuffle-split")]
    assert [list(task.args) for task in tasks] == [[i] for i in range(N)]
    (call,) = {id(task.func): task.func for task in tasks}.values()
    assert type(call) is CallsInTurn
    assert call.__name__.startswith("frame_of-")
    assert call.__name__.endswith("-shuffle-split")
    again = loads(dumps(call))
    assert again.__name__ == call.__name__
    assert type(again(3)) is type(call(3))
