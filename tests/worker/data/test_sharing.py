"""Values that the store shares with other processes of the host."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

from weft.protocol.host.host_files import FileGone
from weft.protocol.values import serialize
from weft.protocol.values.host_blobs import SHARED_NBYTES, FileReference, HostBlob, read_reference
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.values.staying import Staying
from weft.worker.data import store as store_module
from weft.worker.data.spill_files import SpillFolder
from weft.worker.data.store import Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")

N = SHARED_NBYTES // 8
NBYTES = 8 * N


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let the values of these tests be large enough for one reader."""
    monkeypatch.setattr(store_module, "AT_ONCE_NBYTES", 0)


class Counted:
    """Counts how often one is pickled."""

    n = 0

    def __reduce__(self):
        Counted.n += 1
        return Counted, ()

    def __eq__(self, other):
        return isinstance(other, Counted)

    __hash__ = None


def stored(value=None, attempt=1):
    store = Store()
    store.put([attempt], [np.arange(N) if value is None else value], [NBYTES])
    return store


def read(reference):
    return read_reference(reference.packed(), is_kept=True)


def n_open():
    return len(os.listdir("/proc/self/fd"))


def test_a_value_is_shared_once_and_the_store_keeps_no_other_copy():
    store = stored()
    first, second = store.pack_near(1, "k"), store.pack_near(1, "k")
    assert first == second
    assert (store.nbytes, store.shared_nbytes) == (NBYTES, first.nbytes)
    mine = store.load(1)
    mine[0] = 7
    assert loads(read(first))[0] == 0
    assert store.load(1) is mine
    assert isinstance(store.pack(1, "k"), HostBlob)  # for readers of other hosts, without pickling


class Whole(Staying):
    """Its copies lack the lock."""

    def __init__(self, array, lock=None):
        self.array, self.lock = array, lock

    def __reduce__(self):
        return Whole, (self.array,)


def test_a_value_that_is_more_than_its_pickle_is_sent_and_stays():
    store = stored(Whole(np.arange(N), threading.Lock()))
    copy = loads(store.pack_near(1, "k"))
    assert (copy.lock, copy.array[-1]) == (None, N - 1)
    assert store.load(1).lock is not None
    assert store.shared_nbytes == 0


def test_a_dropped_value_closes_its_file():
    before = n_open()
    store = stored()
    reference = store.pack_near(1, "k")
    assert n_open() == before + 1
    blob = read(reference)
    assert n_open() == before + 2
    store.drop([1])
    assert (store.shared, store.nbytes) == ({}, 0)
    with pytest.raises(FileGone):
        read(reference)
    assert loads(blob)[-1] == N - 1
    del blob
    assert n_open() == before


def test_many_readers_at_once_get_the_same_file():
    store = stored()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(store.pack_near(1, "k"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(map(str, found)) == {str(found[0])}


def test_a_copy_that_came_as_a_file_is_passed_on_as_that_file():
    first = stored()
    store = Store()
    assert store.put_packed(5, read(first.pack_near(1, "k"))) > NBYTES
    assert store.load(5)[-1] == N - 1
    reference = store.pack_near(5, "k")
    assert reference.name.mark == first.pack_near(1, "k").name.mark
    first.drop([1])
    assert loads(read(reference))[-1] == N - 1
    store.put_packed(5, dumps("another"))
    assert store.shared == {}


def test_a_copy_that_was_sent_is_shared_when_it_is_asked_for():
    store = Store()
    store.put_packed(5, dumps(np.arange(N)))
    assert loads(read(store.pack_near(5, "k")))[-1] == N - 1
    assert store.load(5)[-1] == N - 1


def test_a_value_stays_where_it_is_if_there_is_no_room_for_two_or_it_is_not_of_arrays():
    store = stored()
    value = store.load(1)
    asked = []
    store.has_room = lambda nbytes: asked.append(nbytes)
    assert loads(store.pack_near(1, "k"))[-1] == N - 1
    assert asked == [NBYTES]
    assert store.load(1) is value
    for other in ([1] * 10, "x" * NBYTES, Counted()):
        store = stored(other)
        assert loads(store.pack_near(1, "k")) == other
        assert store.shared == {}
    assert Counted.n == 1  # it was pickled once
    assert store.pack_near(2, "k") is None


def test_a_value_that_was_dropped_while_it_was_copied_is_not_shared(monkeypatch):
    store = stored()

    def drop_meanwhile(value, what="object"):
        blob = serialize.dumps(value, what)
        store.drop([1])
        return blob

    monkeypatch.setattr("weft.worker.data.packing.dumps", drop_meanwhile)
    before = n_open()
    assert not isinstance(store.pack_near(1, "k"), FileReference)
    assert (store.shared, len(store), n_open()) == ({}, 0, before)


@pytest.fixture
def folder(tmp_path):
    folder = SpillFolder(tmp_path / "weft-x.spill", lambda _file: None)
    yield folder
    folder.close()


def test_a_shared_value_that_leaves_the_memory_closes_its_file_and_is_read_from_the_other(folder):
    store = stored()
    old = store.pack_near(1, "k")
    value, blob, file = store.to_write(1)
    assert file is None
    file = folder.write(1, None, blob)
    before = n_open()
    assert store.replace(1, value, file) == NBYTES
    del value, blob
    assert n_open() == before - 1
    with pytest.raises(FileGone):
        read(old)
    assert (store.shared, store.nbytes, store.spilled_nbytes) == ({}, 0, NBYTES)
    reference = store.pack_near(1, "k")
    assert reference.name.path.endswith(str(file.path))
    found = loads(read(reference))
    found[0] = 7
    assert (store.load(1) == np.arange(N)).all()
    assert store.pack_near(1, "k") == reference  # also when the value is in memory again
    assert store.shared == {}


def test_a_file_on_disk_is_checked_before_others_map_it(folder):
    store = stored()
    value, blob, _ = store.to_write(1)
    file = folder.write(1, value, blob)
    store.replace(1, value, file)
    with open(file.path, "r+b") as changed:
        changed.seek(1000)
        changed.write(b"\xff" * 10)
    assert store.pack_near(1, "k") is None
    assert store.pack(1, "k") is None
    assert file.lost


def test_a_value_that_is_not_so_large_is_sent_once_and_shared_with_the_second_reader(monkeypatch):
    monkeypatch.setattr(store_module, "AT_ONCE_NBYTES", NBYTES + 1)
    kept = stored()
    value = kept.load(1)
    assert loads(kept.pack_near(1, "k"))[-1] == N - 1
    assert kept.load(1) is value
    assert isinstance(kept.pack_near(1, "k"), FileReference)
    kept.drop([1])
    kept.put([1], [value], [NBYTES])  # nothing is known of the first one
    assert not isinstance(kept.pack_near(1, "k"), FileReference)
