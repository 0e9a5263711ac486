"""A scheduler and two clients that call its objects. A module may have a `board` of its own."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board
from tests.scheduler.callers import Caller


@pytest.fixture
def board() -> Board:
    return Board(client_lease_s=60.0)


@pytest.fixture
def alice(board: Board) -> Caller:
    return Caller(board, "alice")


@pytest.fixture
def bob(board: Board) -> Caller:
    return Caller(board, "bob")
