"""A worker's core; a test of it knows all that an event has sent, if it looks at some of it."""

from __future__ import annotations

import pytest

from tests.outbox import nothing_else_was_sent
from tests.worker.builders import Hands

__all__ = ["nothing_else_was_sent"]


@pytest.fixture
def worker() -> Hands:
    """One with a single thread."""
    return Hands()
