"""Objects that cannot be pickled: the error names the part that is the cause."""

from __future__ import annotations

import functools
import math
import threading

import pytest

from tests.protocol.values.values_kit import LOCK, Box, Fails
from weft.protocol.errors import SerializationError
from weft.protocol.values.serialize import (
    dumps,
    dumps_arguments,
    dumps_arguments_many,
    dumps_function,
    explain_unpicklable,
    loads,
)


class Slotted:
    __slots__ = ("conn", "name")

    def __init__(self):
        self.name = "db"
        self.conn = threading.Lock()


def make_closure(conn):
    def load(path):
        return conn, path

    return load


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
