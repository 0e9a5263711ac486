"""The error of a program that a task has run."""

from __future__ import annotations

import signal

from .base import WeftError

#: What a shell's exit code says that has not run the program.
_NOT_RUN = {126: "it may not be executed", 127: "it was not found on the worker"}
#: How much the text shows of each stream: its end.
_SHOWN_CHARS = 2000


class CommandFailed(WeftError):
    """The program of a `weft.Command` has ended with an error, or has not made an output.

    Look at what it has printed; `Command(check=False)` returns the result whatever its code is.

    Args:
        command: as it was run.
        returncode: its exit code; -9 if signal 9 has ended it; 0 if files are missing.
        stdout: the end of what it has printed, "" if that went to a file.
        stderr: the same of its errors.
        missing: outputs that it has not made.
    """

    def __init__(
        self,
        command: str,
        returncode: int,
        stdout: str = "",
        stderr: str = "",
        missing: tuple[str, ...] = (),
    ) -> None:
        super().__init__(command, returncode, stdout, stderr, missing)
        self.command = command
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        self.missing = missing

    @property
    def signal(self) -> str:
        """The name of the signal that has ended it, "" if none has."""
        if self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    def __str__(self) -> str:
        what = f"ended with exit code {self.returncode}"
        if self.signal:
            what = f"was ended by {self.signal} ({self.returncode})"
        elif self.returncode in _NOT_RUN:
            what += f" ({_NOT_RUN[self.returncode]})"
        if self.missing:
            what += f", and has not made {', '.join(map(repr, self.missing))}"
        printed = [text.strip()[-_SHOWN_CHARS:] for text in (self.stdout, self.stderr)]
        return "\n".join([f"{self.command!r} {what}", *filter(None, printed)])
