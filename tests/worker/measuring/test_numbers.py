"""The files in which the processes of a family write their numbers."""

from __future__ import annotations

import os

import pytest

from weft.worker.measuring.numbers import SUFFIX, SUPERVISOR, NumbersFile, read_numbers


def test_the_numbers_that_were_written_last_are_read(tmp_path):
    worker = NumbersFile(tmp_path / f"abc{SUFFIX}", "w-1", 3)
    supervisor = NumbersFile(tmp_path / f"{SUPERVISOR}{SUFFIX}", "ignored", 1)
    worker.write([1, 2, 3])
    worker.write([4, 5, 1 << 48])
    supervisor.write([7])
    assert read_numbers(tmp_path) == [
        (os.getpid(), "", [7]),
        (os.getpid(), "w-1", [4, 5, 1 << 48]),
    ]
    worker.close()
    supervisor.close()
    assert len(read_numbers(tmp_path)) == 2


def test_a_long_name_is_cut_between_two_characters(tmp_path):
    file = NumbersFile(tmp_path / f"abc{SUFFIX}", "ä" * 200, 1)
    file.close()
    assert read_numbers(tmp_path)[0].name == "ä" * 124


@pytest.mark.parametrize("content", [b"", b"half", bytes(256 + 3)])
def test_a_file_that_is_not_whole_is_passed_over(tmp_path, content):
    (tmp_path / f"abc{SUFFIX}").write_bytes(content)
    assert read_numbers(tmp_path) == []


def test_a_folder_that_is_gone_has_no_numbers(tmp_path):
    assert read_numbers(tmp_path / "gone") == []
