"""The client's core, connected; its state is checked at the end of each test."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, Listener, in_memory
from tests.outbox import nothing_else_was_sent
from weft.client.core.events import (
    Watch,
)
from weft.client.core.validate import validate

__all__ = ["nothing_else_was_sent"]


@pytest.fixture
def bench():
    bench = Bench()
    assert bench.connect() == []
    yield bench
    validate(bench.core)


@pytest.fixture
def large(bench):
    """Three large results, wanted."""
    columns = bench.columns(["a", "b", "c"])
    bench.watcher = Listener(wants_data=True)
    bench.do(columns, Watch(bench.watcher, bench.made[columns]))
    (bench.fetch,) = bench.acted_on(in_memory(["a", "b", "c"]))
    bench.states = bench.made[columns]
    return bench
