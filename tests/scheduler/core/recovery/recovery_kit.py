"""The epoch before a recovery, and the lines about it."""

from __future__ import annotations

from weft.scheduler.core.actions import LogLine

from ...builders import Board

#: An epoch before that of the board, and attempts of it.
BEFORE = 5


def lines(board: Board) -> list[str]:
    return [action.text for action in board.actions if isinstance(action, LogLine)]
