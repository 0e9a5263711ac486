"""The connections to actors, between the threads that call and the loop that sends."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import pytest

from weft.client.core.features.actor_calls import ActorCall
from weft.client.shell.actor_connections import ActorConnections, _ActorConnection
from weft.protocol.host.blocking import on_interrupts_here
from weft.worker.slots.interrupting import SlotGate


def test_a_signal_while_the_loop_is_woken_lets_later_calls_wake_it():
    woken = []

    def interrupted(_flush):
        loop.call_soon_threadsafe = woken.append
        raise KeyboardInterrupt

    loop = SimpleNamespace(call_soon_threadsafe=interrupted)
    to_worker = SimpleNamespace(loop=loop, _is_woken=False, _flush="flush")
    with pytest.raises(KeyboardInterrupt):
        _ActorConnection.wake(to_worker)
    _ActorConnection.wake(to_worker)
    _ActorConnection.wake(to_worker)
    assert woken == ["flush"]


class Connection:
    """Is interrupted in the middle of a frame, and notes which frames were sent to their ends."""

    writable = True

    def __init__(self, interrupt):
        self.interrupt = interrupt
        self.sent = []

    def send_past_loop(self, messages):
        self.interrupt()
        self.sent += messages
        return True


@pytest.fixture
def connections():
    """The connections of a client with one connection, whose loop is woken in vain."""
    loop = SimpleNamespace(call_soon_threadsafe=lambda *_: None)
    connections = ActorConnections(SimpleNamespace(loop=loop, is_own_thread=False))
    to_worker = connections._by_address["here"] = _ActorConnection(connections, "here", 1)
    to_worker._can_bypass = True
    return connections


def call():
    info = SimpleNamespace(address="here", secret="secret")
    return ActorCall(SimpleNamespace(_info=info, key="counter"), "add", b"", None)


def check_whole(connections, connection):
    """Check that the call that was interrupted was sent, so that it will be answered."""
    to_worker = connections._by_address["here"]
    assert [message.requests for message in connection.sent] == [[0]]
    assert [*to_worker._calls.sent] == [0]
    connections.send(call())  # waits behind it
    assert [message.requests for message in connection.sent] == [[0]]


def test_a_handler_of_a_signal_that_raises_leaves_a_call_whole(connections):
    connection = Connection(lambda: signal.raise_signal(signal.SIGUSR1))
    connections._by_address["here"]._connection = connection

    def on_signal(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        with pytest.raises(KeyboardInterrupt):
            connections.send(call())
    finally:
        signal.signal(signal.SIGUSR1, before)
    check_whole(connections, connection)


def test_a_task_is_not_interrupted_in_the_middle_of_a_call(connections):
    gate = SlotGate()
    seen = []
    connection = Connection(lambda: seen.append(gate.is_open))
    connections._by_address["here"]._connection = connection

    def run():
        on_interrupts_here(gate)
        gate.open()
        connections.send(call())
        seen.append(gate.is_open)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False, True]
    check_whole(connections, connection)
