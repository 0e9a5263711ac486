"""A port on this machine that leads to a port of a pod, through the API server.

What `kubectl port-forward` does, by the websocket of the official client. Each connection finds the
pod anew, so the port outlives the pod that it led to first. The loop that passes the bytes on is
our own: that of the official client prints a traceback where its connection ends, and keeps in
memory what the other end does not take.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .channels import Channels, NotForwarding, close_frame, data_frame, pong_frame

_log = logging.getLogger("weft.cluster")

_CHUNK: Final = 1 << 16
#: Bytes that wait for one end; while there are more, nothing is read from the other.
_MAX_WAITING: Final = 1 << 20
#: Time in seconds for the last bytes to the pod when the connection on this side has ended.
_FLUSH_S: Final = 5.0
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class PodPort:
    """An open websocket to a port of a pod: its socket, and what releases it."""

    sock: socket.socket
    close: Callable[[], None]


class Forward:
    """A listening port on loopback; `close` ends it and its connections."""

    def __init__(self, what: str, connect: Callable[[], PodPort]) -> None:
        """Listen.

        Args:
            what: it leads to, for the log.
            connect: opens a connection to the pod, on a thread for each connection here.
        """
        self._what = what
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: dict[threading.Thread, None] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        #: Whether the latest attempt to reach the pod has failed.
        self._is_out = False
        self._thread = threading.Thread(target=self._accept, name="weft-forward", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                if self._closed.wait(0.1):
                    return
                continue  # this process has no descriptors to spare at this moment
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._serve, args=(near,), name="weft-forward-connection", daemon=True
            )
            with self._lock:
                self._threads[thread] = None
            thread.start()

    def _serve(self, near: socket.socket) -> None:
        try:
            with near:
                self._lead(near)
        finally:
            with self._lock:
                self._threads.pop(threading.current_thread(), None)

    def _lead(self, near: socket.socket) -> None:
        try:
            far = self._connect()
        except Exception as error:  # the kubeconfig of a user may fail in any way
            self._failed(str(error))
            return
        with self._lock:
            self._open.add(near)
        relay = PortRelay(near, far.sock, self._closed.is_set, self._succeeded)
        try:
            relay.run()
        finally:
            with self._lock:
                self._open.discard(near)
            far.close()
        if relay.failure:
            self._failed(relay.failure)

    def _failed(self, reason: str) -> None:
        """Log it once for each outage: clients try again and again."""
        with self._lock:
            level = logging.DEBUG if self._is_out or self._closed.is_set() else logging.WARNING
            self._is_out = True
        _log.log(
            level,
            "no connection to %s, it is tried again: %s",
            self._what,
            reason,
            extra={"code": "forwarding-interrupted"},
        )

    def _succeeded(self) -> None:
        with self._lock:
            was_out, self._is_out = self._is_out, False
        if was_out:
            _log.info("connected to %s again", self._what)

    def close(self) -> None:
        """End the port and its connections."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        with self._lock:
            threads = list(self._threads)
            for near in self._open:
                with contextlib.suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


class PortRelay:
    """Passes bytes between a connection on this machine and a websocket, on one thread.

    One thread, because a TLS connection must not be read and written at the same time.

    Attributes:
        failure: why the connection to the pod has failed, "" if it simply ended.
    """

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        is_closing: Callable[[], bool],
        succeeded: Callable[[], None],
    ) -> None:
        """Keep both ends.

        Args:
            near: the connection on this machine.
            far: the websocket's, after the handshake.
            is_closing: whether to end without delay; asked after each event.
            succeeded: is called at the first data from the pod.
        """
        self.failure = ""
        self._near, self._far = near, far
        self._is_closing, self._succeeded = is_closing, succeeded
        self._channels = Channels()
        self._to_near, self._to_far = bytearray(), bytearray()
        self._near_ended = self._far_ended = False
        #: Whether the pod's end takes no more; what it has sent before is still read.
        self._far_is_deaf = False
        self._has_data = False

    def run(self) -> None:
        """Pass bytes on until both ends are done. It raises nothing for any end of a connection."""
        self._near.setblocking(False)
        self._far.setblocking(False)
        end_s = float("inf")
        while not self._is_closing() and time.monotonic() < end_s:
            has_moved = self._receive_near() | self._receive_far()
            has_moved |= self._send_near() | self._send_far()
            if self._far_ended and (self._near_ended or not self._to_near):
                return
            if self._near_ended:
                if not self._to_far:
                    return
                end_s = min(end_s, time.monotonic() + _FLUSH_S)
            if not has_moved:
                self._wait(end_s)

    def _wait(self, end_s: float) -> None:
        poll = select.poll()
        near = select.POLLIN if self._reads_near else 0
        far = select.POLLIN if self._reads_far else 0
        near |= select.POLLOUT if self._to_near else 0
        far |= select.POLLOUT if self._to_far else 0
        # An end is reported whether or not it is asked for. That of this side is taken at once,
        # since `Forward.close` makes it; the pod's is met by the next thing done there.
        if not self._near_ended:
            poll.register(self._near, near)
        if far:
            poll.register(self._far, far)
        left_s = end_s - time.monotonic()
        timeout_ms = None if left_s == float("inf") else max(0.0, 1000 * left_s)
        for descriptor, event in poll.poll(timeout_ms):
            is_over = event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN
            if is_over and descriptor == self._near.fileno():
                self._end_near()

    @property
    def _reads_near(self) -> bool:
        if self._near_ended or self._far_ended or self._far_is_deaf:
            return False
        return len(self._to_far) < _MAX_WAITING

    @property
    def _reads_far(self) -> bool:
        return not (self._near_ended or self._far_ended) and len(self._to_near) < _MAX_WAITING

    def _receive_near(self) -> bool:
        if not self._reads_near:
            return False
        try:
            data = self._near.recv(_CHUNK)
        except _WOULD_BLOCK:
            return False
        except OSError:
            data = b""
        if data:
            self._to_far += data_frame(data, os.urandom(4))
        else:
            self._end_near()
        return True

    def _end_near(self) -> None:
        self._near_ended = True
        self._to_near.clear()
        if not self._far_is_deaf:
            self._to_far += close_frame(os.urandom(4))

    def _receive_far(self) -> bool:
        if not self._reads_far:
            return False
        try:
            received = self._far.recv(_CHUNK)
        except _WOULD_BLOCK:
            return False
        except OSError:
            received = b""
        if not received:
            self._far_ended = True
            if not self._has_data:
                self.failure = "it ended at once"
            return True
        try:
            self._to_near += self._channels.receive(received)
        except NotForwarding as error:
            self.failure = f"the API server of Kubernetes sent {error}"
            self._far_ended = True
            return True
        if self._to_near and not self._has_data:
            self._has_data = True
            self._succeeded()
        for payload in () if self._far_is_deaf else self._channels.pings:
            self._to_far += pong_frame(payload, os.urandom(4))
        self._channels.pings.clear()
        if self._channels.has_ended:
            self._far_ended = True
            self.failure = self._channels.failure
        return True

    def _send_near(self) -> bool:
        try:
            return _send(self._near, self._to_near)
        except OSError:
            self._end_near()
            return True

    def _send_far(self) -> bool:
        try:
            return not self._far_ended and _send(self._far, self._to_far)
        except OSError:
            self._to_far.clear()
            self._far_is_deaf = True
            return True


def _send(sock: socket.socket, waiting: bytearray) -> bool:
    """Send what there is room for; return whether it was anything."""
    if not waiting:
        return False
    try:
        n_sent = sock.send(bytes(waiting[:_CHUNK]))
    except _WOULD_BLOCK:
        return False
    del waiting[:n_sent]
    return n_sent > 0
