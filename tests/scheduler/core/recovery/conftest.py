"""A scheduler with a past, and one that follows another."""

from __future__ import annotations

import pytest

from ...builders import Board


@pytest.fixture
def board() -> Board:
    return Board(away_s=5.0)


@pytest.fixture
def new() -> Board:
    """A scheduler that follows another one, whose attempts were below 100."""
    board = Board(away_s=5.0)
    board.state.first_attempt = board.state.next_attempt = 100
    return board
