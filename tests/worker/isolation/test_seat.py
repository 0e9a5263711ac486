"""The seat of a call in a child: messages that come while another one is being sent."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from weft.protocol.host.blocking import TaskWait
from weft.worker.isolation.link import Link
from weft.worker.isolation.process import NEWS_SIGNAL
from weft.worker.isolation.seat import ChildSeat, SignalGate


class LinkWithNews(Link):
    """Has a message come, with its signal, before the sender of another one goes on."""

    news = ()

    def send(self, *message):
        super().send(*message)
        if self.news:
            news, self.news = self.news, ()
            self.worker.send(*news)
            os.kill(os.getpid(), NEWS_SIGNAL)
        if message[0] == "resumed":
            self.worker.send("answer", None)


@pytest.fixture
def link():
    before = signal.getsignal(NEWS_SIGNAL)
    ours, theirs = socket.socketpair()
    link = LinkWithNews(ours)
    link.worker = Link(theirs)
    yield link
    signal.signal(NEWS_SIGNAL, before)
    link.worker.close()
    link.close()


def test_a_wait_fails_while_it_is_being_reported(link):
    seat = ChildSeat(link, SignalGate(), dict)
    seat.begin(1)
    texts = []
    link.news = "fail", 1, "it is gone"
    with seat.blocked(TaskWait(["x"], texts.append)):
        assert texts == ["it is gone"]


def test_an_interrupt_that_comes_while_a_call_prints_is_seen(link):
    seat = ChildSeat(link, SignalGate(), dict)
    seat.begin(1)
    link.news = "interrupt", 1
    seat.send("printed", 0, "text")
    assert seat.gate.is_due
