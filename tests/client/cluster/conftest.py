"""Workers in processes of their own, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft


@pytest.fixture(scope="module")
def two_processes() -> Iterator[weft.LocalCluster]:
    with weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster:
        cluster.wait_for_workers(2)
        yield cluster


@pytest.fixture
def apart(two_processes: weft.LocalCluster) -> Iterator[weft.Client]:
    """Return a client of workers in processes of their own."""
    with weft.Client(two_processes) as client:
        yield client
