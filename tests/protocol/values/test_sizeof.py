"""Sizes are about right, cheap, and never an exception."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.values import sizeof as module
from weft.protocol.values.sizeof import sizeof

NBYTES = 80_000
ARRAY = np.arange(NBYTES // 8)


@pytest.mark.parametrize("atom", [0, 10**100, 1.5, True, None, "text", b"bytes", 1j, int, range(9)])
def test_atom_is_as_large_as_python_says(atom):
    assert sizeof(atom) == sys.getsizeof(atom)


class Holder:
    def __init__(self, value):
        self.value = value


class SlotHolder:
    __slots__ = ("empty", "value")

    def __init__(self, value):
        self.value = value


@dataclass
class Record:
    value: object


class Array(np.ndarray):
    pass


class Table(pd.DataFrame):
    pass


@pytest.mark.parametrize(
    "obj",
    [
        ARRAY,
        ARRAY.reshape(100, -1).T,
        ARRAY.view(Array),
        memoryview(ARRAY),
        bytes(NBYTES),
        bytearray(NBYTES),
        [ARRAY],
        {"a": ARRAY},
        {1, "x" * NBYTES},
        deque([ARRAY]),
        OrderedDict(a=ARRAY),
        defaultdict(list, a=ARRAY),
        [[(ARRAY,)]],
        Holder(ARRAY),
        SlotHolder(ARRAY),
        Record([ARRAY]),
        pd.Series(ARRAY),
        pd.Index(ARRAY),
        pd.DataFrame({"a": ARRAY}),
        Table({"a": ARRAY}),
        pa.array(ARRAY),
        pa.table({"a": ARRAY}),
        pa.py_buffer(bytes(NBYTES)),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_large_data_is_found_wherever_it_is(obj):
    assert NBYTES <= sizeof(obj) < NBYTES * 1.2


def test_objects_behind_pointers_count():
    texts = ["x" * 1000 + str(i) for i in range(100)]
    for obj in (
        np.array(texts, dtype=object),
        np.array(texts, dtype=object)[::2].repeat(2),
        pd.Series(texts, dtype=object),
        pd.DataFrame({"a": pd.Series(texts, dtype=object)}),
        pd.Index(texts, dtype=object),
    ):
        assert 100_000 < sizeof(obj) < 120_000


def test_list_of_unequal_items_is_sampled_over_its_whole_length():
    obj = [b""] * 500 + [bytes(1000)] * 500
    assert 450_000 < sizeof(obj) < 700_000


class Counting:
    looked_at = 0

    def __sizeof__(self):
        Counting.looked_at += 1
        return 100


def test_at_most_a_few_hundred_objects_are_looked_at():
    Counting.looked_at = 0
    size = sizeof([[[[Counting()] * 50] * 50] * 50 for _ in range(50)])
    assert size > 50 * 50
    assert Counting.looked_at == 0  # objects below the third level are not visited
    assert sizeof([[Counting() for _ in range(50)] for _ in range(1000)]) > 50 * 1000 * 100
    assert 0 < Counting.looked_at <= 24 * 6


def test_cycle_ends():
    cycle: list[object] = []
    cycle.append(cycle)
    assert sizeof(cycle) > 0


class Hostile:
    def __sizeof__(self):
        raise RuntimeError("no")


class Negative:
    def __sizeof__(self):
        return -5


class HostileAttributes:
    def __getattribute__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize("cls", [Hostile, Negative, HostileAttributes])
def test_hostile_objects_have_some_size(cls):
    for obj in (cls(), [cls()], {"a": cls()}, Holder(cls())):
        assert sizeof(obj) >= 1


def test_sizes_are_numbers_of_which_the_sum_fits_into_a_message():
    class Boastful:
        def __sizeof__(self):
            return sys.maxsize - 100

    assert sizeof(Boastful()) == sizeof([Boastful() for _ in range(1000)]) == 1 << 48


def test_many_types_do_not_pile_up():
    for i in range(2 * module._MAX_TYPES):
        assert sizeof(type(f"T{i}", (), {})()) > 0
    assert len(module._measures) <= module._MAX_TYPES
    assert sizeof([1, 2]) == sys.getsizeof([1, 2]) + 2 * sys.getsizeof(1)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(ANYTHING)
def test_size_is_positive_and_at_least_the_shell(obj):
    assert sizeof(obj) >= sys.getsizeof(obj) > 0
