"""epochs.py: the number of a start, and the members that the next scheduler expects."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.handshake import ROLE_LEVELS, Role
from weft.protocol.wire.levels import Level
from weft.scheduler.core.epochs import (
    STEP_NS,
    GiveWay,
    KeepMembers,
    Members,
    is_proved,
    next_epoch,
    proof_of,
)

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
