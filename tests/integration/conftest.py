"""The cluster and the client that most of these tests need. A module may have its own."""

from __future__ import annotations

import pytest

import weft


@pytest.fixture(scope="module")
def cluster():
    """Two workers with one thread each, which have joined."""
    with weft.LocalCluster(n_workers=2, threads_per_worker=1) as started:
        with weft.Client(started) as client:
            client.wait_for_workers(2, timeout=60)
        yield started


@pytest.fixture
def client(cluster):
    with weft.Client(cluster) as client:
        yield client
