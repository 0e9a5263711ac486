"""buffers.py: memory for large buffers."""

from __future__ import annotations

import pickle
import random
from array import array

import numpy as np
import psutil
import pytest

from weft.protocol.host import buffers
from weft.protocol.host.buffers import LARGE_NBYTES, are_equal, copy_of, new_buffer


def test_new_memory_is_writable_and_not_taken_before_it_is_written_to():
    before = psutil.Process().memory_info().rss
    memory = new_buffer(1 << 30)
    assert (memory.nbytes, memory.readonly, memory[0], memory[-1]) == (1 << 30, False, 0, 0)
    assert psutil.Process().memory_info().rss - before < 50 << 20


@pytest.mark.parametrize("nbytes", [0, 1, LARGE_NBYTES - 1, LARGE_NBYTES, LARGE_NBYTES + 7])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_copy_is_equal_and_apart(nbytes, kind):
    data = bytearray(random.Random(nbytes).randbytes(nbytes))
    copy = copy_of(kind(data))
    assert bytes(copy) == data
    if nbytes:
        copy[0] ^= 255
        assert copy[0] != data[0]


def test_copy_of_an_array_is_copied_where_there_is_no_such_memory(monkeypatch):
    array = np.arange(LARGE_NBYTES // 4, dtype=float)
    mapped = copy_of(array.data)
    monkeypatch.setattr(buffers, "_PRIVATE", 0)
    with pytest.raises(MemoryError, match="this system gives no memory"):
        new_buffer(1)
    plain = copy_of(array.data)
    assert (type(mapped), type(plain)) == (memoryview, bytearray)
    assert bytes(mapped) == bytes(plain) == array.tobytes()


def test_array_is_unpickled_over_it():
    array = np.arange(LARGE_NBYTES // 4, dtype=float)
    parts = []
    data = pickle.dumps(array, 5, buffer_callback=lambda part: parts.append(part.raw()))
    again = pickle.loads(data, buffers=[copy_of(part) for part in parts])
    again[0] = 7
    assert (again[1:] == array[1:]).all()
    assert array[0] == 0


@pytest.mark.parametrize(
    ("others", "is_equal"),
    [
        ([b"a" * 200_000, bytearray(b"b")], True),
        ([memoryview(b"a" * 200_000), memoryview(b"b")], True),
        ([b"a" * 199_999 + b"x", b"b"], False),
        ([b"x" + b"a" * 199_999, b"b"], False),
        ([b"a" * 200_001, b""], False),
        ([b"a" * 200_000], False),
        ([b"b", b"a" * 200_000], False),
    ],
)
def test_buffers_are_equal_if_all_lengths_and_bytes_are(others, is_equal):
    assert are_equal([b"a" * 200_000, b"b"], others) is is_equal


def test_buffers_of_any_items_are_compared_byte_by_byte():
    numbers = array("d", [1.0, float("nan"), -0.0])
    assert are_equal([memoryview(numbers)], [numbers.tobytes()])
    assert not are_equal([memoryview(numbers)], [array("d", [1.0, float("nan"), 0.0]).tobytes()])
