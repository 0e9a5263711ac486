from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.graphs.graph_kit import evaluate, graphs
from weft.graphs.core.reading import read_graph
from weft.graphs.core.state import finish
from weft.graphs.core.tasks import GraphTask, call


@given(graphs(), st.integers(0, 2**32))
def test_after_every_task_the_right_tasks_are_ready_and_the_right_values_held(case, seed):
    dsk, wanted = case
    rng = random.Random(seed)
    graph = read_graph(dsk, wanted)
    outputs = {ref for ref in graph.outputs if isinstance(ref, GraphTask)}
    ready, dropped = graph.sources, []
    finished: set[GraphTask] = set()
    n_values = n_dropped = 0
    while ready:
        # In any order: several workers take and finish as they like.
        ready[-1], ready[i] = ready[(i := rng.randrange(len(ready)))], ready[-1]
        task = ready.pop()
        finish(task, call(task), ready, dropped)
        finished.add(task)
        n_values += 1
        n_dropped += len(dropped)
        dropped.clear()
        waiting = {
            one: [other for other in one.dependencies if other not in finished]
            for one in graph.tasks
            if one not in finished
        }
        assert {one.n_waiting for one in finished} <= {0}
        assert all(one.n_waiting == len(others) for one, others in waiting.items())
        assert set(ready) == {one for one, others in waiting.items() if not others}
        assert len(set(ready)) == len(ready)
        needed = {other for one in waiting for other in one.dependencies if other in finished}
        assert {one for one in finished if one.n_uses} == needed | (outputs & finished)
        assert all(one.value is None for one in finished if not one.n_uses)
    assert len(finished) == graph.n_tasks
    assert n_values - n_dropped == len(outputs)
    assert graph.results() == tuple(evaluate(dsk, key) for key in wanted)


def test_the_last_that_became_possible_is_the_first_to_run():
    dsk = {"x": (int,), "a": (str, "x"), "b": (str, "x"), "c": (str, "a")}
    graph = read_graph(dsk, ["c", "b"])
    ready, order = graph.sources, []
    while ready:
        task = ready.pop()
        order.append(task.key)
        finish(task, task.key, ready, [])
    assert order in (["x", "a", "c", "b"], ["x", "b", "a", "c"])


def test_a_value_that_no_task_needs_is_not_kept():
    task = GraphTask("x")
    task.dependencies = []
    finish(task, "value", [], [])
    assert task.value is None
