"""buffers.py: memory for large buffers."""

from __future__ import annotations

import pickle
import random

import numpy as np
import psutil
import pytest

from weft.protocol.host import buffers
from weft.protocol.host.buffers import LARGE_NBYTES, copy_of, new_buffer


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
