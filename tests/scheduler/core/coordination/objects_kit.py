"""Answers to calls of coordination objects, and what is left of them."""

from __future__ import annotations

from tests.scheduler.builders import Board
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.coordination.values import values_of

LEASE_S = 60.0
GRANTED = {"granted": True}
LATE = {"granted": False}


def is_empty(board: Board) -> bool:
    values = values_of(board.state)
    return not objects_of(board.state).records and not values.n_uses and not values.nbytes
