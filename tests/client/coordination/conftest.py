"""Two clients of one cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft import Client


@pytest.fixture
def client(cluster: weft.LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


@pytest.fixture
def other(cluster: weft.LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as other:
        yield other
