"""A scheduler, and clients that call its objects. A module may have a `board` of its own."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board
from tests.scheduler.callers import Caller


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def new() -> Board:
    """A scheduler that follows another one, whose attempts were below 100."""
    board = Board(away_s=5.0)
    board.state.first_attempt = board.state.next_attempt = 100
    return board


@pytest.fixture
def alice(board: Board) -> Caller:
    return Caller(board, "alice")


@pytest.fixture
def bob(board: Board) -> Caller:
    return Caller(board, "bob")
