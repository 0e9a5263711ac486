"""A scheduler that waits for workers that are away."""

from __future__ import annotations

import pytest

from ...builders import Board


@pytest.fixture
def board() -> Board:
    return Board(away_s=5.0)
