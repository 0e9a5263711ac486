"""The result of a program that a task has run, and the error of one that has failed."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Final

from .base import WeftError

__all__ = ["CommandFailed", "CommandResult"]

_ENCODING: Final = "utf-8"
#: What a shell's exit code says that has not run the program.
_NOT_RUN = {126: "it may not be executed", 127: "it was not found on the worker"}
#: How much the text shows of each stream: its end.
_SHOWN_CHARS = 2000


@dataclass(frozen=True)
class CommandResult:
    """The output, the files and the use of resources of a program that has ended.

    Attributes:
        command: as it was run.
        returncode: its exit code; -9 if signal 9 has ended it.
        stdout_bytes: the last of what it has printed, by `max_output`; empty if it went to a file.
        stderr_bytes: the same of its errors.
        outputs: {name: content} of the files that it was to make, without those that were moved.
        moved: {name: path on the worker} of the others.
        wall_s: seconds that it ran.
        cpu_s: seconds of processors that it and the children it has waited for have used.
        peak_nbytes: the largest memory of one of these processes (resident set); None = no larger
            than the worker's own, from which the system does not tell it.
        read_nbytes: bytes that they have read from disks.
        written_nbytes: bytes that they have written to disks.
        is_cut: it has printed more than `max_output`.
        is_late: it was ended since it ran for longer than its `timeout`.
        worker: the name of the worker; "" = it was not run by a task.
    """

    command: str
    returncode: int
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    outputs: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_nbytes: int | None = None
    read_nbytes: int = 0
    written_nbytes: int = 0
    is_cut: bool = False
    is_late: bool = False
    worker: str = ""

    @property
    def stdout(self) -> str:
        """`stdout_bytes` as a text; what is not UTF-8 is replaced."""
        return self.stdout_bytes.decode(_ENCODING, "replace")

    @property
    def stderr(self) -> str:
        """`stderr_bytes` as a text; what is not UTF-8 is replaced."""
        return self.stderr_bytes.decode(_ENCODING, "replace")

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
        if self.is_late:
            what = f"ran for longer than its timeout, and was ended after {self.wall_s:.3g} s"
        elif self.signal:
            what = f"was ended by {self.signal} ({self.returncode})"
        elif self.returncode in _NOT_RUN:
            what += f" ({_NOT_RUN[self.returncode]})"
        return f"{self.command!r} {what}"


class CommandFailed(WeftError):
    """The program of a `weft.Command` has ended with an error, or has not made an output.

    Look at what it has printed; `Command(check=False)` returns the result whatever its code is.

    Args:
        result: all that is known of it; the properties are parts of that.
        missing: outputs that it has not made.
    """

    def __init__(self, result: CommandResult, missing: tuple[str, ...] = ()) -> None:
        super().__init__(result, missing)
        self.result = result
        self.missing = missing

    @property
    def command(self) -> str:
        """As it was run."""
        return self.result.command

    @property
    def returncode(self) -> int:
        """Its exit code; -9 if signal 9 has ended it; 0 if files are missing."""
        return self.result.returncode

    @property
    def stdout(self) -> str:
        """The end of what it has printed, "" if that went to a file."""
        return self.result.stdout

    @property
    def stderr(self) -> str:
        """The same of its errors."""
        return self.result.stderr

    @property
    def signal(self) -> str:
        """The name of the signal that has ended it, "" if none has."""
        return self.result.signal

    def __str__(self) -> str:
        text = str(self.result)
        if self.missing:
            text += f", and has not made {', '.join(map(repr, self.missing))}"
        printed = [text.strip()[-_SHOWN_CHARS:] for text in (self.stdout, self.stderr)]
        return "\n".join([text, *filter(None, printed)])
