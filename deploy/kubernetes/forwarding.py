"""A port on this machine that leads to a port of a pod, through the API server.

What `kubectl port-forward` does, by the websocket of the official client. Each connection finds the
pod anew, so the port outlives the pod that it led to first.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger("weft.cluster")

_CHUNK: Final = 1 << 16


class Forward:
    """A listening port on loopback; `close` ends it and its connections."""

    def __init__(self, connect: Callable[[], tuple[socket.socket, Callable[[], None]]]) -> None:
        """Listen.

        Args:
            connect: opens a connection to the pod, on a thread for each connection here; returns a
                socket, and what is called when both ends of it are done.
        """
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: dict[socket.socket, None] = {}
        self._threads: dict[threading.Thread, None] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="weft-forward", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._start(self._serve, near)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            finally:
                with self._lock:
                    self._threads.pop(threading.current_thread(), None)

        thread = threading.Thread(target=run, name="weft-forward-connection", daemon=True)
        with self._lock:
            self._threads[thread] = None
        thread.start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far, end = self._connect()
        except Exception as error:
            _log.warning("no connection to the scheduler's pod: %s", error)
            near.close()
            return
        with self._lock:
            self._open[near] = self._open[far] = None
            is_closed = self._is_closed
        if is_closed:
            _end(near, far)
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()
        with self._lock:
            for one in (near, far):
                self._open.pop(one, None)
                one.close()
        end()

    def close(self) -> None:
        """End the port and its connections."""
        with self._lock:
            self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        with self._lock:
            threads = list(self._threads)
            _end(*self._open)
        for thread in threads:
            thread.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    _end(source, target)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
