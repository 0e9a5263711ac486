from __future__ import annotations

import tempfile

import pytest

import weft
from tests.client.scripted import ScriptedScheduler
from weft.client import Client


@pytest.fixture
def scheduler():
    # Not tmp_path: the path of a Unix socket has about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="weft") as folder:
        scheduler = ScriptedScheduler(f"unix://{folder}/s")
        scheduler.start()
        yield scheduler
        scheduler.stop()


@pytest.fixture(scope="module")
def cluster():
    """A real scheduler with one worker. A module may have a cluster of its own."""
    with weft.LocalCluster(n_workers=1) as cluster:
        yield cluster


@pytest.fixture
def client(scheduler):
    with Client(scheduler) as client:
        yield client
