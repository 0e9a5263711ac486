"""The error of a program that a task has run."""

from __future__ import annotations

import signal
from pathlib import PurePosixPath

from .base import WeftError

#: What a shell's exit code says that has not run the program.
_NOT_RUN = {126: "it may not be executed", 127: "it was not found on the worker"}
#: Characters of the last lines that the text shows.
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
        if self.missing:
            names = ", ".join(repr(PurePosixPath(name).as_posix()) for name in self.missing)
            what = f"has not made {names}"
        elif self.signal:
            what = f"was ended by {self.signal}"
        else:
            what = f"ended with exit code {self.returncode}"
            hint = _NOT_RUN.get(self.returncode)
            what += f" ({hint})" if hint else ""
        printed = (self.stderr.strip() or self.stdout.strip())[-_SHOWN_CHARS:]
        return f"{self.command!r} {what}" + (f":\n{printed}" if printed else "")
