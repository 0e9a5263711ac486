from __future__ import annotations

import sys

import numpy as np
import pytest

from weft.protocol.values.serialize import dumps, dumps_arguments, loads, loads_arguments
from weft.protocol.values.shared import (
    PackedArgument,
    SharedReference,
    own_memory,
    unpack,
)
from weft.protocol.values.sizeof import sizeof
from weft.protocol.wire.payload import Payload


def packed(value):
    blob = dumps(value)
    if isinstance(blob, Payload):
        buffers = blob.detached().buffers
        return PackedArgument(blob.data, buffers, [False] * len(buffers))
    return PackedArgument(blob, [], [])


@pytest.mark.parametrize(
    "value",
    [np.arange(10_000), [1, "two"], b"x" * 100_000, {"a": np.ones(5000), "b": np.zeros(3)}],
    ids=["array", "small", "bytes", "both"],
)
def test_a_packed_argument_stays_packed_when_it_is_pickled(value):
    moved = loads(dumps(loads(dumps(packed(value)))))
    assert type(moved) is PackedArgument
    np.testing.assert_equal(unpack(moved), value)


def test_the_pickle_of_a_packed_argument_is_not_copied():
    argument = packed(np.arange(10_000))
    blob = dumps(argument)
    assert len(blob.data) < 1000
    assert [buffer.obj for buffer in blob.buffers] == argument.buffers
    assert own_memory(blob).buffers[0] is argument.buffers[0]
    text = packed(["x"] * 10_000)
    assert own_memory(dumps(text)).buffers[0] is text.data


def test_a_packed_argument_holds_no_views():
    """Collected in a cycle, a view of a view is a crash."""
    moved = packed(["x"] * 10_000)
    for _ in range(2):
        blob = dumps(moved)
        moved = loads(Payload(bytes(blob.data), blob.detached().buffers))
        assert type(moved.data) in (bytes, bytearray)
    assert unpack(moved) == ["x"] * 10_000


def test_each_copy_is_private_and_can_be_written_to():
    argument = packed(np.arange(10_000))
    first, second = unpack(argument), unpack(argument)
    first[:] = 7
    assert second[5] == 5
    assert unpack(argument)[5] == 5


def test_read_only_buffers_are_not_copied():
    array = np.arange(10_000)
    array.flags.writeable = False
    blob = dumps(array)
    moved = loads(dumps(PackedArgument(blob.data, blob.detached().buffers, [True])))
    first, second = unpack(moved), unpack(moved)
    assert not first.flags.writeable
    assert np.shares_memory(first, second)
    np.testing.assert_equal(first, array)


def test_the_size_of_a_shared_argument_is_known():
    argument = packed(np.ones(100_000))
    assert 800_000 < argument.nbytes < 801_000
    assert argument.nbytes <= sizeof(argument) == sys.getsizeof(argument) < 801_000


def test_a_reference_is_a_dependency_and_becomes_a_copy():
    reference = SharedReference("data")
    blob, dependencies = dumps_arguments("f", (1, reference, reference), {"x": reference})
    assert dependencies == ["data"]
    (one, first, second), kwargs = loads_arguments(blob, [packed(np.arange(10_000))])
    assert one == 1
    assert first is second is kwargs["x"]
    assert first[5] == 5
