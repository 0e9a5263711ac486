"""Functions: pickled once, and noticed as another one when something in them has changed."""

from __future__ import annotations

import functools
import gc
import json
import math
import operator
import weakref

import numpy as np
import pytest

from tests.protocol.values.values_kit import Box, run_as_main
from weft.protocol.values import functions
from weft.protocol.values.serialize import (
    dumps_function,
    function_name,
    loads,
)


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
