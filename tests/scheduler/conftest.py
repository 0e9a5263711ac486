"""A test of the scheduler's core knows all that an event has sent, if it looks at some of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduler.builders import Board


@pytest.fixture(autouse=True)
def nothing_else_was_sent() -> Iterator[None]:
    Board.made.clear()
    yield
    rests = [board.rest() for board in Board.made]
    Board.made.clear()
    assert not any(rests), f"sent as well: {rests}; look at them, or state it by `Board.rest`"
