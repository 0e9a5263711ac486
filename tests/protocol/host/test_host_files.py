"""Files in memory that other processes of the host map: made, opened, mapped and gone."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import subprocess
import sys

import pytest

from weft.protocol.host import host_files
from weft.protocol.host.host_files import (
    FileGone,
    FileName,
    HostFile,
    host_id,
    map_private,
    mark_of,
    offsets_of,
    open_file,
    own_copy,
    write_file,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")

PAGE = mmap.PAGESIZE


def content(file):
    return bytes(memoryview(map_private(file.fd, file.nbytes)))


def n_open():
    return len(os.listdir("/proc/self/fd"))


def test_parts_begin_where_arrays_may_and_are_what_was_written():
    parts = [b"pickle", bytearray(b"x" * 100), memoryview(b"abc" * 1000)]
    file = write_file(parts)
    offsets = offsets_of([6, 100, 3000])
    assert offsets == [0, 64, 192, 3192]
    found = content(file)
    assert len(found) == file.nbytes == 3192
    for begin, part in zip(offsets, parts, strict=False):
        assert found[begin : begin + len(part)] == bytes(part)


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("odd", [0, 77])
def test_a_large_file_is_the_same_with_large_pages(monkeypatch, is_given, odd):
    monkeypatch.setattr(host_files, "has_large_pages", lambda: is_given)
    parts = [b"pickle", os.urandom((4 << 20) + odd), bytearray(b"x" * PAGE)]
    file = write_file(parts)
    mapping = map_private(file.fd, file.nbytes)
    begins = offsets_of([len(part) for part in parts])
    for begin, part in zip(begins, parts, strict=False):
        assert mapping[begin : begin + len(part)] == part
    mapping.file = file
    view = memoryview(mapping)[begins[1] : begins[2]][: len(parts[1])]
    assert own_copy(view) == parts[1]
    with pytest.raises(OSError):  # it is sealed
        os.pwrite(file.fd, b"y", 0)


def test_large_pages_are_used_where_the_system_gives_them(monkeypatch, tmp_path):
    setting, overcommit = tmp_path / "shmem_enabled", tmp_path / "overcommit_memory"
    monkeypatch.setattr(host_files, "_SHARED_PAGES", str(setting))
    monkeypatch.setattr(host_files, "_OVERCOMMIT", str(overcommit))
    for text, promises, is_given in [
        ("always within_size [advise] never deny force", "0", True),
        ("[always] within_size advise never deny force", "1", True),
        ("always within_size [advise] never deny force", "2", False),  # SIGBUS if there is none
        ("always within_size advise [never] deny force", "0", False),
        ("always within_size advise never [deny] force", "0", False),
        (None, "0", False),  # a kernel without large pages
    ]:
        overcommit.write_text(f"{promises}\n")
        if text is None:
            setting.unlink()
        else:
            setting.write_text(text)
        host_files.has_large_pages.cache_clear()
        assert host_files.has_large_pages() is is_given, text
    host_files.has_large_pages.cache_clear()


def test_another_process_reads_the_file_by_its_name():
    file = write_file([b"some text"])
    code = (
        "import sys; from weft.protocol.host.host_files import *;"
        "file = open_file(FileName(sys.argv[1], sys.argv[2]), 9);"
        "print(host_id(), bytes(map_private(file.fd, 9)).decode())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, *file.name()], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == f"{host_id()} some text"
    assert host_id()


def test_a_file_that_was_written_cannot_be_changed_or_cut():
    file = write_file([b"x" * PAGE])
    with pytest.raises(OSError) as error:
        os.pwrite(file.fd, b"y", 0)
    assert error.value.errno == errno.EPERM
    for size in (0, 2 * PAGE):
        with pytest.raises(OSError):
            os.ftruncate(file.fd, size)
    with pytest.raises(OSError):
        mmap.mmap(file.fd, PAGE)  # shared and writable


def test_writing_to_a_mapping_changes_no_other_one():
    file = write_file([b"x" * 3 * PAGE])
    one, other = (map_private(file.fd, file.nbytes) for _ in range(2))
    one[0] = one[2 * PAGE] = ord("y")
    assert other[:] == b"x" * 3 * PAGE
    assert content(file) == b"x" * 3 * PAGE
    assert one[: PAGE + 1] == b"y" + b"x" * PAGE


def test_a_mapping_keeps_neither_a_descriptor_nor_its_file_open():
    before = n_open()
    file = write_file([b"x" * PAGE])
    mappings = [map_private(file.fd, PAGE) for _ in range(10)]
    assert n_open() == before + 1
    del file
    assert n_open() == before
    assert all(mapping[:1] == b"x" for mapping in mappings)


def test_a_view_is_mapped_again_as_it_is_in_the_file():
    file = write_file([b"a" * 100, bytes(range(256)) * 64])
    mapping = map_private(file.fd, file.nbytes)
    view = memoryview(mapping)[128 + PAGE : 128 + PAGE + 300]
    expected = bytes(view)
    assert own_copy(view) is None  # the file is not kept
    mapping.file = file
    view[0] ^= 255
    again = own_copy(view)
    assert bytes(again) == expected != bytes(view)
    again[1] ^= 255
    assert bytes(view)[1:] == expected[1:]
    third = own_copy(again[5:])  # of a mapping that begins elsewhere
    assert bytes(third) == expected[5:]
    assert own_copy(view.toreadonly()) is None
    assert own_copy(memoryview(bytearray(3))) is None


def test_a_file_that_was_closed_is_gone_and_its_number_is_of_no_other_file():
    file = write_file([b"x"])
    name, fd = file.name(), file.fd
    del file
    with pytest.raises(FileGone):
        open_file(name, 1)
    other = write_file([b"y"])
    assert other.fd == fd
    with pytest.raises(FileGone):
        open_file(name, 1)
    with pytest.raises(FileGone):
        open_file(other.name(), 2)  # of another length
    assert open_file(other.name(), 1).nbytes == 1


def test_a_file_on_disk_is_gone_when_it_was_changed(tmp_path):
    path = tmp_path / "value"
    path.write_bytes(b"text")
    fd = os.open(path, os.O_RDONLY)
    name = FileName(f"/proc/{os.getpid()}/root{path}", mark_of(fd))
    os.close(fd)
    assert content(open_file(name, 4)) == b"text"
    path.write_bytes(b"TEXT")
    os.utime(path, ns=(0, 0))
    with pytest.raises(FileGone):
        open_file(name, 4)
    path.unlink()
    with pytest.raises(FileGone):
        open_file(name, 4)


def test_nothing_else_is_opened(tmp_path):
    path = tmp_path / "value"
    path.write_bytes(b"text")
    os.mkfifo(tmp_path / "pipe")
    root = f"/proc/{os.getpid()}/root"
    for wrong in (str(path), "/proc/self/fd/0", f"/proc/{os.getpid()}/mem", f"{root}x"):
        with pytest.raises(OSError, match="no peer sends"):
            open_file(FileName(wrong, ""), 4)
    before = n_open()
    for other in (f"{root}{tmp_path}/pipe", f"{root}{tmp_path}", f"{root}/dev/zero"):
        with pytest.raises(FileGone):
            open_file(FileName(other, ""), 0)
    assert n_open() == before


def test_a_file_that_its_process_can_change_is_refused():
    fd = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    file = HostFile(fd, PAGE)
    before = n_open()
    with pytest.raises(OSError, match="could change"):
        open_file(file.name(), PAGE)
    assert n_open() == before


def test_files_of_others_are_no_reason_to_look_for_this_one(monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "of another user")

    file = write_file([b"x"])
    name = file.name()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        open_file(name, 1)


def test_half_of_the_descriptors_are_for_other_things(monkeypatch):
    file = write_file([b"x"])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2 * file.fd, 10**6))
    before = n_open()
    for call in (lambda: write_file([b"y"]), lambda: open_file(file.name(), 1)):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EMFILE
    assert n_open() == before


def test_without_proc_there_is_no_host(monkeypatch):
    def fail(*_):
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", fail)
    host_files.host_id.cache_clear()
    try:
        assert host_id() == ""
        with pytest.raises(OSError, match="no files"):
            write_file([b"x"])
    finally:
        monkeypatch.undo()
        host_files.host_id.cache_clear()


def test_a_file_too_short_is_not_mapped():
    file = write_file([b"x" * PAGE])
    with pytest.raises((OSError, ValueError)):
        map_private(file.fd, 2 * PAGE)
    with pytest.raises((OSError, ValueError)):
        map_private(file.fd, PAGE, PAGE)
