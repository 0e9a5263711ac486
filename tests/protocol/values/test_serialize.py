"""Values, arguments with futures, and functions: there and back, uncopied, with clear errors."""

from __future__ import annotations

import functools
import gc
import json
import math
import operator
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from collections import namedtuple

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.errors import ClientClosed, InternalError, SerializationError
from weft.protocol.values import functions, pickling, serialize
from weft.protocol.values.serialize import (
    dumps,
    dumps_arguments,
    dumps_arguments_many,
    dumps_function,
    dumps_placed,
    dumps_with_dependencies,
    explain_unpicklable,
    function_name,
    loads,
    loads_arguments,
    loads_with_dependencies,
    reduce_future,
    set_future_binder,
)
from weft.protocol.wire.payload import Payload, blob_nbytes


class Future:
    """The part of the client's future that serialize uses."""

    def __init__(self, key):
        self.key = key

    def __reduce__(self):
        return reduce_future(self.key)


Point = namedtuple("Point", "x y")

ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.dictionaries(st.text(), inner)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=20,
)


def received(blob):
    """Return the blob as it comes off the wire: one writable buffer for each sent one."""
    if isinstance(blob, bytes):
        return blob
    return Payload(bytes(blob.data), [bytearray(buffer) for buffer in blob.buffers])


# --- values ---------------------------------------------------------------------------------------


@given(VALUES)
def test_value_round_trip(value):
    assert loads(dumps(value)) == value


@given(st.lists(st.binary(max_size=20), max_size=4).map(lambda parts: b"__main__".join(parts)))
def test_text_that_looks_like_main_round_trips(value):
    assert loads(dumps([value, value.decode("latin1")])) == [value, value.decode("latin1")]


def test_nothing_heavy_is_imported_before_it_is_needed():
    out = run_as_main("""
        import sys
        from weft.protocol.values import exceptions, serialize, sizeof

        assert serialize.loads(serialize.dumps([1, "a" * 1000])) == [1, "a" * 1000]
        assert sizeof.sizeof([1]) > 0
        print(*{"cloudpickle", "numpy", "pandas", "pyarrow", "asyncio"} & set(sys.modules))
    """)
    assert out.split() == []


def test_plain_data_never_meets_cloudpickle(monkeypatch):
    monkeypatch.setattr(serialize, "cloudpickle_dumps", None)
    value = {"source": 'if __name__ == "__main__": main()', "xs": [1.5] * 1000}
    assert loads(dumps(value)) == value


@given(st.integers(0, 20_000))
def test_large_buffers_go_out_of_band_and_small_ones_do_not(n):
    array = np.arange(n, dtype=np.uint8)
    blob = dumps(array)
    assert isinstance(blob, Payload) == (n >= 4096)
    np.testing.assert_array_equal(loads(received(blob)), array)
    assert n <= blob_nbytes(blob) < n + 300


def test_numpy_is_never_copied():
    array = np.arange(10_000)
    blob = dumps({"a": [array]})
    assert isinstance(blob, Payload)
    assert np.shares_memory(np.frombuffer(blob.buffers[0], np.uint8), array)
    wire = received(blob)
    back = loads(wire)["a"][0]
    assert np.shares_memory(back, np.frombuffer(wire.buffers[0], np.uint8))


def test_arrays_are_writable_if_the_received_buffers_are():
    blob = dumps(np.zeros(10_000))
    assert loads(received(blob)).flags.writeable
    read_only = Payload(blob.data, [bytes(buffer) for buffer in blob.buffers])
    assert not loads(read_only).flags.writeable


def test_transposed_and_sliced_arrays_round_trip():
    array = np.arange(90_000).reshape(300, 300)
    for view in (array.T, array[::2, ::3], array[:, 5]):
        np.testing.assert_array_equal(loads(received(dumps(view))), view)
    blob = dumps(array.T)
    assert np.shares_memory(np.frombuffer(blob.buffers[0], np.uint8), array)


def test_pandas_is_not_copied():
    frame = pd.DataFrame({"a": np.arange(10_000), "b": np.arange(10_000) * 0.5})
    blob = dumps(frame)
    assert isinstance(blob, Payload)
    views = [np.frombuffer(buffer, np.uint8) for buffer in blob.buffers]
    for column in "ab":
        assert any(np.shares_memory(view, frame[column].to_numpy()) for view in views)
    pd.testing.assert_frame_equal(loads(received(blob)), frame)


def test_arrow_is_not_copied():
    array = pa.array(np.arange(10_000))
    blob = dumps(pa.table({"a": array}))
    assert isinstance(blob, Payload)
    sent = np.frombuffer(blob.buffers[0], np.uint8)
    assert np.shares_memory(sent, np.frombuffer(array.buffers()[1], np.uint8))
    wire = received(blob)
    back = loads(wire)
    assert back.column("a").to_pylist() == array.to_pylist()
    came = np.frombuffer(back.column("a").chunk(0).buffers()[1], np.uint8)
    assert np.shares_memory(came, np.frombuffer(wire.buffers[0], np.uint8))


def test_number_of_buffers_is_bounded():
    arrays = [np.full(1024, i) for i in range(2 * pickling.MAX_BUFFERS)]
    blob = dumps(arrays)
    assert len(blob.buffers) == pickling.MAX_BUFFERS
    back = loads(received(blob))
    assert [int(array[-1]) for array in back] == list(range(len(arrays)))


def test_buffers_before_a_function_are_counted_once():
    # Plain pickle gets as far as the array, then fails; cloudpickle starts over.
    array = np.arange(10_000)
    blob = dumps([array, lambda: 5])
    assert len(blob.buffers) == 1
    back, func = loads(received(blob))
    np.testing.assert_array_equal(back, array)
    assert func() == 5


def test_detached_payload_does_not_follow_the_object():
    array = np.zeros(10_000)
    attached = dumps(array)
    detached = attached.detached()
    assert detached == attached
    array[0] = 1
    assert detached != attached
    assert loads(detached)[0] == 0
    assert loads(attached)[0] == 1


def test_payload_equality_and_size():
    payload = Payload(b"abc", [b"1234", memoryview(np.arange(4, dtype=np.int64))])
    assert payload == Payload(b"abc", [bytearray(b"1234"), np.arange(4).tobytes()])
    assert payload != Payload(b"abc", [b"1234"])
    assert payload != Payload(b"abd", payload.buffers)
    assert payload != b"abc"
    assert payload.nbytes == 3 + 4 + 32
    with pytest.raises(TypeError):
        hash(payload)


def test_lambdas_closures_and_local_classes_round_trip():
    class Local:
        x = 5

    n = 3
    func, cls = loads(dumps([lambda x: x + n, Local]))
    assert func(4) == 7
    assert cls.x == 5


def run_as_main(script, *arguments):
    """Run a script as `__main__` of another process, and return its output as bytes."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def test_everything_of_main_travels_by_value():
    out = run_as_main("""
        import functools, sys
        from dataclasses import dataclass
        from weft.protocol.values import serialize

        FACTOR = 3

        @dataclass
        class Item:
            value: int
            def scaled(self):
                return scale(self.value)

        def scale(x):
            return x * FACTOR

        @functools.lru_cache(maxsize=7)
        def cached(x):
            return scale(x) + 1

        blob = serialize.dumps([Item(5), scale, functools.partial(scale, 6), cached])
        sys.stdout.buffer.write(blob)
    """)
    item, scale, partial, cached = loads(out)
    assert (item.value, item.scaled(), scale(2), partial(), cached(4)) == (5, 15, 6, 18, 13)
    assert cached.cache_parameters()["maxsize"] == 7


def test_modules_registered_by_value_travel_by_value(monkeypatch):
    module = types.ModuleType("unknown_elsewhere")
    exec("def f(x):\n    return x + 1\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "unknown_elsewhere", module)
    assert b"unknown_elsewhere" in dumps(module.f)
    assert functions.travels_as_name(module.f)
    cloudpickle.register_pickle_by_value(module)
    try:
        blob = dumps([module.f])
        assert not functions.travels_as_name(module.f)
        assert len(dumps_function(module.f)[1]) > 200
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "unknown_elsewhere")
    assert loads(blob)[0](1) == 2


# --- futures --------------------------------------------------------------------------------------


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_futures_at_any_depth_become_dependencies():
    a, b, c = Future("a"), Future("b"), Future("c")
    blob, keys = dumps_with_dependencies([b, {"x": (a, Box(deep=[c, b]))}, Future("a")])
    assert keys == ["b", "a", "c"]
    first, inner, again = loads_with_dependencies(blob, ["B", "A", "C"])
    assert (first, again) == ("B", "A")
    assert inner["x"][0] == "A"
    assert inner["x"][1].deep == ["C", "B"]


def test_value_of_a_dependency_is_shared_not_copied():
    blob, _ = dumps_with_dependencies([Future("a"), Future("a")])
    value = object()
    first, second = loads_with_dependencies(blob, [value])
    assert first is second is value


KEYS = st.sampled_from([f"k{i}" for i in range(8)])
TREES = st.recursive(
    st.integers() | KEYS.map(Future),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner),
    max_leaves=30,
)


def with_values(tree):
    """Replace futures by walking, which is the slow and obvious way."""
    if isinstance(tree, Future):
        return f"value of {tree.key}"
    if isinstance(tree, list):
        return [with_values(item) for item in tree]
    if isinstance(tree, dict):
        return {key: with_values(item) for key, item in tree.items()}
    return tree


def keys_in_order(tree):
    if isinstance(tree, Future):
        return [tree.key]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [key for item in items for key in keys_in_order(item)]


@given(TREES, st.booleans())
def test_futures_are_found_as_by_walking(tree, by_value):
    obj = [tree, (lambda: 0)] if by_value else [tree]
    blob, keys = dumps_with_dependencies(obj)
    assert keys == list(dict.fromkeys(keys_in_order(tree)))
    values = [f"value of {key}" for key in keys]
    assert loads_with_dependencies(blob, values)[0] == with_values(tree)


def test_future_outside_of_arguments_is_bound_to_the_reading_client():
    bound = []

    def binder(key):
        bound.append(key)
        return Future(f"bound {key}")

    for blob in (dumps([Future("a")]), pickle.dumps([Future("a")])):
        with pytest.raises(ClientClosed, match="'a'"):
            loads(blob)
        set_future_binder(binder)
        try:
            assert loads(blob)[0].key == "bound a"
        finally:
            set_future_binder(None)
    assert bound == ["a", "a"]


def test_future_captured_by_a_function_among_arguments_is_a_dependency_too():
    future = Future("a")
    blob, keys = dumps_with_dependencies([lambda: future])
    assert keys == ["a"]
    assert loads_with_dependencies(blob, ["A"])[0]() == "A"


def test_placeholders_without_values_raise_an_error_about_that():
    blob, _ = dumps_with_dependencies([Future("a"), Future("b")])
    with pytest.raises(InternalError, match="without their values"):
        loads(blob)
    with pytest.raises(InternalError, match="dependency 1, but came with 1"):
        loads_with_dependencies(blob, ["A"])


class DumpsInside:
    """Pickles its content apart, as a compressing container would."""

    def __init__(self, content):
        self.content = content

    def __reduce__(self):
        return loads, (dumps(self.content),)


class CollectsInside:
    def __init__(self, content):
        self.content = content

    def __reduce__(self):
        return loads_with_dependencies, dumps_with_dependencies(self.content)


def test_pickles_within_pickles_keep_to_themselves():
    blob, keys = dumps_with_dependencies([Future("a"), DumpsInside(Future("x")), Future("b")])
    assert keys == ["a", "b"]
    set_future_binder(lambda key: f"bound {key}")
    try:
        assert loads_with_dependencies(blob, ["A", "B"]) == ["A", "bound x", "B"]
    finally:
        set_future_binder(None)
    nested = [Future("a"), CollectsInside([Future("x"), Future("y")]), Future("b")]
    blob, keys = dumps_with_dependencies(nested)
    assert keys == ["a", "b"]
    assert loads_with_dependencies(blob, ["A", "B"]) == ["A", ["x", "y"], "B"]


class Fails:
    def __init__(self, when):
        self.when = when

    def __reduce__(self):
        if self.when == "dumps":
            raise ZeroDivisionError("dumps")
        return operator.truediv, (1, 0)


def test_failures_leave_nothing_behind():
    for call in (
        lambda: dumps_with_dependencies([Future("a"), Fails("dumps")]),
        lambda: dumps_arguments("f", (Future("a"), Fails("dumps")), {}),
        lambda: dumps_arguments_many("f", [(Future("a"), Fails("dumps"))]),
    ):
        with pytest.raises(SerializationError):
            call()
        assert serialize._local.collector is None
    blob, keys = dumps_with_dependencies([Future("a"), Fails("loads")])
    assert keys == ["a"]
    with pytest.raises(ZeroDivisionError):
        loads_with_dependencies(blob, ["A"])
    assert serialize._local.values is None


class Meets:
    """Waits, while it is pickled or unpickled, until the other thread is in the same place."""

    barrier = threading.Barrier(2, timeout=10)

    def __reduce__(self):
        Meets.barrier.wait()
        return Meets.read, ()

    @staticmethod
    def read():
        Meets.barrier.wait()


def test_threads_do_not_see_each_others_futures():
    results = {}

    def work(name):
        blob, keys = dumps_with_dependencies([Future(f"{name}0"), Meets(), Future(f"{name}1")])
        results[name] = keys, loads_with_dependencies(blob, [key.upper() for key in keys])

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for name in "ab":
        keys, (first, _, last) = results[name]
        assert keys == [f"{name}0", f"{name}1"]
        assert [first, last] == [f"{name.upper()}0", f"{name.upper()}1"]


# --- arguments ------------------------------------------------------------------------------------


@given(st.lists(VALUES, max_size=4).map(tuple), st.dictionaries(st.text(), VALUES, max_size=3))
def test_arguments_round_trip(args, kwargs):
    blob, keys = dumps_arguments("f", args, kwargs)
    assert keys == []
    assert loads_arguments(blob, []) == (args, kwargs)
    assert dumps_arguments_many("f", [args, args], kwargs) == ([blob, blob], [[], []])


def test_arguments_with_futures():
    blob, keys = dumps_arguments("f", (Future("a"), [Future("b")]), {"c": Future("a")})
    assert keys == ["a", "b"]
    assert loads_arguments(blob, ["A", "B"]) == (("A", ["B"]), {"c": "A"})
    blob, keys = dumps_arguments("f", (Future("a"),), {})
    assert loads_arguments(blob, [[{}, []]]) == (([{}, []],), {})


def test_arguments_with_the_places_of_dependencies():
    keys = {"a": 0, "b": 1}
    assert dumps_placed("f", [1, "x"], [], {}) == dumps_arguments("f", (1, "x"), {})
    blob, names = dumps_placed("f", [0, 5, 1, 0], [0, 2, 3], keys)
    assert names == ["a", "b"]
    assert loads_arguments(blob, ["A", "B"]) == (("A", 5, "B", "A"), {})
    blob, names = dumps_placed("f", [[1, 0, 1], 7], [-1], keys)
    assert loads_arguments(blob, ["A", "B"]) == ((["B", "A", "B"], 7), {})
    # Futures besides, and arguments that are pickled twice, because some travel by value.
    futures = [Future("b"), Future("c")]
    blob, names = dumps_placed("f", [1, futures, lambda: 3], [0], keys)
    assert names == ["a", "b", "c"]
    args, kwargs = loads_arguments(blob, ["A", "B", "C"])
    assert (args[:2], args[2](), kwargs) == (("B", ["B", "C"]), 3, {})
    array = np.arange(10_000)
    blob, names = dumps_placed("f", [0, array], [0], {"a": 0})
    assert isinstance(blob, Payload)
    assert (loads_arguments(blob, [5])[0][1] == array).all()
    with pytest.raises(SerializationError, match=r"argument args\[1\] of load"):
        dumps_placed("load", [0, LOCK], [0], {"a": 0})


def test_many_arguments_are_each_as_one():
    array = np.arange(10_000)
    rows = [(1,), (Future("a"), Future("b")), (array,), (Future("b"), lambda: 3), ("x" * 100,)]
    blobs, keys = dumps_arguments_many("f", iter(rows))
    assert keys == [[], ["a", "b"], [], ["b"], []]
    for row, blob, row_keys in zip(rows, blobs, keys, strict=True):
        one, one_keys = dumps_arguments("f", row, {})
        assert one_keys == row_keys
        assert type(one) is type(blob)
        args, kwargs = loads_arguments(blob, [key.upper() for key in row_keys])
        assert (len(args), kwargs) == (len(row), {})
    assert loads_arguments(blobs[1], ["A", "B"]) == (("A", "B"), {})
    np.testing.assert_array_equal(loads_arguments(received(blobs[2]))[0][0], array)


def test_error_in_the_iterable_of_rows_is_not_a_pickling_error():
    def rows():
        yield (1,)
        raise ZeroDivisionError("in user code")

    with pytest.raises(ZeroDivisionError):
        dumps_arguments_many("f", rows())


# --- objects that cannot be pickled ---------------------------------------------------------------


class Slotted:
    __slots__ = ("conn", "name")

    def __init__(self):
        self.name = "db"
        self.conn = threading.Lock()


def make_closure(conn):
    def load(path):
        return conn, path

    return load


LOCK = threading.Lock()


def class_with_a_lock():
    class Local:
        def before(self):
            return Local

        conn = LOCK

    return Local


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (LOCK, "x"),
        ([1, LOCK], "x[1]"),
        ((1, [2, {"a": LOCK}]), "x[1][1]['a']"),
        ({"a": 1, 5: LOCK}, "x[5]"),
        ({LOCK: 1}, "a key of x"),
        ({1, LOCK}, "an element of x"),
        (Box(name="db", conn=LOCK), "x.conn"),
        (Slotted(), "x.conn"),
        (Box(a=[0] * 1000 + [Box(conn=LOCK)] + [0] * 1000), "x.a[1000].conn"),
        (functools.partial(math.pow, 1, LOCK), "x.args[1]"),
        (make_closure(LOCK), "variable conn of x"),
        (make_closure(Box(a=LOCK)), "variable conn of x.a"),
        (Box(conn=LOCK).__init__, "x.__self__.conn"),
        (class_with_a_lock(), "x.conn"),
    ],
)
def test_culprit_is_named(obj, path):
    assert explain_unpicklable(obj, "x") == f"{path} (type _thread.lock)"


def test_error_at_submit_names_the_argument():
    with pytest.raises(SerializationError) as caught:
        dumps_arguments("load", (1, Box(conn=LOCK)), {})
    error = caught.value
    assert error.where == "argument args[1].conn of load"
    assert error.type_name == "_thread.lock"
    assert "cannot pickle '_thread.lock' object" in error.text
    assert isinstance(error.__cause__, TypeError)
    with pytest.raises(SerializationError, match=r"^argument conn\[0\] of load cannot be pickled"):
        dumps_arguments("load", (1,), {"conn": [LOCK]})
    with pytest.raises(SerializationError, match=r"argument args\[0\] of load \(call 2\)"):
        dumps_arguments_many("load", [(1,), (2,), (LOCK,), (3,)])
    with pytest.raises(SerializationError, match=r"^result\[1\] cannot be pickled"):
        dumps([1, LOCK], "result")


def test_error_has_only_that_of_cloudpickle_as_its_cause():
    def of_a_closure():
        return LOCK_IN_CLOSURE

    class Local:
        conn = LOCK

    LOCK_IN_CLOSURE = LOCK
    for failing in (
        lambda: dumps_arguments("f", (Box(conn=LOCK),), {}),
        lambda: dumps_arguments("f", (Local(),), {}),
        lambda: dumps_arguments_many("f", [(Local(),)]),
        lambda: dumps([Local()]),
        lambda: dumps_function(of_a_closure),
    ):
        with pytest.raises(SerializationError) as caught:
            failing()
        cause = caught.value.__cause__
        assert isinstance(cause, TypeError)
        assert cause.__context__ is None


def test_generator_is_named():
    with pytest.raises(SerializationError) as caught:
        dumps_arguments("f", ([0, 1], (i for i in range(2))), {})
    assert (caught.value.where, caught.value.type_name) == ("argument args[1] of f", "generator")


def test_error_raised_by_an_object_is_kept_as_cause():
    with pytest.raises(SerializationError) as caught:
        dumps([Fails("dumps")])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.where == "object[0]"


class OutOfMemory:
    def __reduce__(self):
        raise MemoryError


def test_out_of_memory_is_not_a_pickling_error():
    for call in (lambda: dumps(OutOfMemory()), lambda: dumps_function(OutOfMemory())):
        with pytest.raises(MemoryError):
            call()


def test_endless_nesting_is_an_error():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError, match="recursion"):
        dumps(deep)


def test_cycle_with_a_culprit_ends():
    box = Box(conn=LOCK)
    box.me = box
    assert explain_unpicklable([box], "x") == "x[0].conn (type _thread.lock)"


def test_of_open_files_only_text_that_is_read_travels(tmp_path):
    path = tmp_path / "data.txt"
    with open(path, "w") as writing, pytest.raises(SerializationError):
        dumps(writing)
    path.write_text("content")
    with open(path, "rb") as binary, pytest.raises(SerializationError):
        dumps(binary)
    with open(path) as reading:
        assert loads(dumps(lambda: reading))().read() == "content"


def test_the_middle_of_a_long_path_is_left_out():
    inner = {"a_rather_long_name": {"another_rather_long_name": {"lock": threading.Lock()}}}
    said = explain_unpicklable([inner], "x")
    path = said.removesuffix(" (type _thread.lock)")
    assert len(path) <= 60
    assert path.startswith("x[0]['a_rather_long_name'][")
    assert path.endswith("_rather_long_name']['lock']")
    assert " ... " in path


def test_function_that_cannot_be_pickled_names_the_variable():
    with pytest.raises(SerializationError) as caught:
        dumps_function(make_closure(LOCK))
    assert caught.value.where == "variable conn of function load"
    assert caught.value.type_name == "_thread.lock"


# --- functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "func", [json.dumps, len, math.sqrt, np.add, np.sum, dict, Box, functools.reduce]
)
def test_importable_function_is_pickled_once_as_its_name(func, monkeypatch):
    first = dumps_function(func)
    assert len(first[0]) == 16
    assert len(first[1]) < 100
    monkeypatch.setattr(functions, "dumps_plain", None)
    assert dumps_function(func) is first
    assert loads(first[1]) is func


def test_same_content_has_the_same_id():
    def make():
        return lambda x: x + 1

    assert dumps_function(make()) == dumps_function(make())
    assert dumps_function(lambda x: x + 2)[0] != dumps_function(make())[0]


def unchanged(func):
    """Return whether a second call gave the remembered pickle."""
    return dumps_function(func) is dumps_function(func)


def test_function_with_constants_only_is_pickled_once():
    n, text, nested, module, helper = 3, "a", (1, ("b", None)), math, json.dumps

    def func(x, y=2, *, z="z"):
        return n, text, nested, module.sqrt, helper, x, y, z

    assert unchanged(func)
    assert unchanged(functools.partial(func, 1, y=3))
    assert unchanged(functools.partial(max, 1))


def result(func):
    return loads(dumps_function(func)[1])()


def test_changed_closure_variable_is_noticed():
    n = 1

    def func():
        return n  # noqa: F821 - deleted below

    assert result(func) == 1
    n = 2
    assert result(func) == 2
    assert unchanged(func)
    del n
    dumps_function(func)


def test_changed_code_and_defaults_are_noticed():
    def func(x=1):
        return x

    assert result(func) == 1
    func.__defaults__ = (2,)
    assert result(func) == 2

    def other(x=1):
        return -x

    func.__code__ = other.__code__
    assert result(func) == -2


def test_list_changed_in_place_is_noticed():
    seen = [1]

    def func():
        return len(seen)

    assert result(func) == 1
    seen.append(2)
    assert result(func) == 2
    box = Box(n=1)
    assert result(lambda: box.n) == 1

    def by_object():
        return box.n

    assert result(by_object) == 1
    box.n = 2
    assert result(by_object) == 2


def test_changed_partial_and_callable_object_are_noticed():
    partial = functools.partial(dict, a=1)
    assert result(partial) == {"a": 1}
    partial.keywords["a"] = 2
    assert result(partial) == {"a": 2}

    class Model:
        n = 1

        def __call__(self):
            return self.n

    model = Model()
    assert result(model) == 1
    model.n = 2
    assert result(model) == 2
    assert result(model.__call__) == 2


def test_changed_variable_of_main_is_noticed_through_helpers():
    out = run_as_main("""
        from weft.protocol.values import serialize

        FACTOR = 3

        def scale(x):
            return x * FACTOR

        def task():
            return scale(2)

        def result():
            return serialize.loads(serialize.dumps_function(task)[1])()

        first = serialize.dumps_function(task)
        assert serialize.dumps_function(task) is first
        print(result())
        FACTOR = 4
        print(result())
        def scale(x):
            return x
        print(result())
    """)
    assert out.split() == [b"6", b"8", b"2"]


def test_remembered_functions_are_let_go():
    def make():
        return lambda: 5

    func = make()
    dumps_function(func)
    ident, gone = id(func), weakref.ref(func)
    assert ident in functions._entries
    del func
    gc.collect()
    assert gone() is None
    assert ident not in functions._entries


def test_number_of_remembered_functions_is_bounded():
    funcs = [eval(f"lambda: {i}") for i in range(functions._MAX_ENTRIES + 50)]
    for func in funcs:
        dumps_function(func)
    assert len(functions._entries) <= functions._MAX_ENTRIES
    assert result(funcs[0]) == 0


def test_recursive_functions_round_trip():
    def fib(n=9):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def even(n=8):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert result(fib) == 34
    assert result(even) is True
    assert unchanged(fib)
    assert unchanged(even)


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (json.dumps, "dumps"),
        (len, "len"),
        (lambda x: x, "lambda"),
        (functools.partial(functools.partial(json.dumps), indent=2), "dumps"),
        (Box, "Box"),
        (Box(x=1).__init__, "Box.__init__"),
        (dict.fromkeys, "fromkeys"),
        (np.add, "add"),
        (operator.itemgetter(0), "itemgetter"),
        (functools.lru_cache(json.dumps), "dumps"),
        (Box(__name__=5), "Box"),
        (type("N" * 100, (), {}), "N" * 60),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_are_named_for_display(func, name):
    assert function_name(func) == name


def test_classmethod_is_named_after_its_class():
    class Model:
        @classmethod
        def make(cls):
            return cls()

    assert function_name(Model.make) == "Model.make"
