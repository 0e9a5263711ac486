"""One machine of `weft ssh`: its ssh process, the lines that it prints, and why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.errors import ConfigError
from ...protocol.trust.security import is_loopback
from .remote import MARK

#: Longest line that is read; the rest of a longer one is another line.
_MAX_LINE_BYTES: Final = 1 << 20
_SSH_FAILED: Final = 255
_NOT_FOUND: Final = 127
#: The module that runs at the far end.
FAR_END: Final = __name__.rpartition(".")[0] + ".remote"


@dataclass(frozen=True)
class Login:
    """How machines are reached: options of ssh, and the Python to run there."""

    options: Sequence[str] = ()
    python: str = sys.executable

    def command(self, host: str) -> list[str]:
        """Return the command that runs the far end on `host`, without anything secret."""
        remote = shlex.join([self.python, "-m", FAR_END])
        # -T: no terminal; a program that asks for a password would wait for ever.
        return ["ssh", "-T", "-o", "BatchMode=yes", *self.options, "--", host, remote]

    def address_of(self, host: str) -> str:
        """Return the name or address that ssh connects to, which its configuration may change.

        Raises:
            ConfigError: ssh is not installed, or refuses the host or an option.
        """
        try:
            done = subprocess.run(
                ["ssh", "-G", *self.options, "--", host],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except FileNotFoundError:
            raise ConfigError("ssh is not installed here: install the OpenSSH client") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise ConfigError(f"ssh refuses {host!r}: {last}")
        names = [line[9:] for line in done.stdout.splitlines() if line.startswith("hostname ")]
        return names[0] if names else host

    def is_here(self, host: str) -> bool:
        """Return whether a host is this machine, by a loopback address."""
        return is_loopback(self.address_of(host))


@dataclass
class Host:
    """A process of a machine; `await run()` runs it to its end.

    Attributes:
        name: before each line.
        machine: as the user gave it, "" = this one.
        command: what to start.
        order: for the far end, see `remote`.
        show: prints one line.
        python: of the far end, for error texts.
    """

    name: str
    command: list[str]
    order: dict[str, Any]
    show: Callable[[str, str], None]
    python: str = ""
    machine: str = ""
    has_begun: bool = False
    #: set with the content of the file that the far end sends back
    written: asyncio.Future[dict[str, Any]] | None = None
    #: why it failed, "" if it did not
    failure: str = ""
    _process: asyncio.subprocess.Process | None = None
    _errors: list[str] = field(default_factory=list)

    async def run(self) -> int:
        """Start the process, show its lines, and return its exit code."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            # Ctrl-C is for this process, which lets the far end finish.
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(self.order).encode() + b"\n")
        await asyncio.gather(
            self._read(process.stdout, self._on_line), self._read(process.stderr, self._on_error)
        )
        code = await process.wait()
        process.stdin.close()
        self.failure = self._why(code) if code else ""
        if self.written is not None and not self.written.done():
            self.written.cancel()
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the command at the far end."""
        process = self._process
        if process is not None and process.stdin is not None and process.returncode is None:
            with contextlib.suppress(OSError, RuntimeError):
                process.stdin.write(signal.Signals(number).name.encode() + b"\n")

    def hang_up(self) -> None:
        """End the connection; the far end notices it and ends."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self, stream: asyncio.StreamReader, handle: Callable[[str], None]) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line longer than the limit: it is dropped
                continue
            if not line:
                return
            handle(line.decode(errors="replace").rstrip("\r\n"))

    def _on_line(self, line: str) -> None:
        if not line.startswith(MARK):
            self.show(self.name, line)
            return
        report = json.loads(line[len(MARK) :])
        if report["kind"] == "begun":
            self.has_begun = True
            for kept in self._errors:  # a banner of the machine
                self.show(self.name, kept)
        elif self.written is not None and not self.written.done():
            self.written.set_result(report["content"])

    def _on_error(self, line: str) -> None:
        if self.has_begun:
            self.show(self.name, line)
            return
        self._errors.append(line)

    @property
    def _there(self) -> str:
        """The place of the process in a text that begins with its name."""
        return "there" if self.machine == self.name else f"on {self.machine or 'this machine'}"

    def _why(self, code: int) -> str:
        """Return why it failed, in one line that says what to do."""
        text = "\n".join(self._errors)
        last = next((line for line in reversed(self._errors) if line.strip()), "no reason given")
        if self.has_begun:
            if code == _SSH_FAILED or code < 0:
                return "the connection was lost"
            return f"it ended with code {code}; its lines above say why"
        if "No module named" in text:
            return (
                f"weft is not installed for {self.python} {self._there}; install the same version, "
                "or give another Python with --python"
            )
        if code == _NOT_FOUND:
            return (
                f"there is no {self.python} {self._there}; give the path of its Python with "
                "--python"
            )
        if code == _SSH_FAILED:
            where = "" if self.machine == self.name else f" to {self.machine}"
            return (
                f"ssh cannot log in{where}: {last}; 'ssh {self.machine} true' must work without a "
                "password"
            )
        return f"it ended with code {code}: {last}"
