from __future__ import annotations

import pytest

import weft


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def executor(client):
    with client.get_executor() as executor:
        yield executor
