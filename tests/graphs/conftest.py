"""The rule for tests of graphs: threads and processes that are kept warm end with each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft.graphs.blocks import running


@pytest.fixture(autouse=True)
def nothing_kept_warm() -> Iterator[None]:
    """End the threads and processes that the `get` functions keep for the next call."""
    yield
    weft.threaded.shutdown()
    weft.multiprocessing.shutdown()


@pytest.fixture(autouse=True)
def no_notes_stay():
    """Close the notes of blocks that threads of this process have run, as if processes did."""
    yield
    running._notes.clear()
