"""What uploads read: files and directories, whole, or an error that names what cannot be sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from weft.protocol.plugins import packing_files
from weft.protocol.plugins.packing_files import packed_directory, read_file, unpack_directory


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1")
    return package


def packed(folder: Path) -> bytes:
    return packed_directory(folder, frozenset({".git"}), ())


def unpacked(folder: Path, tmp_path: Path) -> Path:
    """Return what a directory is after it was packed and unpacked."""
    place = tmp_path / "place"
    unpack_directory(packed(folder), str(place))
    return place / folder.name


def test_modes_links_and_empty_directories_arrive(package, tmp_path):
    (package / "run.sh").write_text("echo")
    (package / "run.sh").chmod(0o555)
    (package / "empty" / "inner").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "linked.py").write_text("y = 2")
    (package / "sub").symlink_to(elsewhere)
    there = unpacked(package, tmp_path)
    assert os.access(there / "run.sh", os.X_OK)
    assert (there / "empty" / "inner").is_dir()
    assert (there / "sub" / "linked.py").read_text() == "y = 2"
    assert not (there / "sub").is_symlink()


def test_the_same_files_are_the_same_archive(package):
    first = packed(package)
    (package / "__init__.py").touch()
    assert packed(package) == first


def test_files_that_are_left_out_are_not_read(package, tmp_path):
    os.mkfifo(package / ".git")
    (package / "old.pyc").write_text("")
    assert [p.name for p in unpacked(package, tmp_path).iterdir()] == ["__init__.py"]


def test_a_named_pipe_is_refused_and_not_waited_for(package):
    pipe = package / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=f"{pipe} is no regular file"):
        packed(package)
    with pytest.raises(ValueError, match="is no regular file"):
        weft.UploadFile(pipe)


def test_a_broken_link_is_named(package):
    (package / "broken").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="broken"):
        packed(package)


def test_a_link_to_a_directory_above_is_refused(package):
    (package / "self").symlink_to(package)
    with pytest.raises(ValueError, match="self is a link to a directory that it is in"):
        packed(package)


def test_a_directory_that_is_too_large_is_refused_before_it_is_read_whole(package, monkeypatch):
    monkeypatch.setattr(packing_files, "MAX_RELAYED_BYTES", 3 << 20)
    large = package / "data"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # it takes no place on the disk
    with pytest.raises(ValueError, match=r"data has more than 3 MiB to be sent"):
        read_file(large)
    large.write_bytes(os.urandom(5 << 20))
    (package / "endless").symlink_to("/dev/zero")  # comes after "data"
    with pytest.raises(ValueError, match="package has more than"):
        packed(package)


def test_a_file_that_is_no_archive_is_refused_here(tmp_path):
    wrong = tmp_path / "wrong.zip"
    wrong.write_text("text")
    with pytest.raises(ValueError, match=r"wrong\.zip is no archive, which its suffix says"):
        weft.UploadFile(wrong)
