"""A `weft.ThreadPool`, and a gate that holds up its tasks."""

from __future__ import annotations

import threading

import pytest

from tests.graphs.stepping_kit import (
    LIMIT_S,
)
from weft.graphs.pool.thread_pool import ThreadPool


@pytest.fixture
def pool():
    with ThreadPool(2) as pool:
        yield pool


@pytest.fixture
def gate(pool):
    """Keep both threads of `pool` busy until the event is set."""
    gate = threading.Event()
    started = threading.Barrier(3)

    def block():
        started.wait(LIMIT_S)
        gate.wait(LIMIT_S)

    for _ in range(2):
        pool.submit(block)
    started.wait(LIMIT_S)
    yield gate
    gate.set()
