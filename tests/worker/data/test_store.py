"""The store: values as objects and packed, and their sizes."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest

from weft.protocol.errors import UnpicklableResult
from weft.protocol.values.serialize import loads
from weft.protocol.wire.messages import GetParts
from weft.protocol.wire.payload import Payload
from weft.worker.data.parts import pack_parts
from weft.worker.data.spill_files import SpillFolder
from weft.worker.data.store import Store


class Once:
    """An object that counts how often it is unpickled."""

    n = 0

    def __reduce__(self):
        return unpickled, ()


def unpickled():
    Once.n += 1
    return "value"


def test_a_copy_stays_packed_until_a_task_needs_it_and_is_unpickled_once():
    store = Store()
    Once.n = 0
    blob = pickle.dumps(Once())
    assert store.put_packed(1, blob) == len(blob)
    assert store.pack(1, "k") is blob
    assert Once.n == 0
    assert [store.load(1), store.load(1)] == ["value", "value"]
    assert Once.n == 1
    assert loads(store.pack(1, "k")) == "value"


def test_bytes_are_counted_for_each_attempt_and_in_all():
    store = Store()
    store.put([1, 2], ["a", "b"], [10, 20])
    assert store.put_packed(3, Payload(b"12", [b"345"])) == 5
    assert store.put_packed(4, b"") == 1
    assert (len(store), store.nbytes) == (4, 36)
    assert [store.nbytes_of(attempt) for attempt in (1, 2, 3, 4, 5)] == [10, 20, 5, 1, 0]
    store.put_packed(3, b"1234567")  # it came twice
    assert (len(store), store.nbytes) == (4, 38)
    store.load(2)
    assert store.nbytes == 38


def test_dropped_values_are_returned_and_unknown_attempts_ignored():
    store = Store()
    value = [1]
    store.put([1, 2], [value, "b"], [10, 20])
    garbage = store.drop([1, 9])
    assert garbage[0] is value
    assert (len(store), store.nbytes, store.nbytes_of(1)) == (1, 20, 0)
    assert store.pack(1, "k") is None
    store.drop([1, 2])
    assert (len(store), store.nbytes) == (0, 0)


def test_a_value_that_cannot_be_pickled_is_an_error_for_its_reader():
    store = Store()
    store.put([1], [[threading.Lock()]], [10])
    blob = store.pack(1, "k")
    assert blob is not None
    with pytest.raises(UnpicklableResult, match=r"result\[0\].*_thread\.lock"):
        loads(blob)


def test_a_value_whose_pickle_would_not_fit_into_memory_is_an_error_for_its_reader():
    limit = 64 << 20  # less than this process uses
    store = Store(limit)
    value = [b"x" * 1000] * 10
    store.put([1, 2], [value, value], [limit, 10])
    blob = store.pack(1, "k")
    assert blob is not None
    with pytest.raises(UnpicklableResult, match="its pickle, which is made beside it"):
        loads(blob)
    assert loads(store.pack(2, "k")) == value


# --- Values that leave the memory -----------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    folder = SpillFolder(tmp_path / "w.spill", lambda _file: None)
    yield folder
    folder.close()


class Leaving:
    """An object whose value leaves the memory while it is being unpickled."""

    leave = staticmethod(lambda: None)

    def __reduce__(self):
        return left_meanwhile, ()


def left_meanwhile():
    Leaving.leave()
    return "value"


def test_a_copy_that_leaves_while_a_task_unpickles_it_is_counted_where_it_is(folder, monkeypatch):
    store = Store()
    store.put_packed(1, pickle.dumps(Leaving()))
    packed, blob, _ = store.to_write(1)
    file = folder.write(1, None, blob)
    monkeypatch.setattr(Leaving, "leave", lambda: store.replace(1, packed, file))
    assert store.load(1) == "value"
    assert (store.nbytes, store.spilled_nbytes) == (0, len(blob))
    store.drop([1])
    assert (store.nbytes, store.spilled_nbytes) == (0, 0)


class Meanwhile:
    """A lock that is got when other threads have done something."""

    def __init__(self, act):
        self.act = act

    def __enter__(self):
        act, self.act = self.act, lambda: None
        act()

    def __exit__(self, *_error):
        pass


def test_a_value_that_was_read_and_has_left_again_while_a_thread_waits_for_it_is_read(folder):
    store = Store()
    store.put([1], ["value"], [10])
    file = folder.write(1, "value", None)
    store.replace(1, "value", file)

    def read_and_leave():
        value = store.load(1)
        assert store.replace(1, value, file, is_new=False) == 10

    file.lock = Meanwhile(read_and_leave)
    assert store.load(1) == "value"
    assert (store.nbytes, store.spilled_nbytes) == (10, 0)


def test_a_value_does_not_leave_for_a_file_that_was_given_up(folder):
    store = Store()
    store.put([1], ["value"], [10])
    value, _, _ = store.to_write(1)
    assert store.replace(1, value, folder.write(1, value, None)) == 10
    assert store.load(1) == "value"
    value, _, file = store.to_write(1)
    assert store.spare_file() is file
    file.remove()
    assert store.replace(1, value, file, is_new=False) == 0
    assert store.load(1) == "value"
    assert (store.nbytes, store.spilled_nbytes) == (10, 0)


def test_a_value_that_was_dropped_or_replaced_while_it_was_written_stays_so(folder):
    store = Store()
    store.put([1, 2], ["a", "b"], [10, 20])
    file = folder.write(1, "a", None)
    store.drop([1])
    assert store.replace(1, "a", file) == 0
    assert 1 not in store
    store.put_packed(2, pickle.dumps("other"))
    assert store.replace(2, "b", folder.write(2, "b", None)) == 0
    assert store.load(2) == "other"
    assert store.spilled_nbytes == 0


# --- Parts of values that have left ---------------------------------------------------------------


def leave(store, folder, attempt):
    value, blob, _ = store.to_write(attempt)
    file = folder.write(attempt, None if blob is not None else value, blob)
    assert store.replace(attempt, value, file)


def test_a_value_stays_in_its_file_while_parts_of_it_are_read(folder):
    store = Store()
    arrays = [np.arange(10_000) + i for i in range(3)]
    store.put([1, 2, 3], arrays, [80_000] * 3)
    leave(store, folder, 1)
    leave(store, folder, 2)
    for start in range(0, 10_000, 1000):
        box = GetParts(request=1, attempts=[1, 2, 3], numbers=[start, start + 1000])
        (blob,) = pack_parts(store, box, "worker").results
        for array, part in zip(arrays, loads(blob), strict=True):
            np.testing.assert_array_equal(part, array[start : start + 1000])
    assert (store.nbytes, store.spilled_nbytes) == (80_000, 160_000)
    assert store.load(1)[7] == 7
    assert (store.nbytes, store.spilled_nbytes) == (160_000, 80_000)


class Heavy:
    """A value that has no buffers, so it is in memory while it is read."""

    n_alive = most_alive = 0

    def __init__(self, text):
        self.text = text
        Heavy.n_alive += 1
        Heavy.most_alive = max(Heavy.most_alive, Heavy.n_alive)

    def __del__(self):
        Heavy.n_alive -= 1

    def __reduce__(self):
        return Heavy, (self.text,)

    @classmethod
    def __weft_parts__(cls, values, part):
        return [value.text[part] for value in values]


def test_values_that_files_do_not_map_are_read_one_after_the_other(folder):
    store = Store()
    for attempt in range(1, 9):
        store.put([attempt], [Heavy(chr(64 + attempt) * 100_000)], [100_000])
        leave(store, folder, attempt)
    assert Heavy.n_alive == 0
    Heavy.most_alive = 0
    parts = GetParts(request=1, attempts=[*range(1, 9)], numbers=[5])
    (blob,) = pack_parts(store, parts, "worker").results
    assert "".join(loads(blob)) == "ABCDEFGH"
    assert Heavy.n_alive == 0
    assert Heavy.most_alive <= 2  # the next is read before the last one goes


def test_a_value_whose_file_is_gone_is_missing_for_readers_of_parts(folder):
    store = Store()
    store.put([1, 2], [list(range(10)), list(range(10))], [10, 10])
    leave(store, folder, 2)
    os.unlink(store.files[2].path)
    answer = pack_parts(store, GetParts(request=1, attempts=[1, 2, 3], numbers=[4]), "worker")
    assert answer.missing == ["3"]
    answer = pack_parts(store, GetParts(request=1, attempts=[1, 2], numbers=[4]), "worker")
    assert (answer.missing, answer.keys) == (["2"], [])
