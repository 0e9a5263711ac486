"""A cluster with pages, and its client. A module may have its own."""

from __future__ import annotations

import pytest

import weft
from weft.deploy.local.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with weft.Client(cluster) as client:
        yield client


@pytest.fixture
def url(cluster):
    return cluster.dashboard_link.partition("?")[0]
