"""Values, and arguments with futures: there and back, uncopied."""

from __future__ import annotations

import pickle
import sys
import threading
import types
from collections import namedtuple

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.values.values_kit import LOCK, Box, Fails, run_as_main
from weft.protocol.errors import ClientClosed, InternalError, SerializationError
from weft.protocol.values import functions, pickling, serialize
from weft.protocol.values.serialize import (
    dumps,
    dumps_arguments,
    dumps_arguments_many,
    dumps_function,
    dumps_futures,
    dumps_placed,
    dumps_with_dependencies,
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


@pytest.mark.parametrize("n", [1, 2, 3, serialize.MAX_LONE_FUTURES])
def test_different_futures_alone_need_no_pickling(n):
    blob, keys = dumps_arguments("f", tuple(Future(str(i)) for i in range(n)), {})
    assert blob == dumps_futures(n)
    assert len(keys) == n
    values = [[i] for i in range(n)]
    args, kwargs = loads_arguments(blob, values)
    assert kwargs == {}
    assert all(arg is value for arg, value in zip(args, values, strict=True))
    assert loads_with_dependencies(blob, values) == args


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
