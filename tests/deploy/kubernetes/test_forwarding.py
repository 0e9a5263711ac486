"""A port of this machine that leads to a pod, by a peer that ends connections in every way."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.kubernetes.peer import BEGIN, CLOSE, Peer, PeerConnection, frame
from weft.deploy.kubernetes.api import Kube
from weft.deploy.kubernetes.errors import KubernetesError
from weft.deploy.kubernetes.forwarding import Forward

Script = Callable[[PeerConnection], None]


@contextmanager
def forwarded(folder: Path, script: Script) -> Iterator[tuple[Forward, Peer]]:
    """Forward a port to a pod of a peer that runs `script`."""
    pytest.importorskip(
        "kubernetes", reason="kubernetes is missing: pip install 'weft[kubernetes]'"
    )
    with Peer(folder, script) as peer:
        kube = Kube(kubeconfig=peer.kubeconfig())
        forward = Forward("the scheduler", lambda: kube.open_port("pod", 8786))
        try:
            yield forward, peer
        finally:
            forward.close()
            kube.close()
    left = [t.name for t in threading.enumerate() if t.name.startswith("weft-forward")]
    assert not left


def connected(forward: Forward) -> socket.socket:
    return socket.create_connection(("127.0.0.1", forward.port), timeout=30)


def read_to_end(near: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := near.recv(1 << 16):
            data += part
    return data


def send_to_end(near: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            near.sendall(bytes(1 << 16))


def test_bytes_go_both_ways(tmp_path):
    large = bytes(range(256)) * 1200
    ended = threading.Event()

    def script(pod: PeerConnection) -> None:
        assert b"/namespaces/default/pods/pod/portforward?ports=8786 " in pod.request
        assert b"authorization: Bearer abc" in pod.request
        pod.begin()
        received = b""
        while len(received) < len(large):
            opcode, payload = pod.receive()
            assert (opcode, payload[0]) == (2, 0)
            received += payload[1:]
        assert received == large
        for size in (1, 125, 126, 65535, 65536, len(large)):
            pod.send(large[:size])
        assert pod.receive() == (8, b"\x03\xe8")  # a goodbye, and no failure
        ended.set()

    with forwarded(tmp_path, script) as (forward, _):
        with connected(forward) as near:
            near.sendall(large)
            data = b""
            while len(data) < (1 << 17) + 251 + len(large):
                data += near.recv(1 << 16)
        sizes = (1, 125, 126, 65535, 65536, len(large))
        assert data == b"".join(large[:size] for size in sizes)
        assert ended.wait(30)


def test_a_ping_is_answered_and_parts_of_messages_are_joined(tmp_path):
    def script(pod: PeerConnection) -> None:
        pod.begin()
        pod.sock.sendall(frame(b"\x00ab", is_last=False) + frame(b"there?", 9))
        assert pod.receive() == (10, b"there?")
        pod.sock.sendall(frame(b"cd", 0) + CLOSE)
        pod.leave()

    with forwarded(tmp_path, script) as (forward, _), connected(forward) as near:
        assert read_to_end(near) == b"abcd"


def at_once(pod: PeerConnection) -> None:
    return


def after_the_handshake(pod: PeerConnection) -> None:
    pod.accept()


def within_the_first_messages(pod: PeerConnection) -> None:
    pod.accept()
    pod.sock.sendall(BEGIN[:7])


def after_data(pod: PeerConnection) -> None:
    pod.begin()
    pod.send(b"data")
    pod.receive()


def within_a_frame(pod: PeerConnection) -> None:
    after_data(pod)
    pod.sock.sendall(frame(bytes(1000))[:500])


def after_a_goodbye(pod: PeerConnection) -> None:
    after_data(pod)
    pod.sock.sendall(CLOSE)


def while_much_is_sent(pod: PeerConnection) -> None:
    after_data(pod)
    for _ in range(20):
        pod.receive()


MOMENTS = [
    at_once,
    after_the_handshake,
    within_the_first_messages,
    after_data,
    within_a_frame,
    after_a_goodbye,
    while_much_is_sent,
]


@pytest.mark.parametrize("end", [PeerConnection.reset, PeerConnection.cut, PeerConnection.leave])
@pytest.mark.parametrize("moment", MOMENTS)
def test_any_end_of_the_pods_connection_ends_the_near_one_and_nothing_is_printed(
    tmp_path, capfd, moment, end
):
    """A failing thread would be an error of the test, too: warnings are."""

    def script(pod: PeerConnection) -> None:
        moment(pod)
        end(pod)

    with forwarded(tmp_path, script) as (forward, peer):
        for n in (1, 2):  # the port outlives its connections
            with connected(forward) as near:
                sender = threading.Thread(target=send_to_end, args=(near,))
                sender.start()
                read_to_end(near)
                sender.join(30)
                assert not sender.is_alive()
            assert peer.n_connections == n
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("end", ["close", "reset"])
def test_any_end_on_this_side_ends_the_pods_connection(tmp_path, capfd, end):
    ended = threading.Event()

    def script(pod: PeerConnection) -> None:
        pod.begin()
        pod.send(b"data")
        with contextlib.suppress(EOFError, OSError):
            while True:
                pod.receive()
        ended.set()

    with forwarded(tmp_path, script) as (forward, _), connected(forward) as near:
        assert near.recv(4) == b"data"
        near.sendall(bytes(1 << 20))
        if end == "reset":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
        near.close()
        assert ended.wait(30)
    assert capfd.readouterr().err == ""


def test_a_side_that_reads_nothing_holds_up_the_other_and_keeps_neither_from_ending(tmp_path):
    stuck = threading.Event()

    def script(pod: PeerConnection) -> None:
        pod.begin()
        pod.sock.settimeout(0.5)
        with contextlib.suppress(OSError):
            while True:
                pod.send(bytes(1 << 16))
        stuck.set()
        assert release.wait(30)

    release = threading.Event()
    with forwarded(tmp_path, script) as (forward, _), connected(forward):
        # The pod can send no more: what is not read is not kept here without a limit.
        assert stuck.wait(30)
        forward.close()
        release.set()


def test_a_connection_that_cannot_be_made_is_logged_once_for_each_outage(tmp_path, caplog):
    caplog.set_level(logging.INFO, "weft.cluster")
    answers = iter([*["refused"] * 4, "works", "refused", "refused"])

    def script(pod: PeerConnection) -> None:
        pod.begin()
        if next(answers) == "works":
            pod.send(b"data")
        else:
            pod.sock.sendall(frame(b"\x01error forwarding port 8786: connection refused"))
        pod.leave()

    with forwarded(tmp_path, script) as (forward, _):
        for _ in range(7):
            with connected(forward) as near:
                read_to_end(near)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    outage = (
        "WARNING",
        "no connection to the scheduler, it is tried again: error forwarding port 8786: "
        "connection refused",
    )
    assert said == [outage, ("INFO", "connected to the scheduler again"), outage]


def test_a_refused_websocket_names_the_right_that_is_missing(tmp_path):
    def script(pod: PeerConnection) -> None:
        pod.sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with Peer(tmp_path, script) as peer:
        kube = Kube(kubeconfig=peer.kubeconfig())
        with pytest.raises(KubernetesError, match="you may not get pods/portforward") as caught:
            kube.open_port("pod", 8786)
        assert caught.value.status == 403
        kube.close()
