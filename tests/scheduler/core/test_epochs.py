"""epochs.py: the number of a start, and the members that the next scheduler expects."""

from __future__ import annotations

from weft.scheduler.core.epochs import STEP_NS, KeepMembers, Members, next_epoch

from ..builders import Board


def members(board: Board) -> list[Members]:
    return [action.members for action in board.actions if isinstance(action, KeepMembers)]


def test_an_epoch_is_the_clock_while_that_goes_on():
    assert next_epoch(1_000) == 1_000
    assert next_epoch(1_000, 0, 999) == 1_000


def test_an_epoch_leaves_room_for_attempts_if_the_clock_is_behind_a_known_one():
    assert next_epoch(1_000, 5_000, 4_000) == 5_000 + STEP_NS
    assert next_epoch(1_000, 1_000) == 1_000 + STEP_NS


def test_changed_members_are_put_out_with_a_tick_but_at_most_once_per_second():
    board = Board()
    board.worker("w"), board.client("alice")
    board.tick()
    assert members(board) == [Members(("id of w",), ("alice",))]
    board.client("bob")
    board.tick(0.9)
    assert members(board) == []
    board.tick(0.2)
    assert members(board) == [Members(("id of w",), ("alice", "bob"))]
    board.tick(5.0)
    assert members(board) == []
