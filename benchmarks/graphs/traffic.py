"""Counts the bytes that this process reads and writes: files, pipes and sockets, but not memory
that it shares with others.

The kernel counts `read` and `write` (Linux), whatever they are done on. It does not count `send`
and `recv`, so these are counted where they are called, on `socket.socket`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

#: {method: bytes moved, from its arguments and its answer}
_METHODS: dict[str, Callable[[tuple[Any, ...], Any], int]] = {
    "send": lambda args, answer: int(answer),
    "sendall": lambda args, answer: memoryview(args[0]).nbytes,
    "sendmsg": lambda args, answer: int(answer),
    "recv": lambda args, answer: len(answer),
    "recv_into": lambda args, answer: int(answer),
    "recvmsg": lambda args, answer: len(answer[0]),
    "recvmsg_into": lambda args, answer: int(answer[0]),
}


class Traffic:
    """Counts inside a `with` block, of which there is one at a time; `n_bytes` afterwards.

    `n_bytes` is None where the operating system does not count.
    """

    n_bytes: int | None = None

    def __enter__(self) -> Traffic:
        self._n_bytes_in_sockets = 0
        for name in _METHODS:
            setattr(socket.socket, name, self._counting(name))
        self._before = _read_and_written()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        after = _read_and_written()
        # The methods that it inherits from the C class are visible again.
        for name in _METHODS:
            delattr(socket.socket, name)
        if self._before is not None and after is not None:
            self.n_bytes = after - self._before + self._n_bytes_in_sockets

    def _counting(self, name: str) -> Callable[..., Any]:
        method, moved = getattr(socket.socket, name), _METHODS[name]

        def call(sock: socket.socket, *args: Any) -> Any:
            answer = method(sock, *args)
            self._n_bytes_in_sockets += moved(args, answer)
            return answer

        return call


def _read_and_written() -> int | None:
    try:
        text = Path("/proc/self/io").read_text(encoding="ascii")
    except OSError:
        return None
    counts = dict(line.split(": ") for line in text.splitlines())
    return int(counts["rchar"]) + int(counts["wchar"])
