"""A child process of a worker, which runs one call after the other; the worker's side.

It leads a session and a group of its own. A guard ends the group if the worker dies, as that of a
command (`commands/process_group.py`), so nothing is left by any end of the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ...protocol.death_facts import DeathFacts
from ...protocol.deaths import OUT_OF_MEMORY
from ...protocol.host.machine import n_oom_kills, oom_counter
from ..commands.process_group import SHELL, START, guard, has_ended
from ..policy import Isolation
from .link import Link
from .memory_plan import ChildEnd
from .recycling import Recycling

#: The program of a child. It gets the search path of its worker before it imports anything.
_CODE: Final = (
    "import sys, json, importlib; path, module, fd = json.loads(sys.argv.pop()); "
    "sys.path[:] = path; importlib.import_module(module).main(int(fd))"
)
#: Seconds that a child which is replaced has to end by itself.
_LINGER_S: Final = 5.0
#: Tells the child that a message came for the call that runs.
NEWS_SIGNAL: Final = signal.SIGUSR1
#: Bytes of a unit of `ru_maxrss`.
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class IsolatedProcess:
    """One child and its guard. For the thread of its slot, but for `tell`."""

    def __init__(self, isolation: Isolation, hello: list[Any]) -> None:
        """Start it.

        Raises:
            OSError: no process could be started.
        """
        self.recycling = Recycling(isolation)
        #: {id: None} of the functions that it has
        self.functions: dict[bytes, None] = {}
        #: {attempt: None} of results here, with futures that live as long as it does
        self.holds: dict[int, None] = {}
        #: what it was last told of the scheduler
        self.task_pass: str | None = None
        #: the call is over, and the message that follows it has not been read
        self.is_settling = False
        #: the attempt that runs there; 0 = none
        self.attempt = 0
        #: since when it waits for a call; None = it does not
        self.idle_since: float | None = None
        #: it was killed: by `end_idle`, or by `end_call`
        self.is_over = False
        #: a thread of its own reaps it
        self.is_retired = False
        #: why its call was ended, if it was for its memory
        self.memory_end: ChildEnd | None = None
        self._news: deque[tuple[Any, ...]] = deque()
        #: Held while the process is reaped, and by others that use its number, or its pipe here.
        self._reaping = threading.Lock()
        with contextlib.ExitStack() as stack:
            self._woken, self._wake = os.pipe()
            for end in (self._woken, self._wake):
                stack.callback(os.close, end)
                os.set_blocking(end, False)
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            with theirs:
                self._pipe = stack.enter_context(guard())
                what = json.dumps([sys.path, isolation.module, theirs.fileno()])
                words = [SHELL, "-c", START, "weft", os.devnull]
                words += [sys.executable, *_flags(), "-c", _CODE, what]
                self._process = subprocess.Popen(
                    words, stdin=self._pipe, pass_fds=[theirs.fileno()], start_new_session=True
                )
            self._stack = stack.pop_all()
        self.pid = self._process.pid
        self._oom_counter = oom_counter(self.pid)
        self._n_oom_kills = self._oom_kills() or 0
        self.link = Link(ours)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.link.send("hello", *hello)  # if it has ended, the next read says so

    def rest(self) -> None:
        """Note that it waits for a call."""
        with self._reaping:
            self.idle_since = time.monotonic()

    def begin(self, attempt: int) -> bool:
        """Begin a call, if it has not ended since the last one."""
        with self._reaping:
            if self.is_over or self.link.is_ready():  # it sends nothing by itself
                return False
            self.idle_since = None
            self.attempt = attempt
        return True

    def end_idle(self) -> None:
        """Kill it if it waits for a call, and reap it. For any thread."""
        with self._reaping:
            if self.idle_since is None or self.is_over or self.is_retired or self.holds:
                return
            self.is_over = self.is_retired = True
            self._send_signal(signal.SIGKILL, os.killpg)
        self._end_in_thread()

    def end_call(self, end: ChildEnd) -> None:
        """Kill it for its memory, if this call runs. For any thread."""
        with self._reaping:
            if self.attempt == end.attempt and not self.is_over:
                self.is_over = True
                self.memory_end = end
                self._send_signal(signal.SIGKILL, os.killpg)

    def tell(self, attempt: int, *news: Any) -> bool:
        """Have the slot's thread do something for a call, if that runs. For any thread."""
        with self._reaping:
            if self.attempt != attempt or self._process.returncode is not None:
                return False
            self._news.append((attempt, *news))
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b".")
        return True

    def wait(self, timeout_s: float) -> tuple[list[tuple[Any, ...]], bool]:
        """Wait; return the news for the call that runs, and whether the child has sent any."""
        timeout = None if timeout_s == float("inf") else max(0, int(timeout_s * 1000) + 1)
        ready = dict(self._poll.poll(timeout))
        news: list[tuple[Any, ...]] = []
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
            while self._news:
                attempt, *what = self._news.popleft()
                if attempt == self.attempt:
                    news.append(tuple(what))
        return news, self.link.socket.fileno() in ready

    def pass_on(self, *news: Any) -> None:
        """Tell the child something while its call runs."""
        self.link.send(*news)
        self._signal(NEWS_SIGNAL, os.kill)

    def _oom_kills(self) -> int | None:
        return None if self._oom_counter is None else n_oom_kills(self._oom_counter)

    def _signal(self, number: int, send: Callable[[int, int], object]) -> None:
        with self._reaping:
            self._send_signal(number, send)

    def _send_signal(self, number: int, send: Callable[[int, int], object]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                send(self.pid, number)

    def kill(self) -> tuple[str, DeathFacts]:
        """End it, if it has not ended, and what it has started; return how it has ended."""
        self.link.close()
        # Of a child that has ended by itself, the end is known: a signal to it does nothing.
        self._signal(signal.SIGKILL, os.killpg)
        with self._reaping:
            _, status, used = os.wait4(self.pid, 0)
            code = self._process.returncode = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            self._pipe.write(b"ended\n")
        self._stack.close()
        n_now = self._oom_kills()
        n_kills = None if n_now is None else max(0, n_now - self._n_oom_kills)
        reason = _described(code, is_oom=code == -signal.SIGKILL and bool(n_kills))
        return reason, DeathFacts(used.ru_maxrss * _RSS_UNIT, n_kills)

    def retire(self) -> None:
        """Let it end by itself, and end it after a while, in a thread."""
        with self._reaping:
            if self.is_retired:
                return
            self.is_retired = True
            self.attempt = 0
        with contextlib.suppress(OSError):  # it has ended just now
            self.link.socket.shutdown(socket.SHUT_RDWR)
        self._end_in_thread()

    def _end_in_thread(self) -> None:
        threading.Thread(target=self._end, name="weft-retired-child", daemon=True).start()

    def _end(self) -> None:
        until = time.monotonic() + _LINGER_S
        while time.monotonic() < until and not has_ended(self.pid):
            time.sleep(0.02)
        self.kill()


def _described(code: int, *, is_oom: bool) -> str:
    if is_oom:
        return OUT_OF_MEMORY
    if code >= 0:
        return f"its process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process was killed by signal {-code}"


def _flags() -> list[str]:
    flags = [f"-W{option}" for option in sys.warnoptions]
    for name, value in sys._xoptions.items():
        flags.append(f"-X{name}" if value is True else f"-X{name}={value}")
    return flags
