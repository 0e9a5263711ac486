"""Values in files of the host: what is shared, and that it is what was sent."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.host.host_files import FileGone
from weft.protocol.values import host_blobs
from weft.protocol.values.host_blobs import SHARED_NBYTES, HostBlob, read_reference, share
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.values.shared import PackedArgument, own_memory, unpack
from weft.protocol.wire import plain
from weft.protocol.wire.payload import Payload

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")

N = SHARED_NBYTES // 8


def read(blob, *, is_kept=True):
    return read_reference(blob.reference.packed(), is_kept=is_kept)


def test_arrays_are_the_same_on_both_sides_and_writable_by_each_alone():
    value = {"a": np.arange(N), "b": [np.ones(3), np.arange(2000.0)], "c": "text"}
    shared = share(dumps(value))
    mine, other, third = loads(shared), loads(read(shared)), loads(read(shared))
    other["a"][5] = -1
    assert mine["a"][5] == third["a"][5] == value["a"][5] == 5
    for found in (mine, third):
        assert found["c"] == "text"
        assert (found["a"] == value["a"]).all()
        assert (found["b"][1] == value["b"][1]).all()


def test_an_array_that_was_read_only_is_read_only():
    array = np.arange(N)
    array.flags.writeable = False
    assert not loads(share(dumps(array))).flags.writeable


@given(
    st.binary(max_size=50),
    st.lists(st.integers(0, 200), max_size=8),
    st.integers(0, 255),
)
def test_every_blob_is_equal_when_it_is_read(data, sizes, byte):
    buffers = [bytes((byte + i + j) % 256 for j in range(size)) for i, size in enumerate(sizes)]
    payload = Payload(data, [*buffers, bytes(8 * (len(data) + 1))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_blobs, "SHARED_NBYTES", 1)
        shared = share(payload)
    assert isinstance(shared, HostBlob)
    assert shared.nbytes == payload.nbytes
    for blob in (shared, read(shared), read(read(shared))):
        assert blob == payload
        for buffer in blob.buffers:
            assert not memoryview(buffer).readonly
            memoryview(buffer)[:1] = b"" if not memoryview(buffer).nbytes else b"?"
    assert read(shared) == payload


@pytest.mark.parametrize(
    "value",
    [1, b"x" * SHARED_NBYTES, ["text"] * SHARED_NBYTES, np.arange(N // 2), [b"y" * 300] * 10],
    ids=["number", "bytes", "texts", "small", "pieces"],
)
def test_values_without_large_buffers_are_not_shared(value):
    assert share(dumps(value)) is None


def test_a_file_is_passed_on_if_it_is_kept():
    shared = share(dumps(np.arange(N)))
    kept, given_up = read(shared), read(shared, is_kept=False)
    assert share(kept) is kept
    assert given_up.reference is None
    reference = kept.reference.packed()
    del shared, given_up
    last = read_reference(reference, is_kept=False)
    del kept
    assert loads(last)[-1] == N - 1
    with pytest.raises(FileGone):
        read_reference(reference, is_kept=False)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xc1",
        plain.pack({}),
        plain.pack([]),
        plain.pack(["/proc/1/fd/1", "mark"]),
        plain.pack(["/proc/1/fd/1", 3, 4]),
        plain.pack(["/proc/1/fd/1", "mark", -4]),
        plain.pack(["/proc/1/fd/1", "mark", "4"]),
        plain.pack(["/proc/1/fd/1", "mark", True]),
        plain.pack(["/etc/passwd", "mark", 4]),
        plain.pack(["/proc/1/fd/1", "mark", *[1] * (1 << 16), 1]),
    ],
)
def test_a_wrong_name_is_refused(wrong):
    with pytest.raises(OSError):
        read_reference(wrong, is_kept=True)


def test_each_call_has_an_argument_of_its_own_and_shares_what_it_only_reads():
    array = np.arange(2 * N)
    blob = dumps(array)
    packed = PackedArgument(blob.data, blob.buffers, [False])
    shared = share(dumps(packed))
    assert own_memory(shared) is shared
    argument = loads(read(shared))
    first, second = unpack(argument), unpack(argument)
    first[:] = 0
    assert (second == array).all()
    assert (unpack(argument) == array).all()
    addresses = [found.__array_interface__["data"][0] for found in (first, second)]
    assert addresses[0] != addresses[1]
