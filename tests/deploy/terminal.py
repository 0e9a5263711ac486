"""A `weft` command in a real pseudo-terminal, whose screen a test can read."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.deploy.daemons import environment
from tests.leaks import wait_until

#: Makes standard input the terminal of the new session, which Ctrl-C needs, and runs the command.
_START = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "weft", *sys.argv[1:]])
"""


class Terminal:
    """A command, its keyboard and its screen."""

    def __init__(self, *arguments: str, folder: Path, columns: int, lines: int, **env: str) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        #: All that was written, with escape sequences.
        self.written = b""
        self._fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # `environment` keeps what this process has; the size is that of the terminal alone.
        base = environment(folder / "run")
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            base.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            cwd=folder,
            env=base | {"TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(child)

    def read(self) -> str:
        """Take in what was written, and return the text of the screen."""
        while select.select([self._fd], [], [], 0)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the process has ended
                break
            if not data:
                break
            self.written += data
            self._stream.feed(data)
        return "\n".join(line.rstrip() for line in self.screen.display)

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def wait_for(self, *texts: str) -> str:
        """Wait until all of these are on the screen; return it."""
        self.wait_until(lambda screen: all(text in screen for text in texts), f"{texts}")
        return self.read()

    def wait_until(self, holds: Callable[[str], bool], what: str) -> None:
        """Wait until something holds for the text of the screen."""
        try:
            wait_until(lambda: holds(self.read()), 30, what)
        except BaseException as error:
            raise AssertionError(f"{what} is not on the screen:\n{self.read()}") from error

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        wait_until(lambda: (self.read(), self.process.poll())[1] is not None, 30, "the end")
        return self.process.wait(30)

    def close(self) -> None:
        """End the process, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)
        os.close(self._fd)


@contextmanager
def terminal(
    *arguments: str, folder: Path, columns: int = 120, lines: int = 30, **env: str
) -> Iterator[Terminal]:
    """Run a command in a terminal of this size; it has ended after the block."""
    started = Terminal(*arguments, folder=folder, columns=columns, lines=lines, **env)
    try:
        yield started
    finally:
        started.close()
