"""Values in files: what is read is what was written, or nothing."""

from __future__ import annotations

import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.protocol.values.serialize import dumps, loads
from weft.worker.data import spill_files
from weft.worker.data.spill_files import DiskFailed, GoneValue, SpillFile, SpillFolder

LARGE = 3 << 20
READS = [SpillFile.read, SpillFile.view, SpillFile.reference]


class Files:
    """A folder, and what was given up in it."""

    def __init__(self, path):
        self.gone = queue.SimpleQueue()
        self.folder = SpillFolder(path, self.gone.put)

    def remove_unused(self):
        while not self.gone.empty():
            self.folder.removed(*self.gone.get())

    def on_disk(self):
        return os.listdir(self.folder.path)


@pytest.fixture
def files(tmp_path):
    files = Files(tmp_path / "w.spill")
    yield files
    files.folder.close()


def read_only():
    array = np.arange(1000)
    array.flags.writeable = False
    return array


class Own:
    """An object of a module that others can import, unlike the functions below."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    __hash__ = None


VALUES = {
    "array": np.arange(LARGE // 8),
    "bytes": b"x" * LARGE,
    "text": "ü" * LARGE,
    "objects": [Own(i) for i in range(2000)],
    "parts": {"a": np.ones(1000), "b": [np.zeros(5000), b"y" * 70_000], "c": 1},
    "nothing": None,
    "many small ones": [b"z" * 5000] * 100,
    "empty array": np.zeros(0),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_value_comes_back_as_it_was(files, name, is_packed):
    value = VALUES[name]
    blob = dumps(value) if is_packed else None
    file = files.folder.write(1, None if is_packed else value, blob)
    assert files.folder.nbytes == file.nbytes == os.path.getsize(file.path)
    back = loads(file.read())
    np.testing.assert_equal(back, value)
    np.testing.assert_equal(loads(file.read()), value)


def test_a_value_of_a_module_that_others_cannot_import_is_written_by_value(files):
    offset = 2
    file = files.folder.write(1, [b"x" * LARGE, lambda x: x + offset], None)
    blob = file.read()
    assert b"lambda" in bytes(blob.data)
    assert loads(blob)[1](1) == 3


def test_arrays_are_writable_if_they_were_and_writing_changes_no_file(files):
    file = files.folder.write(1, [np.zeros(LARGE // 8), read_only()], None)
    first, other = loads(file.read())
    first[:] = 1
    assert not other.flags.writeable
    assert not loads(file.read())[0].any()


def test_a_large_value_is_mapped_and_lives_longer_than_its_file(files):
    file = files.folder.write(1, np.arange(LARGE // 8), None)
    array = loads(file.read())
    assert not array.flags.owndata
    del file
    files.remove_unused()
    assert files.on_disk() == []
    assert array[-1] == LARGE // 8 - 1


def test_a_file_goes_with_the_last_reference_and_the_folder_at_the_end(files, tmp_path):
    kept, dropped = (files.folder.write(i, b"x" * LARGE, None) for i in range(2))
    del dropped
    files.remove_unused()
    assert files.on_disk() == [kept.path.name]
    assert files.folder.nbytes == kept.nbytes
    kept.remove()
    kept.remove()
    assert (files.on_disk(), files.folder.nbytes) == ([], 0)
    files.folder.write(1, b"", None)
    files.folder.close()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_a_killed_family_has_left_are_removed_by_the_next_worker_beside_them(tmp_path):
    left = [tmp_path / "weft-a" / "weft-1.spill", tmp_path / "weft-b" / "weft-2.spill"]
    others = [tmp_path / "weft-b" / "files", tmp_path / "mine" / "weft-3.spill"]
    for path in left + others:
        path.mkdir(parents=True)
        (path / "1-0").touch()
    living, new = (Files(tmp_path / "weft-b" / f"weft-{name}.spill") for name in ("4", "5"))
    living.folder.write(1, b"x", None)
    assert not any(path.exists() for path in left)
    file = new.folder.write(1, b"x", None)
    assert all(path.exists() for path in [*others, living.folder.path])
    assert loads(file.read()) == b"x"
    for files in (living, new):
        files.folder.close()


def cut(path):
    os.truncate(path, os.path.getsize(path) - 1)


def grow(path):
    with open(path, "ab") as file:
        file.write(b"x")


def change(path):
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def replace_by_a_link(path):
    other = path.with_suffix(".other")
    os.rename(path, other)
    path.symlink_to(other)


@pytest.mark.parametrize("harm", [cut, grow, change, os.unlink, replace_by_a_link])
@pytest.mark.parametrize("nbytes", [LARGE, 100_000])
@pytest.mark.parametrize("read", READS)
def test_a_file_that_is_not_what_was_written_is_never_used(files, harm, nbytes, read, caplog):
    file = files.folder.write(7, np.arange(nbytes // 8), None)
    harm(file.path)
    with pytest.raises(GoneValue) as caught:
        read(file)
    assert caught.value.attempt == 7
    assert file.path.name in str(caught.value)
    for again in READS:  # also if somebody puts it right
        with pytest.raises(GoneValue):
            again(file)
    (line,) = caplog.records
    assert (line.levelname, line.code) == ("WARNING", "result-lost")
    assert line.getMessage() == (
        f"the result in {file.path} is lost: {file.lost}; it is computed again if it is needed; "
        "look at this disk, and at what else writes there"
    )


def test_readers_that_find_a_lost_file_at_once_log_one_line(files, caplog):
    file = files.folder.write(7, np.arange(LARGE // 8), None)
    change(file.path)
    start = threading.Barrier(4)

    def read(reading):
        start.wait(20)
        with pytest.raises(GoneValue):
            reading(file)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, [*READS, SpillFile.read]))
    assert len(caplog.records) == 1


def test_a_file_that_went_with_its_folder_or_was_given_up_is_no_loss(files, caplog):
    given_up, kept = (files.folder.write(i, np.arange(LARGE // 8), None) for i in range(2))
    given_up.remove()
    files.folder.close()
    for file in (given_up, kept):
        with pytest.raises(GoneValue):
            file.read()
    assert not caplog.records


def test_a_file_is_checked_once_for_many_views_and_again_when_it_has_changed(files):
    file = files.folder.write(7, np.arange(LARGE // 8), None)
    views = [loads(file.view()) for _ in range(3)]
    assert [view[-1] for view in views] == [LARGE // 8 - 1] * 3
    assert files.folder.n_read == file.nbytes
    change(file.path)
    with pytest.raises(GoneValue):
        file.view()


def test_a_full_disk_is_reported_and_leaves_no_piece(files, monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    files.folder.write(1, b"", None)
    opened = os.open
    monkeypatch.setattr(
        spill_files.os, "open", lambda path, *args: opened(_full(path), os.O_WRONLY)
    )
    with pytest.raises(DiskFailed, match="No space left on device"):
        files.folder.write(2, np.zeros(LARGE), None)
    monkeypatch.undo()
    files.remove_unused()
    assert files.on_disk() == []


def _full(path):
    path.symlink_to("/dev/full")
    return path


def test_a_folder_that_cannot_be_made_is_a_failure_of_the_disk(tmp_path):
    (tmp_path / "file").touch()
    files = Files(tmp_path / "file" / "w.spill")
    with pytest.raises(DiskFailed, match="Not a directory"):
        files.folder.write(1, b"", None)


def test_a_folder_of_someone_else_is_not_used(tmp_path):
    (tmp_path / "w.spill").mkdir()
    with pytest.raises(DiskFailed, match="File exists"):
        Files(tmp_path / "w.spill").folder.write(1, b"", None)


class Unpicklable:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), OSError("a file of the user"), SystemExit(1)])
def test_a_value_that_cannot_be_pickled_raises_its_error_and_leaves_no_piece(files, error):
    with pytest.raises(type(error)):
        files.folder.write(1, [b"x" * LARGE, Unpicklable(error)], None)
    assert files.on_disk() == []
    assert files.folder.nbytes == 0


def test_the_times_of_writing_and_reading_are_kept(files):
    before = time.monotonic()
    file = files.folder.write(1, b"x" * 1000, None)
    file.read()
    (written, *first), (read, *second) = files.folder.times
    assert before <= written <= first[0] <= read <= second[0] <= time.monotonic()
    assert (first[1:], second[1:]) == ([file.nbytes, False], [file.nbytes, True])
