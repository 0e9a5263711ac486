"""memory.py: freed memory goes back to the system."""

from __future__ import annotations

import mmap
import os
import sys

import psutil
import pytest

from weft.protocol.host.memory import return_memory, taken_nbytes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_memory_is_returned_although_a_block_behind_it_lives():
    blocks = [bytes(4000) for _ in range(20_000)]
    last = blocks.pop()
    held = psutil.Process().memory_info().rss
    del blocks
    return_memory()
    assert psutil.Process().memory_info().rss < held - (40 << 20)
    assert len(last) == 4000


def test_a_process_is_measured_by_its_number_and_one_that_is_gone_is_0():
    assert taken_nbytes(os.getpid()) == pytest.approx(taken_nbytes(), rel=0.1)
    assert taken_nbytes(1 << 30) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not tell")
def test_pages_of_mapped_files_count_when_they_were_written_to(tmp_path):
    n = 64 << 20
    path = tmp_path / "file"
    path.write_bytes(bytes(n))
    before = taken_nbytes()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), n, access=mmap.ACCESS_COPY) as mapped:
        assert mapped.find(b"x") == -1  # all of it was read
        assert taken_nbytes() - before < n / 4
        mapped[:] = bytes(n)
        assert taken_nbytes() - before > n / 2
