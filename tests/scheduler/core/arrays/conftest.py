"""Fixtures of the tests of arrays: a small window, and a board with a disk."""

from __future__ import annotations

import pytest

from weft.scheduler.core.arrays import running

from ...builders import Board
from .disk import Disk


@pytest.fixture(autouse=True)
def small_window(monkeypatch):
    monkeypatch.setattr(running, "WINDOW", 4)
    monkeypatch.setattr(running, "LEAST_WINDOW", 2)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def board(disk) -> Board:
    return disk.board()
