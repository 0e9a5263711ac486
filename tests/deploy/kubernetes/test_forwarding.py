"""A port of this machine that leads elsewhere, with real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from weft.deploy.kubernetes.forwarding import Forward


def nothing() -> None:
    return


def test_bytes_go_both_ways_and_ends_are_passed_on():
    ours, theirs = socket.socketpair()
    forward = Forward(lambda: (theirs, nothing))
    with socket.create_connection(("127.0.0.1", forward.port), timeout=20) as near, ours:
        ours.settimeout(20)
        near.sendall(b"there")
        assert ours.recv(100) == b"there"
        ours.sendall(b"back")
        assert near.recv(100) == b"back"
        ours.close()
        assert near.recv(100) == b""
    forward.close()


def test_a_connection_that_cannot_be_made_is_ended_and_the_next_one_is_tried(caplog):
    found = [OSError("no pod runs")]
    ours, theirs = socket.socketpair()

    def connect() -> tuple[socket.socket, Callable[[], None]]:
        if found:
            raise found.pop()
        return theirs, nothing

    forward = Forward(connect)
    with socket.create_connection(("127.0.0.1", forward.port), timeout=20) as first:
        assert first.recv(1) == b""
    assert "no pod runs" in caplog.text
    with socket.create_connection(("127.0.0.1", forward.port), timeout=20) as second, ours:
        second.sendall(b"x")
        ours.settimeout(20)
        assert ours.recv(1) == b"x"
        forward.close()
        assert second.recv(1) == b""


def test_the_end_of_a_port_ends_its_threads():
    ours, theirs = socket.socketpair()
    forward = Forward(lambda: (theirs, nothing))
    with socket.create_connection(("127.0.0.1", forward.port), timeout=20), ours, theirs:
        forward.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("weft-forward")]
