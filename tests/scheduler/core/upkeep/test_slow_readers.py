"""slow_readers.py and membership.reassure: peers that read or send slowly."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actions import CutOff
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.upkeep import slow_readers

from ...builders import Board

BEAT = m.Heartbeat()


@pytest.fixture
def board() -> Board:
    board = Board()
    slow_readers.slow_readers_of(board.state).max_outbox_nbytes = 10
    return board


@pytest.fixture
def measured(monkeypatch) -> list[object]:
    """Messages of 1 byte each, in the order in which they were measured."""
    found: list[object] = []
    monkeypatch.setattr(slow_readers, "message_nbytes", lambda message: found.append(message) or 1)
    return found


def note(n: int) -> m.Bye:
    return m.Bye(reason=str(n))


def test_messages_for_a_slow_reader_are_measured_once_but_for_the_last(board, measured):
    peer = board.client()
    outbox = board.state.outboxes[peer] = [note(i) for i in range(4)]
    for _ in range(2):
        assert slow_readers.find_stuck(board.state, [peer]) == []
    assert measured == [*outbox, outbox[-1]]
    outbox += [note(4), note(5)]
    assert slow_readers.find_stuck(board.state, [peer]) == []
    assert measured[5:] == outbox[3:]
    assert slow_readers.slow_readers_of(board.state).measured == {peer: (outbox, 5, 5)}


def test_the_measurement_of_an_outbox_is_forgotten_when_it_is_sent(board, measured):
    peer = board.client()
    board.state.outboxes[peer] = [note(i) for i in range(8)]
    slow_readers.find_stuck(board.state, [peer])
    board.state.outboxes[peer] = [note(i) for i in range(9)]
    assert slow_readers.find_stuck(board.state, [peer]) == []
    assert slow_readers.slow_readers_of(board.state).measured[peer][1:] == (8, 8)
    del board.state.outboxes[peer]
    assert slow_readers.find_stuck(board.state, [peer]) == []
    assert slow_readers.slow_readers_of(board.state).measured == {}


def test_a_peer_for_which_too_much_waits_is_cut_off_and_gets_nothing_of_it(board, measured):
    slow, quick = board.client("slow"), board.client("quick")
    for peer in (slow, quick):
        board.state.outboxes[peer] = [note(i) for i in range(11)]
    out = board.play(SchedulerTick(unwritable=[slow]))
    action = board.actions[0]
    assert action == CutOff(slow, "it does not read, and 0 MiB wait for it")
    assert [*out] == [quick]
    board.close(slow)


def test_peers_in_the_middle_of_a_long_frame_are_sent_a_heartbeat_per_beat():
    board = Board()
    client, worker, quiet = board.client(), board.worker(), board.client("quiet")
    stranger = board.connect(Role.CLIENT)
    beats = dict.fromkeys((client, worker, quiet, stranger), 0)
    beat = board.state.settings.heartbeat_s
    for i in range(9):
        out = board.play(SchedulerTick(receiving=[client, worker, stranger]))
        assert i or not out, "the first tick is no reason for a heartbeat"
        for peer, messages in out.items():
            assert messages == [BEAT]
            beats[peer] += 1
        board.now += beat / 4
    assert beats == {client: 2, worker: 2, quiet: 0, stranger: 0}
