"""A worker with sockets, registered with a scheduler that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.server_kit import Cluster, running
from weft.protocol.trust.security import Security, new_cluster_id, new_token


@pytest.fixture
def security() -> Security:
    return Security(token=new_token().encode(), cluster_id=new_cluster_id())


@pytest.fixture
async def cluster(security: Security, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running("tcp://127.0.0.1:0", security, tmp_path) as cluster:
        yield cluster
