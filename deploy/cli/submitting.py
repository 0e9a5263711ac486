"""The jobs of `weft submit`: their items, their command, and how they run, some at a time."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import Empty, Queue, SimpleQueue
from typing import Any, BinaryIO, Final

import click

from ...client.calls.arrays import submit_parts
from ...client.calls.conditions import NO_CONDITIONS
from ...client.client import Client
from ...client.future import Future
from ...client.shell.interruptible import SLICE_S
from ...protocol.errors import CommClosed
from ...protocol.errors.commands import CommandFailed, CommandResult
from ...worker.commands.command import Command

#: Jobs that are at the cluster at a time. More are submitted when half of them have ended, so an
#: array takes no more memory than these.
WINDOW: Final = 10_000
#: Most numbers of an array: a mistyped one should not run for days.
MAX_ARRAY: Final = 10_000_000
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
#: A place for the item is `{}`, or `{0}`; more braces are around it, or it is none.
_BRACES: Final = re.compile(r"(\{+)(\w*)(\}+)")
#: Codes from here on are of this command itself, or of a shell.
_MAX_CODE: Final = 125
#: Attributes of results that records have as they are.
_PLAIN: Final = ("returncode", "is_cut", "worker", "wall_s", "cpu_s", "peak_nbytes")


class Items:
    """Texts for which a command is run, and how many there are; None = it is not known yet."""

    def __init__(self, texts: Iterable[str], n: int | None) -> None:
        self.texts = iter(texts)
        self.n = n
        #: There are no more to take.
        self.has_ended = False

    def begin(self, wake: Callable[[], object]) -> None:
        """Have `wake` called when there may be more to take, from any thread."""

    def take(self, n: int) -> list[str]:
        """Take those that have come, `n` at most."""
        taken = list(islice(self.texts, n))
        self.has_ended = len(taken) < n
        return taken


class ComingItems(Items):
    """Texts that come one by one: a thread waits for them."""

    def __init__(self, texts: Iterable[str]) -> None:
        super().__init__(texts, None)
        self._came: Queue[str | None] = Queue(WINDOW)

    def begin(self, wake: Callable[[], object]) -> None:
        threading.Thread(target=self._read, args=(wake,), name="items", daemon=True).start()

    def _read(self, wake: Callable[[], object]) -> None:
        try:
            for text in self.texts:
                self._came.put(text)
                wake()
        finally:
            self._came.put(None)
            wake()

    def take(self, n: int) -> list[str]:
        taken: list[str] = []
        while len(taken) < n and not self.has_ended and not self._came.empty():
            text = self._came.get()
            if text is None:
                self.has_ended = True
            else:
                taken.append(text)
        return taken


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
        n = sum(len(numbers) for numbers, _ in ranges)
        return Items((f"{i:0{width}}" for numbers, width in ranges for i in numbers), n)
    if each_line is None:
        return None
    try:
        # Not the object of `sys.stdin`, whose lock a waiting thread would keep at the exit.
        file = open(  # noqa: SIM115 - `_lines` closes it
            0 if each_line == "-" else each_line, "rb", closefd=each_line != "-"
        )
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return ComingItems(_lines(file))
        lines = list(_lines(file))
    except OSError as error:
        raise click.FileError(each_line, error.strerror or str(error)) from None
    return Items(lines, len(lines))


def _lines(file: BinaryIO) -> Iterator[str]:
    with file:
        for line in file:
            ending = b"\r\n" if line.endswith(b"\r\n") else b"\n"
            yield line.removesuffix(ending).decode("utf-8", "surrogateescape")


def array_of(text: str) -> list[tuple[range, int]]:
    """Read the numbers of an array: `1-10`, `0-90:10`, `3`, and such parts between commas.

    Returns:
        The numbers of each part and the digits that each of them has at least: `01-10` has two.

    Raises:
        click.UsageError: it is no such text, or names too many numbers.
    """
    parts = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or match[3] == "0":
            raise click.UsageError(f"--array takes 1-10, 0-90:10 or 1,5,7-9, not {text!r}")
        first, last = match[1], match[2] or match[1]
        numbers = range(int(first), int(last) + 1, int(match[3] or 1))
        if not numbers:
            raise click.UsageError(f"--array {text}: {part} ends before it begins")
        is_padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
        parts.append((numbers, max(len(first), len(last)) if is_padded else 1))
    if sum(len(numbers) for numbers, _ in parts) > MAX_ARRAY:
        raise click.UsageError(f"--array {text}: at most {MAX_ARRAY} numbers at a time")
    return parts


def command_of(
    words: Sequence[str],
    *,
    has_items: bool,
    cwd: str | None,
    scratch: bool,
    env: Mapping[str, str | None],
    **options: Any,
) -> Command:
    """Return the command, with a place for the item if there are any; `options` are `Command`'s.

    Raises:
        click.UsageError: it is empty, or the options of folders contradict each other.
    """
    if scratch and cwd is not None:
        raise click.UsageError("--scratch makes a new folder, --cwd names one; give one of them")
    is_shell = is_line(words)
    placed = [_placed(word, has_items) for word in words]
    if has_items and not any("{}" in word or "{0}" in word for word in words):
        placed = [f"{placed[0]} {{0}}"] if is_shell else [*placed, "{0}"]
    folder = _placed(os.getcwd(), False)
    if cwd is not None:  # which is of this machine, too, if it is relative
        folder = os.path.join(folder, _placed(cwd, has_items))
    try:
        command = Command(
            placed[0] if is_shell else placed,
            cwd=None if scratch else folder,
            env={name: value and _placed(value, has_items) for name, value in env.items()},
            **options,
        )
        command.filled(*[""] * has_items)  # so that a place which is none is an error at once
        return command
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _placed(text: str, has_items: bool) -> str:
    """Return a text where `{}` and `{0}` are the place of the item, and other braces are none."""

    def placed(match: re.Match[str]) -> str:
        before, name, after = match.groups()
        is_place = has_items and name in ("", "0")
        if not name and not is_place:
            return match[0]
        # All braces but those of a place are doubled: a command halves them.
        if is_place:
            return "{" * (2 * len(before) - 1) + "0" + "}" * (2 * len(after) - 1)
        return before * 2 + name + after * 2

    return _BRACES.sub(placed, text)


def is_line(words: Sequence[str]) -> bool:
    """Return whether this is a line for the shell, and not a program and its arguments."""
    plain = words[0].replace("{}", "")
    return len(words) == 1 and shlex.quote(plain) != plain


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
        self,
        client: Client[Any],
        command: Command,
        items: Items | None,
        options: dict[str, Any],
        *,
        keeps_order: bool = False,
    ) -> None:
        self._client = client
        self._command = command
        self._has_items = items is not None
        self._items = Items([""], 1) if items is None else items
        self._options = {name: value for name, value in options.items() if value is not None}
        self._keeps_order = keeps_order
        #: {future: its number and item}, of those at the cluster
        self._pending: dict[Future[CommandResult], tuple[int, str]] = {}
        #: {number: its end}, of those whose turn has not come
        self._held: dict[int, JobEnd] = {}
        #: futures that are done; None = look whether there are more items, or it was cancelled
        self._events: SimpleQueue[Future[CommandResult] | None] = SimpleQueue()
        self.n_begun = self.n_ended = self.n_failed = 0
        self.is_cancelled = False

    @property
    def n(self) -> int | None:
        """How many there are, None = it is not known yet."""
        return self.n_begun if self._items.has_ended else self._items.n

    @property
    def n_left(self) -> int:
        """How many of those that are known have not ended."""
        return (self.n or self.n_begun) - self.n_ended

    def run(self) -> Generator[JobEnd, None, None]:
        """Run all, and yield their ends as they come, or in the order of the items.

        Raises:
            CommClosed: the scheduler is lost.
        """
        self._items.begin(partial(self._events.put, None))
        try:
            self._begin_more()
            while not self.is_cancelled and (self._pending or not self._items.has_ended):
                future = self._next_event()
                if future is not None:
                    yield from self._ended(future)
                if len(self._pending) + len(self._held) <= WINDOW // 2:
                    self._begin_more()
        finally:
            if self._pending:
                why = "weft submit was ended"
                self._client.cancel([*self._pending], running=True, reason=why)
        # Some may have ended by themselves before they were cancelled.
        while not self._events.empty():
            future = self._events.get()
            if future is not None and not future.cancelled():
                yield from self._ended(future)
        for number in sorted(self._held):
            yield self._counted(self._held.pop(number))

    def cancel(self) -> None:
        """Have `run` cancel all that have not ended; also for handlers of signals."""
        self.is_cancelled = True
        self._events.put(None)

    def _next_event(self) -> Future[CommandResult] | None:
        # A signal that the system delivers to another thread does not end a wait of this one.
        while True:
            with contextlib.suppress(Empty):
                return self._events.get(timeout=SLICE_S)

    def _begin_more(self) -> None:
        items = self._items.take(WINDOW - len(self._pending) - len(self._held))
        if self.is_cancelled or not items:
            return
        futures = (
            self._client.map(self._command, items, pure=False, **self._options)
            if self._has_items
            else [self._client.submit(self._command, pure=False, **self._options)]
        )
        self._pending.update(zip(futures, enumerate(items, self.n_begun), strict=True))
        self.n_begun += len(items)
        for future in futures:
            future.add_done_callback(self._events.put)

    def _ended(self, future: Future[CommandResult]) -> Iterator[JobEnd]:
        """Yield the end of a run, and those that have waited for it."""
        number, item = self._pending.pop(future)
        self._held[number if self._keeps_order else self.n_ended] = _end_of(item, future)
        future.release()
        while self.n_ended in self._held:
            yield self._counted(self._held.pop(self.n_ended))

    def _counted(self, end: JobEnd) -> JobEnd:
        self.n_ended += 1
        self.n_failed += bool(end.code)
        return end


def keys_of_detached(
    client: Client[Any],
    command: Command,
    items: Items | None,
    array: str | None,
    options: dict[str, Any],
) -> Iterator[str]:
    """Submit the runs of a command as detached jobs; yield their keys when these are recorded.

    Those of an array are one job.

    Raises:
        click.UsageError: an array has an option that it cannot have, or a number twice.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if array is not None:
        yield str(_submit_array(client, command, array, given).key)
        return
    if items is None:
        yield str(client.submit(command, detached=True, **given).key)
        return
    while texts := [*islice(items.texts, WINDOW)]:
        for future in client.map(command, texts, detached=True, **given):
            yield str(future.key)


def _submit_array(
    client: Client[Any], command: Command, array: str, options: dict[str, Any]
) -> Future[None]:
    if "ttl" in options:
        raise click.UsageError("--ttl is of single jobs: an array has a --deadline")
    if "category" in options:
        raise click.UsageError("--category is of single jobs: give an array its --memory")
    parts = sorted(array_of(array), key=lambda part: part[0].start)
    parts = [(numbers, width if width > 1 else 0) for numbers, width in parts]
    conditions = {name: options.pop(name) for name in NO_CONDITIONS if name in options}
    plain = {"key": None, "workers": None, "resources": None, "allow_other_workers": False}
    not_given = {"timeout": None, "meta": None, "conditions": conditions}
    try:
        return submit_parts(client, command, parts, **{**plain, **not_given, **options})
    except ValueError as error:
        raise click.UsageError(f"--array {array} with --detach: {error}") from None


def _end_of(item: str, future: Future[CommandResult]) -> JobEnd:
    if future.cancelled():
        return JobEnd(item, 1, "it was cancelled")
    error = future.exception()
    if error is None:
        return JobEnd(item, 0, "", future.result())
    if isinstance(error, CommClosed):
        raise error
    if isinstance(error, CommandFailed):
        what = f"exit code {error.returncode}"
        if error.result.is_late:
            what = "it ran for longer than its timeout"
        elif error.signal:
            what = f"it was ended by {error.signal}"
        code = error.returncode if 0 < error.returncode <= _MAX_CODE else 1
        return JobEnd(item, code, what, error.result)
    return JobEnd(item, 1, f"{type(error).__name__}: {error}")
