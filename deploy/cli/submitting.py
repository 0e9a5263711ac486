"""The jobs of `weft submit`: their items, their command, and how they run, some at a time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click

from ...client.client import Client
from ...client.completing import as_completed
from ...client.future import Future
from ...protocol.errors.commands import CommandFailed, CommandResult
from ...worker.commands.command import Command

#: Jobs that are at the cluster at a time. More are submitted when half of them have ended, so an
#: array takes no more memory than these.
WINDOW: Final = 10_000
#: Most numbers of an array: a mistyped one should not run for days.
MAX_ARRAY: Final = 10_000_000
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
#: Codes from here on are of this command itself, or of a shell.
_MAX_CODE: Final = 125
#: Attributes of results that records have as they are.
_PLAIN: Final = ("returncode", "is_cut", "worker", "wall_s", "cpu_s", "peak_nbytes")


class Items:
    """Texts for which a command is run, and how many there are; None = it is not known yet."""

    def __init__(self, texts: Iterable[str], n: int | None) -> None:
        self.texts = texts
        self.n = n


def items_of(array: str | None, each_line: str | None) -> Items | None:
    """Return the items that options name; None = there are none, and one run.

    Raises:
        click.UsageError: the range is none, or both options are given.
        click.FileError: the file cannot be read.
    """
    if array is not None and each_line is not None:
        raise click.UsageError("--array and --each-line name the items; give one of them")
    if array is not None:
        ranges = array_of(array)
        n = sum(map(len, ranges))
        return Items((str(number) for numbers in ranges for number in numbers), n)
    if each_line is None:
        return None
    if each_line == "-":
        return Items((line.rstrip("\n") for line in sys.stdin), None)
    try:
        with open(each_line, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise click.FileError(each_line, error.strerror or str(error)) from None
    return Items(lines, len(lines))


def array_of(text: str) -> list[range]:
    """Read the numbers of an array: `1-10`, `0-90:10`, `3`, and such parts between commas.

    Raises:
        click.UsageError: it is no such text, or names too many numbers.
    """
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or match[3] == "0":
            raise click.UsageError(f"--array takes 1-10, 0-90:10 or 1,5,7-9, not {text!r}")
        first = int(match[1])
        ranges.append(range(first, int(match[2] or first) + 1, int(match[3] or 1)))
        if not ranges[-1]:
            raise click.UsageError(f"--array {text}: {part} ends before it begins")
    if sum(map(len, ranges)) > MAX_ARRAY:
        raise click.UsageError(f"--array {text}: at most {MAX_ARRAY} numbers at a time")
    return ranges


def command_of(
    words: Sequence[str],
    *,
    has_items: bool,
    cwd: str | None,
    scratch: bool,
    env: Mapping[str, str | None],
) -> Command:
    """Return the command, with a place for the item if there are any.

    Raises:
        click.UsageError: it is empty, or the options of folders contradict each other.
    """
    if scratch and cwd is not None:
        raise click.UsageError("--scratch makes a new folder, --cwd names one; give one of them")
    if has_items:
        placed = [word.replace("{}", "{0}") for word in words]
        if not any("{0}" in word for word in placed):
            placed = [f"{placed[0]} {{0}}"] if is_line(words) else [*placed, "{0}"]
        words = placed
    folder = None if scratch else (cwd or os.getcwd())
    try:
        command = Command(words[0] if is_line(words) else words, cwd=folder, env=env)
        if has_items:
            command.filled("")  # so that a place which is none is an error at once
        return command
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def is_line(words: Sequence[str]) -> bool:
    """Return whether this is a line for the shell, and not a program and its arguments."""
    return len(words) == 1 and any(mark in words[0] for mark in " \t;|&<>$`")


@dataclass(frozen=True)
class JobEnd:
    """How the run for one item has ended."""

    item: str
    #: 0 = well; else the exit code for this command to end with
    code: int
    #: why it has failed, in a few words; "" = it has not
    error: str
    #: what is known of the program; None = it has not run to its end
    result: CommandResult | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return it for programs: the same names for each end."""
        result = self.result
        return {
            "item": self.item,
            "ok": not self.code,
            "error": self.error,
            "stdout": "" if result is None else result.stdout,
            "stderr": "" if result is None else result.stderr,
            "signal": "" if result is None else result.signal,
            **{name: getattr(result, name, None) for name in _PLAIN},
        }


class Jobs:
    """The runs of one command, of which `WINDOW` are at the cluster at a time."""

    def __init__(
        self, client: Client[Any], command: Command, items: Items | None, options: dict[str, Any]
    ) -> None:
        self._client = client
        self._command = command
        self._items = None if items is None else iter(items.texts)
        self._options = {name: value for name, value in options.items() if value is not None}
        #: {future: its item}, of those at the cluster
        self._pending: dict[Future[CommandResult], str] = {}
        #: of all items, None = not known
        self.n = 1 if items is None else items.n
        self.n_begun = self.n_ended = self.n_failed = 0
        self._is_cancelled = False

    @property
    def n_left(self) -> int:
        """How many have begun and not ended."""
        return self.n_begun - self.n_ended

    def run(self) -> Iterator[JobEnd]:
        """Run all, and yield their ends as they come."""
        first = self._more()
        if not first:
            return
        completed = as_completed(first)
        for future in completed:
            item = self._pending.pop(future)
            end = _end_of(item, future)
            future.release()
            if self._is_cancelled and end is None:
                continue
            self.n_ended += 1
            end = end or JobEnd(item, 1, "it was cancelled")
            self.n_failed += bool(end.code)
            yield end
            if len(self._pending) <= WINDOW // 2:
                completed.update(self._more())

    def cancel(self) -> None:
        """Cancel all that have not ended, and begin no more."""
        self._is_cancelled = True
        self._items = iter(())
        self._client.cancel([*self._pending], running=True, reason="weft submit was ended")

    def _more(self) -> list[Future[CommandResult]]:
        if self._items is None:
            if self.n_begun:
                return []
            items = [""]
            futures = [self._client.submit(self._command, pure=False, **self._options)]
        else:
            items = list(islice(self._items, WINDOW - len(self._pending)))
            if not items:
                return []
            futures = self._client.map(self._command, items, pure=False, **self._options)
        self.n_begun += len(items)
        self._pending.update(zip(futures, items, strict=True))
        return futures


def _end_of(item: str, future: Future[CommandResult]) -> JobEnd | None:
    """Return how a run has ended; None = it was cancelled."""
    if future.cancelled():
        return None
    error = future.exception()
    if error is None:
        return JobEnd(item, 0, "", future.result())
    if isinstance(error, CommandFailed):
        what = f"exit code {error.returncode}"
        if error.signal:
            what = f"it was ended by {error.signal}"
        code = error.returncode if 0 < error.returncode <= _MAX_CODE else 1
        return JobEnd(item, code, what, error.result)
    return JobEnd(item, 1, f"{type(error).__name__}: {error}")
