from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import MappingProxyType

import pytest
from hypothesis import given

import weft
from tests.graphs.graph_kit import evaluate, graphs, inc, total
from weft.graphs.core.reading import read_graph
from weft.graphs.core.tasks import Literal
from weft.protocol.errors import MissingKey

Pair = namedtuple("Pair", ["first", "second"])


class MyList(list):
    pass


@pytest.mark.parametrize(
    ("dsk", "expected"),
    [
        pytest.param({"x": 5}, 5, id="literal"),
        pytest.param({"x": (inc, 1)}, 2, id="task"),
        pytest.param({"x": (inc, "a"), "a": 1}, 2, id="reference to a literal"),
        pytest.param({"x": (inc, "a"), "a": (inc, "b"), "b": (inc, 1)}, 4, id="chain"),
        pytest.param({"x": (inc, (inc, (inc, 1)))}, 4, id="nested calls"),
        pytest.param({"x": "a", "a": "b", "b": (inc, 1)}, 2, id="aliases of a task"),
        pytest.param({"x": "a", "a": ("b", 0), ("b", 0): 3}, 3, id="aliases of a literal"),
        pytest.param({"x": (sum, ["a", "a", 1]), "a": (inc, 1)}, 5, id="list, twice the same"),
        pytest.param({"x": (sum, ("a", 1)), "a": (inc, 1)}, 3, id="tuple that is no key"),
        pytest.param({"x": (sorted, {"a", 1}), "a": (inc, 1)}, [1, 2], id="set"),
        pytest.param({"x": (len, frozenset({"a", 1})), "a": (inc, 0)}, 1, id="frozenset"),
        pytest.param({"x": ["a", [1, "a"]], "a": (inc, 1)}, [2, [1, 2]], id="list as a task"),
        pytest.param({"x": ("a", 1), "a": (inc, 1)}, (2, 1), id="tuple as a task"),
        pytest.param({"x": (inc, ("a", 1)), ("a", 1): (inc, 1)}, 3, id="tuple that is a key"),
        pytest.param({"x": (list, (1, ["a"])), "a": (inc, 1)}, [1, [2]], id="tuple without hash"),
        pytest.param({"x": (str, True), 1: (inc, 5)}, "6", id="True is the key 1, as for dicts"),
        pytest.param({"x": (str, True)}, "True", id="True is no key"),
        pytest.param({"x": (inc, 1), 1: (inc, 5)}, 7, id="a number that is a key"),
        pytest.param({"x": (len, b"abc"), b"abc": 4}, 3, id="bytes are literals, as for dask"),
        pytest.param({"x": (str, None)}, "None", id="None"),
        pytest.param({"x": (dict, {"k": "a"}), "a": 1}, {"k": "a"}, id="dicts are literals"),
        pytest.param({"x": (Pair, "a", 2), "a": (inc, 1)}, Pair(2, 2), id="class as function"),
        pytest.param(
            {"x": (list, Pair("a", 2)), "a": (inc, 1)}, [2, 2], id="named tuple of references"
        ),
        pytest.param({"x": Pair("a", 2), "a": (inc, 1)}, Pair(2, 2), id="named tuple as a task"),
        pytest.param({"x": MyList(["a", 2]), "a": (inc, 1)}, MyList([2, 2]), id="subclass of list"),
        pytest.param({"x": ()}, (), id="empty tuple"),
        pytest.param({"x": []}, [], id="empty list"),
        pytest.param(OrderedDict(x=(inc, 1)), 2, id="ordered dict"),
        pytest.param(MappingProxyType({"x": (inc, 1)}), 2, id="another mapping"),
        pytest.param({"x": (inc, 0.5), 0.5: 2.5}, 3.5, id="float"),
        pytest.param({"x": "x"}, "x", id="its own name is a literal"),
        pytest.param({"x": (inc, 0), 0: 0}, 1, id="its own number is a literal"),
    ],
)
def test_all_forms_of_a_graph_are_read(dsk, expected):
    value = weft.get(dsk, "x")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("x", 1),
        (["x"], (1,)),
        (["x", "y"], (1, 2)),
        ([["x", "y"], ["z"], []], ((1, 2), (3,), ())),
        (["z", "z", "lit", "alias"], (3, 3, "value", 2)),
        ([], ()),
    ],
)
def test_results_are_nested_like_the_keys(keys, expected):
    dsk = {"x": 1, "y": (inc, "x"), "z": (inc, "y"), "lit": "value", "alias": "y"}
    assert weft.get(dsk, keys) == expected


def test_tasks_that_no_key_needs_are_not_read():
    calls = []
    dsk = {"x": (inc, 1), "y": (calls.append, 1), "z": ("not", "looked at")}
    assert weft.get(dsk, "x") == 2
    assert not calls
    assert read_graph(dsk, "x").n_tasks == 1


def test_a_shared_task_is_run_once():
    calls = []

    def note():
        calls.append(1)
        return 1

    dsk = {"a": (note,), "b": (inc, "a"), "c": (inc, "a"), "d": (total, "b", "c", ["a"])}
    assert weft.get(dsk, ["d", "a"]) == (1 + 2 + 2 + 2, 1)
    assert len(calls) == 1


def test_a_list_is_made_anew_for_each_task_and_each_run():
    dsk = {"x": (_spoiled, [1, 2]), "y": (_spoiled, "l"), "z": (_spoiled, "l"), "l": [1, "one"]}
    dsk["one"] = (inc, 0)
    for _ in range(2):
        assert weft.get(dsk, "x") == [1, 2, "spoiled"]
    assert dsk["x"] == (_spoiled, [1, 2])


def _spoiled(items):
    items.append("spoiled")
    return items


def test_depth_is_no_limit():
    depth = 50_000
    dsk = {i: (inc, i - 1) for i in range(1, depth)}
    dsk[0] = 0.0
    assert weft.get(dsk, depth - 1) == depth - 1
    aliases = {("a", i): ("a", i - 1) for i in range(1, 5_000)} | {("a", 0): 7}
    assert weft.get(aliases, ("a", 4_999)) == 7


def test_things_run_in_the_order_in_which_they_are_written():
    order = []
    dsk = {name: (order.append, name.upper()) for name in "abcdef"}
    dsk["all"] = (list, ["a", "b", "c"])
    weft.get(dsk, ["all", "d", "e", "f"])
    assert "".join(order) == "ABCDEF"


@given(graphs())
def test_any_graph_gives_what_recursion_gives(case):
    dsk, wanted = case
    assert weft.get(dsk, wanted) == tuple(evaluate(dsk, key) for key in wanted)


@given(graphs())
def test_links_are_symmetric_and_counted(case):
    dsk, wanted = case
    graph = read_graph(dsk, wanted)
    tasks = set(graph.tasks)
    assert len(tasks) == graph.n_tasks == len(list(graph.walk()))
    for task in tasks:
        assert task.n_waiting == len(task.dependencies)
        assert (task in graph.sources) == (not task.dependencies)
        for dependency in task.dependencies:
            assert dependency in tasks
            assert dependency.dependents.count(task) == task.dependencies.count(dependency)


# --- Not a graph ----------------------------------------------------------------------------------


def test_a_missing_key_is_named():
    with pytest.raises(weft.MissingKey, match="'nope' was asked for") as info:
        weft.get({"x": 1}, ["x", ["nope"]])
    assert info.value.key == "nope"
    assert isinstance(info.value, KeyError)


@pytest.mark.parametrize(
    ("dsk", "wanted", "cycle"),
    [
        ({"x": (inc, "x")}, "x", ["x", "x"]),
        ({"x": (inc, "y"), "y": (inc, "x")}, "x", None),
        ({"a": (inc, "x"), "x": (inc, ["y"]), "y": (inc, (inc, "x"))}, "a", None),
        ({"x": "y", "y": "z", "z": "y"}, "x", ["y", "z", "y"]),
    ],
)
@pytest.mark.parametrize("get", [weft.get, weft.threaded.get])
def test_a_cycle_is_named_before_anything_runs(dsk, wanted, cycle, get):
    calls = []
    dsk = {**dsk, "first": (calls.append, 1), "both": (list, ["first", wanted])}
    with pytest.raises(weft.GraphCycle, match="the graph has a cycle: ") as info:
        get(dsk, "both")
    keys = info.value.keys
    assert keys[0] == keys[-1]
    assert set(keys) <= {"x", "y", "z"}
    if cycle:
        assert keys == cycle
    assert not calls


def test_a_long_cycle_is_shortened():
    dsk = {i: (inc, (i + 1) % 1000) for i in range(1000)}
    with pytest.raises(weft.GraphCycle, match="990 more") as info:
        weft.get(dsk, 0)
    assert len(info.value.keys) == 1001


@pytest.mark.parametrize("dsk", [None, 5, [("x", 1)], "x", object(), dict])
def test_a_graph_that_is_no_mapping_is_refused(dsk):
    with pytest.raises(weft.GraphError, match="a graph is a mapping of keys to tasks, not"):
        weft.get(dsk, "x")


@pytest.mark.parametrize("keys", [{"x"}, {"x": 1}, bytearray(b"x"), [["x"], {}]])
def test_a_key_without_a_hash_is_refused(keys):
    with pytest.raises(weft.GraphError, match="cannot be a key: ask for one key, or for a list"):
        weft.get({"x": 1}, keys)


def test_values_that_are_known_outside_take_the_places_of_tasks():
    asked = []

    def outside(key, is_in_graph):
        asked.append((key, is_in_graph))
        return Literal("known") if key in ("y", "far") else None

    dsk = {"x": (inc, 1), "y": (inc, "x"), "z": (list, ["y", "x"]), "w": (list, ["y"])}
    graph = read_graph(dsk, ["w", "y", "far"], outside=outside)
    assert [task.key for task in graph.walk()] == ["w"]  # nothing else needs the others
    assert graph.outputs[1].value == graph.outputs[2].value == "known"
    assert sorted(asked) == [("far", False), ("w", True), ("y", True)]
    with pytest.raises(MissingKey, match="'no' was asked for"):
        read_graph(dsk, ["no"], outside=outside)
