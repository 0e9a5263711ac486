"""A worker process of weft's own: its start and end, and the settings that its parent gives it.

It owns the first and the last steps of such a process; `serving` is in between, `pool` on the other
side. This is the first module that a new worker imports, so its imports must be light.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import struct
import sys
from typing import NamedTuple

from ...protocol.host.thread_defaults import THREAD_DEFAULTS
from .link import Channel
from .serving import Server, leave_at_once, note_of

#: A worker that has been idle for this long exits.
IDLE_S = 60

#: The value that dask sets for its own pools.
_HASH_SEED = "6640"
_DEFAULTS = {**THREAD_DEFAULTS, "PYTHONHASHSEED": _HASH_SEED}


class Context(NamedTuple):
    """The settings that a worker takes from its parent.

    Attributes:
        folder: the working directory, None if it was removed.
        path: `sys.path`.
        argv: `sys.argv`.
        environ: the environment.
        authkey: key with which processes of multiprocessing authenticate each other, b"" if it is
            not used: with it, tasks can use the objects of a `multiprocessing.Manager`.
        initializer: pickle of the function to call before the first task; b"" = none.
    """

    folder: str | None
    path: list[str]
    argv: list[str]
    environ: dict[str, str]
    authkey: bytes = b""
    initializer: bytes = b""

    @classmethod
    def of_this_process(cls, initializer: bytes = b"") -> Context:
        """Return the settings of this process."""
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            folder = None
        path = [entry for entry in sys.path if isinstance(entry, str)]
        argv = list(getattr(sys, "argv", [""]))
        processes = sys.modules.get("multiprocessing.process")
        authkey = b"" if processes is None else bytes(processes.current_process().authkey)
        return cls(folder, path, argv, {**_DEFAULTS, **os.environ}, authkey, initializer)

    def apply(self) -> None:
        """Apply these settings to this process."""
        import importlib

        if self.folder is not None:
            # It may have been removed, or be forbidden; tasks that need it raise an error.
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        sys.path[:] = self.path
        sys.argv[:] = self.argv
        for name in [name for name in os.environ if name not in self.environ]:
            del os.environ[name]
        os.environ.update(self.environ)
        importlib.invalidate_caches()
        if self.authkey:
            from multiprocessing import process

            process.current_process().authkey = self.authkey
        _initialize(self.initializer)


#: The last initializer that was called in this process.
_initializer = b""


def _initialize(initializer: bytes) -> None:
    """Call the user's initializer, unless that was done."""
    global _initializer  # noqa: PLW0603 - it is about the process
    if initializer and initializer != _initializer:
        import pickle

        pickle.loads(initializer)()
        _initializer = initializer


def main(socket_fd: int, lifeline_fd: int, note_fd: int) -> None:
    """Be a worker, with the file descriptors that `pool` has handed down."""
    signal.signal(signal.SIGINT, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sock = socket.socket(fileno=socket_fd)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", IDLE_S, 0))
    _die_with_parent(lifeline_fd)
    mapping = mmap.mmap(note_fd, 0)
    os.close(note_fd)
    channel = Channel(sock)
    Server(
        channel,
        note_of(mapping),
        on_context=lambda context: Context(*context).apply(),
        on_quiet=lambda: True,
        on_abandoned=leave_at_once,
    ).serve()
    channel.close()


def _do_nothing(_number: int, _frame: object) -> None:
    # Not SIG_IGN: programs that tasks start would inherit that.
    return


def _die_with_parent(lifeline_fd: int) -> None:
    import fcntl

    set_signal = getattr(fcntl, "F_SETSIG", None)
    if set_signal is not None:
        fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline_fd, set_signal, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline_fd, fcntl.F_GETFL)
        fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
