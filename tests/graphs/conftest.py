"""The rule for tests of graphs: threads and processes that are kept warm end with each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft


@pytest.fixture(autouse=True)
def nothing_kept_warm() -> Iterator[None]:
    """End the threads and processes that the `get` functions keep for the next call."""
    yield
    weft.threaded.shutdown()
    weft.multiprocessing.shutdown()
