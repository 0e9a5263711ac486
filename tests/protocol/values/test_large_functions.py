"""Functions with much data in them: every change is noticed, and equal data is hashed once."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from weft.protocol.values import large_functions
from weft.protocol.values.large_functions import LargeFunctions
from weft.protocol.values.serialize import dumps_function, loads


class Model:
    def __init__(self, weights):
        self.weights = weights

    def total(self):
        return float(self.weights.sum())


def reads_array():
    array = np.zeros(100_000)

    def change():
        array[99_999] = 7.0

    return lambda: float(array.sum()), change


def reads_list():
    rows = [0] * 100_000
    return lambda: sum(rows), lambda: rows.append(7)


def reads_dict():
    table = dict.fromkeys(range(30000), 0)
    return lambda: sum(table.values()), lambda: table.update({5: 7})


def reads_bytearray():
    data = bytearray(100_000)

    def change():
        data[0] = 7

    return lambda: sum(data), change


def is_bound_method():
    model = Model(np.zeros(100_000))

    def change():
        model.weights[5] = 7.0

    return model.total, change


def is_partial():
    array = np.zeros(100_000)

    def change():
        array[5] = 7.0

    return functools.partial(np.sum, array), change


@pytest.mark.parametrize(
    "make",
    [reads_array, reads_list, reads_dict, reads_bytearray, is_bound_method, is_partial],
)
def test_change_in_place_is_noticed(make):
    large = LargeFunctions()
    func, change = make()
    first = dumps_function(func, large)
    assert loads(first[1])() == 0
    assert dumps_function(func, large) is first
    change()
    second = dumps_function(func, large)
    assert second[0] != first[0]
    assert loads(second[1])() == 7


def test_every_byte_is_compared(monkeypatch):
    monkeypatch.setattr(large_functions, "_PIECE_NBYTES", 1000)
    large = LargeFunctions()
    array = np.zeros(20_000, np.uint8)
    other = np.zeros(70_001, np.uint8)

    def func():
        return array, other

    seen = {dumps_function(func, large)[0]}
    for buffer in (array, other):
        for place in (0, 999, 1000, 15_000, buffer.size - 1):
            buffer[place] = 1
            seen.add(dumps_function(func, large)[0])
    assert len(seen) == 11
    assert dumps_function(func, large) is dumps_function(func, large)


def test_buffers_that_contain_their_own_headers_are_found():
    large = LargeFunctions()
    nbytes = 80_000
    header = np.frombuffer((b"\x96" + nbytes.to_bytes(8, "little")) * 9000, np.uint8)[:nbytes]
    frozen = header.copy()
    frozen.flags.writeable = False
    arrays = [header.copy(), frozen, header.copy(), np.zeros(nbytes, np.uint8)]

    def func():
        return arrays

    first = dumps_function(func, large)
    assert dumps_function(func, large) is first
    for got, sent in zip(loads(first[1])(), arrays, strict=True):
        assert np.array_equal(got, sent)
        assert got.flags.writeable == sent.flags.writeable


def test_equal_content_of_another_function_is_not_hashed_again(monkeypatch):
    large = LargeFunctions()
    array = np.ones(100_000)

    def make():
        return lambda: array.sum()

    first = dumps_function(make(), large)
    monkeypatch.setattr(large_functions, "_identified", None)
    assert dumps_function(make(), large) is first
    with pytest.raises(TypeError):  # the name is gone, so this one was not found
        dumps_function(lambda: array.mean(), large)


def test_same_content_has_the_same_id_with_and_without_what_is_kept():
    array = np.ones(3_000_000)

    def func():
        return array.sum()

    assert dumps_function(func) == dumps_function(func, LargeFunctions())


def test_several_objects_of_one_class_are_kept_apart():
    large = LargeFunctions()
    models = [Model(np.full(50_000, float(i))) for i in range(5)]
    first = [dumps_function(model.total, large) for model in models]
    again = [dumps_function(model.total, large) for model in models]
    assert all(map(lambda a, b: a is b, first, again))
    assert [loads(blob)() for _, blob in first] == [50_000 * i for i in range(5)]


def test_kept_bytes_are_bounded_but_the_latest_function_is_kept(monkeypatch):
    monkeypatch.setattr(large_functions, "MAX_KEPT_NBYTES", 1_000_000)
    large = LargeFunctions()
    array = np.zeros(50_000)

    def func():
        return array

    for i in range(5):
        array[0] = i
        dumps_function(func, large)
    assert large.nbytes <= 1_000_000
    array = np.zeros(500_000)
    first = dumps_function(func, large)
    assert dumps_function(func, large) is first
    assert large.nbytes == len(first[1])


def test_data_that_cannot_change_is_trusted(monkeypatch):
    large = LargeFunctions()
    data = bytes(1_000_000)

    def func():
        return len(data)

    first = dumps_function(func, large)
    monkeypatch.setattr(large_functions.LargeFunctions, "find", None)
    assert dumps_function(func, large) is first


def test_large_functions_are_reported_each_time_that_they_are_looked_at():
    reported = []
    large = LargeFunctions(lambda func, nbytes: reported.append((func, nbytes)), 1_000_000)
    array = np.zeros(200_000)
    data = bytes(2_000_000)

    def changeable():
        return array

    def frozen():
        return data

    for _ in range(3):
        dumps_function(changeable, large)
        dumps_function(frozen, large)
        dumps_function(lambda: 1, large)
    assert [func for func, _ in reported] == [changeable, frozen, changeable, changeable]
    assert all(nbytes > 1_000_000 for _, nbytes in reported)
