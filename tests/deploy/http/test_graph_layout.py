"""The layout of a graph: layers, groups, order and places, without a browser."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.deploy.http.graph_layout import (
    BOX_HEIGHT,
    BOX_WIDTH,
    Neighbours,
    NeighbourTask,
    layers_of,
    layout,
)


def graph(text):
    """Return tasks of "a -> b c; b -> d": a is an input of b and c."""
    inputs: dict[str, list[str]] = {}
    for part in text.split(";"):
        source, _, targets = part.partition("->")
        inputs.setdefault(source.strip(), [])
        for target in targets.split():
            inputs.setdefault(target, []).append(source.strip())
    return found_of(inputs)


def found_of(inputs):
    found = Neighbours()
    for key, some in inputs.items():
        readers = tuple(other for other, of in inputs.items() if key in of)
        found.tasks[key] = NeighbourTask(
            *(key, key.partition("-")[0], "waiting", tuple(some), readers),
            n_inputs=len(some),
            n_dependents=len(readers),
        )
    return found


#: Graphs without cycles: each task reads some of those before it.
GRAPHS = (
    st.integers(1, 12)
    .flatmap(
        lambda n: st.tuples(*(st.sets(st.integers(0, max(i - 1, 0)), max_size=3) for i in range(n)))
    )
    .map(
        lambda rows: found_of(
            {f"f{i % 3}-{i}": [f"f{j % 3}-{j}" for j in row if j < i] for i, row in enumerate(rows)}
        )
    )
)


def layers_in(found):
    return layers_of(found.tasks, found.edges())


@given(GRAPHS)
def test_an_input_is_left_of_its_reader(found):
    layers = layers_in(found)
    assert all(layers[source] < layers[target] for source, target in found.edges())


def test_an_input_is_moved_to_its_reader():
    layers = layers_in(graph("a -> b; b -> c; x -> c"))
    assert layers == {"a": 0, "b": 1, "c": 2, "x": 1}


def test_a_cycle_is_drawn_somehow():
    found = found_of({"a": ["b"], "b": ["a"], "c": ["a"]})
    assert {*layers_in(found)} == {"a", "b", "c"}
    assert len(layout(found, "a").boxes) == 3


@given(GRAPHS, st.sampled_from([1, 60]))
def test_boxes_do_not_overlap_and_are_inside_the_picture(found, max_single):
    placed = layout(found, "f0-0", max_single)
    assert sorted(key for box in placed.boxes for key in box.keys) == sorted(found.tasks)
    for box in placed.boxes:
        assert 0 <= box.x <= placed.width - BOX_WIDTH
        assert 0 <= box.y <= placed.height - BOX_HEIGHT
        assert sum(box.states.values()) == len(box.keys)
    for i, one in enumerate(placed.boxes):
        for other in placed.boxes[:i]:
            assert one.x != other.x or abs(one.y - other.y) >= BOX_HEIGHT


@given(GRAPHS)
def test_each_dependency_is_drawn_from_left_to_right_and_between_boxes(found):
    placed = layout(found, "f0-0")
    assert sum(edge.n for edge in placed.edges) == len(found.edges())
    for edge in placed.edges:
        assert all(x1 < x2 for (x1, _), (x2, _) in pairwise(edge.points))
        for (x1, y1), (_, y2) in [*pairwise(edge.points)][1::2]:  # where it passes a layer
            assert y1 == y2
            for box in placed.boxes:
                assert box.x != x1 or not box.y <= y1 <= box.y + BOX_HEIGHT


def test_many_tasks_of_a_layer_and_function_are_one_box_but_for_the_chosen_one():
    inputs = {f"load-{i}": [] for i in range(70)}
    inputs["sum-1"] = [*inputs]
    placed = layout(found_of(inputs), "load-3")
    assert [(box.function, len(box.keys)) for box in placed.boxes] == [
        ("load", 69),
        ("load", 1),
        ("sum", 1),
    ]
    assert sorted((edge.n, edge.is_of_chosen) for edge in placed.edges) == [(1, True), (69, False)]


def test_boxes_are_ordered_so_that_edges_do_not_cross():
    placed = layout(graph("a -> z; b -> y; c -> x; z -> e; y -> f; x -> g"), "a")
    y_of = {box.keys[0]: box.y for box in placed.boxes}
    for row in ("abc", "zyx", "efg"):
        assert [y_of[key] for key in row] == sorted(y_of[key] for key in row)


def test_dependencies_that_are_not_drawn_are_counted():
    found = graph("a -> b")
    assert found.n_missing == 0
    found.tasks["b"] = NeighbourTask("b", "b", "waiting", ("a",), (), 5, 2)
    assert found.n_missing == 6


def test_nothing_is_drawn_of_no_task():
    placed = layout(Neighbours(), "a")
    assert (placed.boxes, placed.edges) == ([], [])
