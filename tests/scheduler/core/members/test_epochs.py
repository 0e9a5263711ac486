"""epochs.py: the number of a start, and the members that the next scheduler expects."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import ROLE_LEVELS, Role
from weft.scheduler.core.members.epochs import (
    STEP_NS,
    GiveWay,
    KeepMembers,
    Members,
    StartOver,
    is_proved,
    next_epoch,
    proof_of,
)

from ...builders import Board, graph


def members(board: Board) -> list[Members]:
    return [action.members for action in board.actions if isinstance(action, KeepMembers)]


def test_an_epoch_is_the_clock_while_that_goes_on():
    assert next_epoch(1_000) == 1_000
    assert next_epoch(1_000, 0, 999) == 1_000


def test_an_epoch_leaves_room_for_attempts_if_the_clock_is_behind_a_known_one():
    assert next_epoch(1_000, 5_000, 4_000) == 5_000 + STEP_NS + 1_000
    assert next_epoch(1_000, 1_000) == 1_000 + STEP_NS + 1_000


def test_two_starts_above_the_same_epoch_differ():
    seen = 9 * STEP_NS
    assert next_epoch(STEP_NS + 1_000, seen) != next_epoch(STEP_NS + 2_000, seen)


def test_changed_members_are_put_out_with_a_tick_but_at_most_once_per_second(board):
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


def test_a_proof_is_of_one_epoch_and_one_key():
    proof = proof_of(b"key", 7)
    assert is_proved(b"key", 7, proof)
    for key, epoch, shown in (
        (b"key", 8, proof),
        (b"other", 7, proof),
        (b"key", 7, "é"),
        (b"key", 7, ""),
    ):
        assert not is_proved(key, epoch, shown)
    assert proof_of(b"", 7) == ""
    assert is_proved(b"", 7, "anything")  # a scheduler without a key believes each claim


@pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER, Role.SUPERVISOR])
def test_a_later_epoch_without_its_proof_is_refused_and_disturbs_nothing(role):
    board = Board(epoch_key=b"key")
    board.hold_up(0.0)
    board.hold_up(1.0)
    board.state.next_attempt += 1
    registrations = {
        Role.CLIENT: m.RegisterClient(client_id="c", name="c", session=1, last_epoch=9, facts={}),
        Role.WORKER: m.RegisterWorker(
            worker_id="w",
            name="w",
            session=1,
            last_epoch=9,
            address="tcp://w",
            nthreads=1,
            memory_limit=0,
            resources={},
            supervisor_id="",
            facts={},
        ),
        Role.SUPERVISOR: m.RegisterSupervisor(supervisor_id="s", session=1, last_epoch=9, facts={}),
    }
    message = registrations[role]
    for level, proof, is_believed in (
        (ROLE_LEVELS[role], "", False),
        (ROLE_LEVELS[role], proof_of(b"key", 7), False),
        (ROLE_LEVELS[role], proof_of(b"key", 9), True),
        (Level.ADMIN, "", True),
    ):
        message.epoch_proof = proof
        peer = board.connect(role, level)
        board.send(peer, message)
        assert any(isinstance(action, GiveWay) for action in board.actions) == is_believed
        if not is_believed:
            (refused,) = board.out[peer]
            assert isinstance(refused, m.Refused)
            assert "without the proof" in refused.reason


def meet(board: Board, seen: int) -> list[type]:
    """Let a client come that has seen a later epoch; return what the scheduler does."""
    board.client("bob", last_epoch=seen)
    return [type(a) for a in board.actions if isinstance(a, (GiveWay, StartOver))]


@pytest.mark.parametrize(
    ("ahead_ns", "is_newer"),
    [
        (1, False),
        (10 * 10**9 - 1, False),  # it was started after this one, which was suspended
        (10 * 10**9 + 1, True),  # the clock of this one has not reached it yet
        (3600 * 10**9, True),
        (STEP_NS - 1, True),
        (STEP_NS, False),  # it was made above this one's
    ],
)
def test_a_scheduler_whose_clock_is_behind_goes_on_above_a_later_epoch_after_it_gave_out_work(
    ahead_ns, is_newer
):
    board = Board()
    alice, worker = board.client("alice"), board.worker()
    board.send(alice, graph("a"))
    assert board.where("a") == worker
    board.tick(10.0)
    assert meet(board, 7 + ahead_ns) == [StartOver if is_newer else GiveWay]


def test_of_two_schedulers_with_clocks_that_differ_one_gives_way():
    """Each has given out work, and meets a peer of the other one."""
    behind, ahead = Board(), Board()
    ahead.state.epoch += 3600 * 10**9
    for board in (behind, ahead):
        board.worker()
        board.send(board.client("alice"), graph("a"))
    assert meet(behind, ahead.state.epoch) == [StartOver]
    assert meet(ahead, next_epoch(behind.state.epoch, ahead.state.epoch)) == [GiveWay]
