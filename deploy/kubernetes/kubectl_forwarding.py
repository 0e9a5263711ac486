"""Forwards ports of a Service to this machine with `kubectl port-forward`, for as long as needed.

`kubectl` forwards to one pod and ends with it: it is started again, for the same local ports, so
that clients find the next pod where they have left the last one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from ...protocol.errors import ConfigError
from .kubectl import Kubectl

_LINE = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
#: Seconds between attempts, and their limit.
_PAUSE_S, _LONGEST_S = 0.5, 10.0
#: Becomes the program after PID, and has the kernel end it with the thread that started it. Not
#: done by `preexec_fn`, which is not safe in a process with threads.
_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, {signal:d})  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class PortForwarding:
    """Forwarded ports: a process of kubectl, and a thread that starts the next one.

    Args:
        kubectl: the context and the namespace.
        service: the name of the Service.
        ports: those of the Service.
        local: ports of this machine; 0 chooses a free one.
        report: is called with a line when a connection has ended, and when it is back.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        service: str,
        ports: Sequence[int],
        local: Sequence[int],
        report: Callable[[str], None],
    ) -> None:
        """Start it, and wait until the ports are forwarded.

        Raises:
            ConfigError: they cannot be; the text is that of kubectl.
        """
        self._kubectl, self._service, self._ports = kubectl, service, tuple(ports)
        self._report = report
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        #: The last lines of the present process.
        self._lines: list[str] = []
        found = self._start(tuple(local))
        if found is None:
            last = self._lines[-1] if self._lines else "no reason was given"
            self.close()
            raise ConfigError(
                f"kubectl cannot forward ports of service/{service}: {last}; "
                f"'{self.hint}' shows its pods"
            )
        #: Ports of this machine, in the order of `ports`.
        self.local = found
        self._thread = threading.Thread(target=self._run, name="port-forward", daemon=True)
        self._thread.start()

    @property
    def hint(self) -> str:
        """A command that shows the pods behind the Service."""
        space = f" -n {self._kubectl.namespace}" if self._kubectl.namespace else ""
        return f"kubectl{space} get pods -l app.kubernetes.io/part-of=weft"

    def close(self) -> None:
        """End the process of kubectl; connections through it end."""
        self._closed.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """Start kubectl; return the local ports, or None if it has ended."""
        pairs = [f"{here or ''}:{there}" for here, there in zip(local, self._ports, strict=True)]
        command = self._kubectl.command(
            "port-forward", "--address=127.0.0.1", f"service/{self._service}", *pairs
        )
        with self._lock:
            if self._closed.is_set():
                return None
            self._process = subprocess.Popen(
                _ending_with_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # Ctrl-C in the terminal is for this process, which ends kubectl in its own time.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._lines = []
        found: list[int] = []
        for line in self._process.stdout:
            match = _LINE.match(line)
            if match:
                found.append(int(match[1]))
                if len(found) == len(self._ports):
                    return tuple(found)
            else:
                self._lines = [*self._lines[-4:], line.strip()]
        return None

    def _run(self) -> None:
        """Start the next process whenever one has ended; on a thread that lives until `close`."""
        while True:
            assert self._process is not None
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith(("error", "E")):
                    self._lines = [*self._lines[-4:], line.strip()]
                # It goes on after this, without a connection: older releases of kubectl do.
                if "lost connection to pod" in line:
                    self._process.terminate()
            self._process.wait()
            self._process.stdout.close()
            if self._closed.is_set():
                return
            self._report(f"the connection to service/{self._service} has ended; connecting again")
            pause_s = _PAUSE_S
            while self._start(self.local) is None:
                if self._closed.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, _LONGEST_S)
            self._report(f"connected to service/{self._service} again")


def _ending_with_this_process(command: list[str]) -> list[str]:
    """Return a command that ends also when this process is killed, where the kernel can do that."""
    if not sys.platform.startswith("linux"):
        return command
    code = _WITH_PARENT.format(signal=signal.SIGTERM)
    return [sys.executable, "-I", "-S", "-c", code, str(os.getpid()), *command]
