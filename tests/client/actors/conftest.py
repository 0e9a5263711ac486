"""A cluster in this process, and an actor that counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from tests.client.actors.actors_kit import Counter
from weft import Actor, Client


@pytest.fixture(scope="module")
def cluster() -> Iterator[weft.LocalCluster]:
    with weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: weft.LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


@pytest.fixture
def counter(client: Client) -> Actor:
    return client.submit(Counter, actor=True).result()
