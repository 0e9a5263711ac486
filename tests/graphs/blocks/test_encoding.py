"""The payload of a task."""

from __future__ import annotations

import operator
import pickle
import threading
from functools import partial

import numpy as np
import pytest

from tests.graphs.blocks.kit import Pair, add, inc, same
from weft.graphs.blocks import references
from weft.graphs.blocks.core.tasks import BlockTask
from weft.graphs.blocks.encoding import Encoded, Unpacked
from weft.graphs.core.reading import read_graph
from weft.protocol.errors import SerializationError

BIG = 100_000


def encoded_graph(dsk, keys):
    return Encoded(read_graph(dsk, keys, task_class=BlockTask))


class Reader:
    """A reader of payloads, as in a worker."""

    def __init__(self, encoded):
        self.encoded = encoded
        self.task_of = {task.key: task for task in encoded.tasks}
        self.tables = references.Tables()
        for number, blob in encoded.functions.items():
            self.tables.blobs[number] = partial(pickle.loads, blob)
        for task in encoded.tasks:
            if isinstance(task.exported, Unpacked):
                self.tables.values[task.number] = task.exported.value
        references.current.tables = self.tables

    def call(self, key, **values):
        """Make the call of a task with the given inputs."""
        for name, value in values.items():
            self.tables.values[self.task_of[name].number] = value
        task = self.task_of[key]
        buffers = [self.tables.values[number] for number in task.buffers]
        call = task.payload
        if not isinstance(call, tuple):  # a simple one is not pickled by itself
            call = pickle.loads(call, buffers=buffers)
        func, args, *refs = call
        if refs:
            references.fill(args, refs[0], refs[1] if len(refs) == 2 else [], self.tables.values)
        if isinstance(func, int):
            assert func == task.group
            func = self.tables.function(func)
        return func(*args)


def literals(encoded):
    return [task for task in encoded.tasks if task.exported is not None]


def test_a_task_is_a_few_bytes():
    dsk = {("x", i): (inc, i) for i in range(100)}
    dsk |= {("y", i): (add, ("x", i), 1) for i in range(100)}
    encoded = encoded_graph(dsk, [("y", i) for i in range(100)])
    assert max(len(task.payload) for task in encoded.tasks) < 50
    assert len(encoded.functions) == 2
    assert Reader(encoded).call(("x", 5)) == 6


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ((same, "a"), 5),
        ((same, ["a", 1, ("a", {"x"})]), [5, 1, ("a", {"x"})]),
        ((same, [Pair("a", "b")]), [Pair("a", "b")]),
        ((add, "a", (add, "a", (add, 1, "a"))), 16),
        ((operator.add, "a", 1), 6),
        ((np.add, "a", 1), 6),
        ((partial(add, 2), "a"), 7),
        (("text".replace, "e", "x"), "txxt"),
        ((int, "a"), 5),
    ],
)
def test_calls_are_unchanged_by_encoding(task, expected):
    if isinstance(expected, list) and isinstance(expected[-1], tuple):
        task = (same, ["a", 1, (tuple, ["a", ({"x"}.copy,)])])
        expected = [5, 1, (5, {"x"})]
    encoded = encoded_graph({"a": (inc, 4), "t": task}, ["a", "t"])
    assert Reader(encoded).call("t", a=5) == expected


def test_functions_that_cannot_be_imported_are_sent_apart_and_once():
    class Local:
        pass

    def local(x):
        return x, Local

    dsk = {f"f{i}": (local, i) for i in range(10)}
    dsk |= {f"g{i}": (partial(local), i) for i in range(10)}
    dsk |= {f"h{i}": (same, [local, Local, Local()]) for i in range(10)}
    encoded = encoded_graph(dsk, [*dsk])
    assert len(encoded.functions) == 3  # local, Local, same
    reader = Reader(encoded)
    task = reader.task_of["h3"]
    met = {*encoded.inner_functions[task.number]}
    assert met == {*encoded.functions} - {task.group}
    assert len(task.payload) < 300
    number, cls = reader.call("f2")
    assert number == 2
    assert cls is type(reader.call("h3")[2])
    assert reader.call("g3")[1] is cls


def test_tasks_that_refer_to_the_same_array_share_it():
    array = np.arange(BIG)
    dsk = {"array": array, "n": (inc, 1)}
    dsk |= {f"a{i}": (same, "array") for i in range(5)}
    dsk |= {f"b{i}": (same, ["n", {"deep": array}]) for i in range(5)}
    dsk |= {f"c{i}": (same, (np.sum, array)) for i in range(5)}
    encoded = encoded_graph(dsk, [key for key in dsk if key != "array"])
    (literal,) = literals(encoded)
    assert literal.n_uses == literal.n_open_uses == 15
    assert all(len(task.payload) < 500 for task in encoded.tasks)
    reader = Reader(encoded)
    assert (reader.call("a1") == array).all()
    assert (reader.call("b1", n=2)[1]["deep"] == array).all()
    assert reader.call("c1") == array.sum()


def test_arrays_that_are_not_the_same_are_not_taken_for_it():
    array = np.arange(4 * BIG)
    views = [array[:BIG], array[BIG : 2 * BIG], array[::2][:BIG], array[:BIG].view()]
    read_only = array[:BIG].view()
    read_only.flags.writeable = False
    dsk = {f"a{i}": (same, view) for i, view in enumerate([*views, read_only])}
    encoded = encoded_graph(dsk, [*dsk])
    # The fourth is the same piece of memory as the first; the last is, too, but read-only.
    assert len(literals(encoded)) == 4
    reader = Reader(encoded)
    for i, view in enumerate([*views, read_only]):
        assert (reader.call(f"a{i}") == view).all()
    assert reader.call("a0").flags.writeable
    assert not reader.call("a4").flags.writeable


def test_large_objects_are_shared_also_without_buffers():
    words = {i: f"word {i}" for i in range(20_000)}
    dsk = {f"a{i}": (same, words) for i in range(5)} | {"b": (same, [words, "a1"])}
    dsk |= {"c": (same, [[words], "a1"])}
    encoded = encoded_graph(dsk, [*dsk])
    (literal,) = literals(encoded)
    assert literal.n_uses == 7
    assert all(len(task.payload) < 500 for task in encoded.tasks)
    reader = Reader(encoded)
    assert reader.call("a1") == words
    assert reader.call("b", a1=7) == [words, 7]
    assert reader.call("c", a1=7) == [[words], 7]


def test_graph_is_not_changed_by_encoding():
    words = {i: f"word {i}" for i in range(20_000)}
    dsk = {"n": (inc, 1), "a": (same, [words, "n"])}
    encoded = encoded_graph(dsk, "a")
    task = Reader(encoded).task_of["a"]
    (_, container) = task.refs[0]
    assert container.template[0] is words


def test_the_culprit_is_named():
    lock = threading.Lock()
    for task, where in (
        ((same, lock), "args[0] of task 'bad'"),
        ((same, 1, {"x": [lock]}), "args[1]['x'][0] of task 'bad'"),
        ((same, ["n", (lock,)]), "args[0]"),
        ((partial(same, lock),), "args[0]"),
    ):
        with pytest.raises(SerializationError) as caught:
            encoded_graph({"n": (inc, 1), "bad": task}, "bad")
        assert where in caught.value.where
        assert "task 'bad'" in caught.value.where
        assert caught.value.type_name == "_thread.lock"


def test_arguments_nested_too_deeply_are_an_error_and_no_crash():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    box = {"deep": deep}
    with pytest.raises(SerializationError, match="task 'bad'"):
        encoded_graph({"bad": (same, box)}, "bad")
    while deep:
        deep = deep.pop()


# --- Depth ----------------------------------------------------------------------------------------


def nested_lists(depth, core):
    for _ in range(depth):
        core = [core]
    return core


def depth_of(x):
    depth = 0
    while isinstance(x, list):
        (x,) = x
        depth += 1
    return depth, x


@pytest.mark.parametrize("depth", [10, 300, 5_000])
def test_containers_and_calls_may_be_nested_deeply(depth):
    calls = "a"
    for _ in range(depth):
        calls = (inc, calls)
    dsk = {
        "a": (inc, 1),
        "lists": (depth_of, nested_lists(depth, "a")),
        "literal": (depth_of, nested_lists(depth, 7)),
        "calls": (same, calls),
        "in a list": (same, [calls, [calls]]),
    }
    reader = Reader(encoded_graph(dsk, list(dsk)))
    assert reader.call("lists", a=2) == (depth, 2)
    assert reader.call("literal", a=2) == (depth, 7)
    assert reader.call("calls", a=2) == 2 + depth
    assert reader.call("in a list", a=2) == [2 + depth, [2 + depth]]


noted = []


def note(x, *_):
    noted.append(x)
    return x


def test_calls_in_arguments_are_made_from_left_to_right():
    noted.clear()
    dsk = {"a": (same, [(note, 1, (note, 0)), {(note, 2)}], (note, 4, [(note, 3)]), (note, 5))}
    with pytest.raises(TypeError, match="takes 1 positional"):
        Reader(encoded_graph(dsk, "a")).call("a")
    assert noted == [0, 1, 2, 3, 4, 5]


def test_the_error_gives_the_path_to_the_object_that_cannot_be_pickled():
    lock = threading.Lock()
    for task, path in (
        ((same, ["a", [1, lock]]), r"args\[0\]\[1\]\[1\]"),
        ((same, 1, (inc, (add, "a", lock))), r"args\[1\]\[1\]\[2\]"),
        ((same, ("a", {"b": lock})), r"args\[0\]\[1\]\['b'\]"),
        ((same, Pair("a", lock)), r"args\[0\]\[1\]"),
        ((same, ["the lock"]), r"args\[0\]\[0\]"),
    ):
        with pytest.raises(SerializationError, match=rf"^{path} of task 'x' ") as info:
            encoded_graph({"x": task, "a": (inc, 1), "the lock": lock}, "x")
        assert info.value.type_name == "_thread.lock"
