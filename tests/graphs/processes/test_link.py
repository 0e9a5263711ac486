"""Messages on stream sockets between a parent and its workers."""

from __future__ import annotations

import os
import pickle
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.graphs.processes.link import Channel, Link, _encoded, _Frames


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    link, channel = Link(ours), Channel(theirs)
    yield link, channel
    link.close()
    channel.close()


messages_of_any_kind = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=40)), max_size=8)


@given(messages_of_any_kind, st.lists(st.integers(1, 30), min_size=1))
def test_messages_survive_every_cut(messages, cuts):
    stream = b"".join(b"".join(_encoded(message)) for message in messages)
    frames = _Frames()
    arrived = []
    begin = 0
    while begin < len(stream):
        n_bytes = cuts[begin % len(cuts)]
        arrived += frames.feed(stream[begin : begin + n_bytes])
        begin += n_bytes
    assert arrived == messages


def test_messages_travel_both_ways(ends):
    link, channel = ends
    link.send(1, "a", [2])
    assert channel.receive() == [(1, "a", [2])]
    channel.send(2, {3: None})
    channel.send(3)
    received = []
    while len(received) < 2:
        received += link.receive()
    assert received == [(2, {3: None}), (3,)]
    assert link.receive() == []
    assert link.n_bytes_sent == len(b"".join(_encoded((1, "a", [2]))))
    assert link.n_bytes_received == sum(len(b"".join(_encoded(m))) for m in received)


def test_the_parent_does_not_wait_for_a_worker_that_does_not_read(ends):
    link, channel = ends
    large = os.urandom(20 << 20)
    link.send(1, large)
    link.send(2)
    assert link.is_stuck
    received = []
    thread = threading.Thread(
        target=lambda: [received.extend(channel.receive()) for _ in iter(lambda: len(received), 2)]
    )
    thread.start()
    while link.is_stuck:
        link.flush()
    thread.join()
    assert received == [(1, large), (2,)]


def test_the_end_of_a_connection_is_noticed_at_both_ends(ends):
    link, channel = ends
    channel.send(1)
    assert channel.hang_up()
    assert link.receive() == [(1,)]
    assert link.receive() is None
    link.send(2)  # into the void
    assert not link.is_stuck
    assert channel.receive() is None
    with pytest.raises(OSError, match="Broken pipe"):
        channel.send(3)


def test_a_forked_process_does_not_keep_a_connection_open(ends):
    link, channel = ends
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writing)
        os.read(reading, 1)  # until the other one has seen the end
        os._exit(0)
    os.close(reading)
    link.close()
    assert channel.receive() is None
    os.close(writing)
    os.waitpid(pid, 0)


def test_messages_are_length_and_pickle():
    header, data = _encoded((1, None))
    assert int.from_bytes(header, "little") == len(data)
    assert pickle.loads(data) == (1, None)
