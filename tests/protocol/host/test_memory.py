"""memory.py: freed memory goes back to the system."""

from __future__ import annotations

import sys

import psutil
import pytest

from weft.protocol.host.memory import return_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_memory_is_returned_although_a_block_behind_it_lives():
    blocks = [bytes(4000) for _ in range(20_000)]
    last = blocks.pop()
    held = psutil.Process().memory_info().rss
    del blocks
    return_memory()
    assert psutil.Process().memory_info().rss < held - (40 << 20)
    assert len(last) == 4000
