"""`weft.Command`: a program as the function of a task."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import IO, Any

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors.commands import CommandFailed, CommandResult
from ...protocol.host.blocking import closed_here
from ...protocol.settings.kinds import Size
from ...protocol.wire.messages import OWN_PROCESS
from ..context import get_worker, is_in_task
from ..core.tasks import AttemptUsage, usage_of
from ..slots.interrupting import TaskInterrupted
from .files import Input, file_names, move, put, scratch_directory
from .places import Arguments, Places, as_word, is_keyword
from .process_group import ProcessEnd, run_process


class Command:
    """A program to run as a task: `client.submit(weft.Command("sort {0}"), "names.txt")`.

    Each call runs in a *scratch directory* of its own, which is removed after it. Files are put
    there before (`inputs`) and taken from there after it (`outputs`), so programs need no common
    file system. When the task is cancelled, runs for too long, or loses its worker, the program and
    all that it has started are ended.

    `{0}`, `{1}` and `{name}` in the command, and in each variable, path and name of an output,
    stand for arguments of the call: in a line for the shell they are quoted. `{{name}}` is `{name}`
    itself. Braces around anything else are left alone, as are `${name}` and a `{name}` in quotes.

    Args:
        command: a line for the shell, or a list: the program and its arguments.
        env: variables beside those of the worker; None as a value removes one.
        cwd: a folder of the worker in which it runs, in the place of a scratch directory.
        inputs: `{name: content}` of files for it. A str or bytes is the content, a `Path` is a file
            of the worker, and a result of another command gives the output of that name. Or the
            names alone, in which case each call gives the contents, which may be futures:
            `client.submit(command, inputs={"names.txt": future})`.
        outputs: names of files that it makes, for `CommandResult.outputs`. Or `{name: Path}`, to
            move each to a path of the worker, which is a whole file at any time.
        stdin: what it reads, as a str or bytes, or a `Path` of the worker; None = nothing.
        stdout: a path to write what it prints to, in its folder or of the worker; None = keep that;
            `subprocess.DEVNULL` = nowhere.
        stderr: the same for its errors; `subprocess.STDOUT` = where `stdout` goes.
        append: add to these files, instead of writing them anew.
        max_output: how much is kept of what it prints: the last bytes of each stream.
        timeout: how long it may run, in seconds or as "5 min". It is ended then, which is an error
            that has what it has printed so far.
        check: raise `weft.CommandFailed` for each exit code but 0.

    Raises:
        TypeError, ValueError: an argument is not usable; the text says which.

    Example:
        >>> count = weft.Command("grep -c {word} text.txt", inputs=["text.txt"])
        >>> future = client.submit(count, inputs={"text.txt": "a\\nb\\na\\n"}, word="a")
        >>> future.result().stdout
        '2\\n'
    """

    def __init__(
        self,
        command: str | Iterable[str | os.PathLike[str] | float],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, Input] | Iterable[str] = (),
        outputs: Iterable[str] | Mapping[str, str | os.PathLike[str]] = (),
        stdin: str | bytes | os.PathLike[str] | None = None,
        stdout: str | os.PathLike[str] | int | None = None,
        stderr: str | os.PathLike[str] | int | None = None,
        append: bool = False,
        max_output: int | str = "1MiB",
        timeout: Duration | None = None,
        check: bool = True,
    ) -> None:
        self.is_shell = isinstance(command, str)
        self.words = _words(command)
        self.env = {} if env is None else _checked_env(env)
        self.cwd = None if cwd is None else os.fsdecode(cwd)
        self.inputs = dict(inputs) if isinstance(inputs, Mapping) else {}
        self.input_names = file_names("inputs", inputs)
        self.output_names = file_names("outputs", outputs)
        self.destinations = (
            {name: os.fsdecode(path) for name, path in outputs.items()}
            if isinstance(outputs, Mapping)
            else {}
        )
        self.stdin = stdin
        self.stdout = _stream("stdout", stdout, {DEVNULL: "DEVNULL"})
        self.stderr = _stream("stderr", stderr, {STDOUT: "STDOUT", DEVNULL: "DEVNULL"})
        self.append = append
        self.max_output = Size().read(max_output, "max_output")
        self.timeout_s = seconds_or_none(timeout, "timeout")
        self.check = check
        if self.cwd is not None and (self.input_names or self.output_names):
            raise ValueError(
                "inputs= and outputs= are files of a scratch directory, and cwd= takes its place; "
                "leave one of them out"
            )
        #: The label of its tasks.
        self.__name__ = _label(self.words, self.is_shell)
        places = Places()
        self._with(places.note)
        if "inputs" in places.names:
            raise ValueError("{inputs} cannot be a place: a call has its files by that name")
        self._names = list(places.names)

    def __repr__(self) -> str:
        return f"<Command {self.text!r}>"

    @property
    def text(self) -> str:
        """The command as a line for the shell."""
        return self.words[0] if self.is_shell else shlex.join(self.words)

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of a call: `submit` tells them from its own options by this."""
        names = ["inputs", *filter(is_keyword, self._names)]
        others = "args"
        while others in names:
            others += "_"
        parameters = [inspect.Parameter(others, inspect.Parameter.VAR_POSITIONAL)]
        parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        return inspect.Signature(parameters)

    def __call__(
        self, /, *args: object, inputs: Mapping[str, Input] | None = None, **kwargs: object
    ) -> CommandResult:
        """Run it here, and return what it has printed, made and used.

        Args:
            args: for `{0}`, `{1}`, ... in the command. A dict among them is more `inputs`, so that
                each call of a `map` can have its own.
            inputs: files for its scratch directory, beside those that the command has.
            kwargs: for the names in the command.

        Raises:
            CommandFailed: its exit code is not 0, or it has not made a file.
            TypeError: an argument is missing or has no place, or an input is missing or wrong.
            ValueError: the place for an argument is inside quotes.
            OSError: a file of this machine cannot be read or written.
        """
        given = dict(inputs or {})
        for arg in args:
            if isinstance(arg, Mapping):
                given.update(arg)
        filled = self.filled(*(arg for arg in args if not isinstance(arg, Mapping)), **kwargs)
        return filled._run(filled._files(given))

    def filled(self, /, *args: object, **kwargs: object) -> Command:
        """Return the command with arguments in all of its places.

        Raises:
            TypeError, ValueError: an argument is missing, has no place, or cannot be in that place.
        """
        arguments = Arguments(self.text, args, kwargs)
        made = self._with(arguments.fill)
        arguments.check_used()
        return made

    def _with(self, fill: Callable[..., str]) -> Command:
        """Return a copy with each text replaced that may have places."""

        def filled(value: Any) -> Any:  # a text is the content of a file, a path has places
            return Path(fill(os.fspath(value))) if isinstance(value, os.PathLike) else value

        made = copy.copy(self)
        made.words = [fill(word, is_line=self.is_shell) for word in self.words]
        made.env = {name: value and fill(value) for name, value in self.env.items()}
        made.cwd = self.cwd and fill(self.cwd)
        made.inputs = {name: filled(content) for name, content in self.inputs.items()}
        made.output_names = file_names("outputs", map(fill, self.output_names))
        made.destinations = {fill(name): fill(path) for name, path in self.destinations.items()}
        made.stdin = filled(self.stdin)
        made.stdout = fill(self.stdout) if isinstance(self.stdout, str) else self.stdout
        made.stderr = fill(self.stderr) if isinstance(self.stderr, str) else self.stderr
        return made

    def _run(self, files: Mapping[str, Input]) -> CommandResult:
        """Run it, with nothing left to be filled."""
        # It looks itself whether its task is to end: an exception in between could leave something.
        with closed_here(), contextlib.ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory())
            folder = self._folder(scratch)
            for name, content in files.items():
                put(Path(folder, name), name, content)
            stdin = os.devnull
            if self.stdin is not None:
                stdin = os.path.join(scratch, "stdin")
                put(Path(stdin), "stdin", self.stdin)
            stdout = self._opened(stack, folder, self.stdout)
            stderr: IO[bytes] | int | None = STDOUT  # also where both have one path
            if self.stderr is None or self.stderr != self.stdout:
                stderr = self._opened(stack, folder, self.stderr)
            usage = _usage()
            end = run_process(
                ["/bin/sh", "-c", self.words[0]] if self.is_shell else self.words,
                env=_environment(self.env),
                folder=folder,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                keep_nbytes=self.max_output,
                timeout_s=inf if self.timeout_s is None else self.timeout_s,
                is_wanted=_is_wanted(),
                seen=None if usage is None else partial(_note_memory, usage),
            )
            if usage is not None:
                _note_end(usage, end)
            if end.returncode and not _is_wanted()():
                raise TaskInterrupted
            result = CommandResult(
                *(self.text, end.returncode, end.stdout, end.stderr),
                wall_s=end.wall_s,
                cpu_s=end.cpu_s,
                peak_nbytes=end.peak_nbytes,
                read_nbytes=end.read_nbytes,
                written_nbytes=end.written_nbytes,
                is_cut=end.is_cut,
                is_late=end.is_late,
                worker=get_worker().name if is_in_task() else "",
            )
            if (end.returncode or end.is_late) and self.check:
                raise CommandFailed(result)
            outputs, moved, missing = self._collected(Path(folder).resolve())
            if missing and self.check:
                raise CommandFailed(result, tuple(missing))
        return replace(result, outputs=outputs, moved=moved)

    def _folder(self, scratch: str) -> str:
        """Return the folder in which it runs; one in its scratch directory is made."""
        if self.cwd is None:
            folder = os.path.join(scratch, "files")
            os.mkdir(folder)
            return folder
        folder = os.path.abspath(self.cwd)
        if not os.path.isdir(folder):
            there = f"worker {get_worker().name}" if is_in_task() else "this machine"
            raise FileNotFoundError(f"{folder}, the cwd= of {self.text!r}, is no folder of {there}")
        return folder

    def _files(self, given: Mapping[str, Input]) -> dict[str, Input]:
        """Return what its scratch directory is to have."""
        if given and self.cwd is not None:
            raise TypeError("inputs= are files of a scratch directory, and the command has a cwd=")
        files = {
            **self.inputs,
            **dict(zip(file_names("inputs", given), given.values(), strict=True)),
        }
        lacking = [name for name in self.input_names if name not in files]
        if lacking:
            example = f"inputs={{{lacking[0]!r}: ...}}"
            raise TypeError(f"the command needs the input {lacking[0]!r}: call it with {example}")
        return files

    def _opened(
        self, stack: contextlib.ExitStack, folder: str, place: str | int | None
    ) -> IO[bytes] | int | None:
        if not isinstance(place, str):
            return place
        return stack.enter_context(open(os.path.join(folder, place), "ab" if self.append else "wb"))

    def _collected(self, folder: Path) -> tuple[dict[str, bytes], dict[str, str], list[str]]:
        """Read or move the files that it has made.

        Returns:
            What was read, where the others are, and the names of missing ones.
        """
        outputs: dict[str, bytes] = {}
        moved: dict[str, str] = {}
        missing: list[str] = []
        for name in self.output_names:
            made = folder / name
            if made.is_dir() and self.check:
                raise IsADirectoryError(
                    f"the output {name!r} of {self.text!r} is a folder: name the files in it, or "
                    "pack it into one, as tar does"
                )
            if not made.is_file():
                missing.append(name)
            elif name in self.destinations:
                moved[name] = move(made, Path(self.destinations[name]))
            else:
                outputs[name] = made.read_bytes()
        return outputs, moved, missing


def _words(command: str | Iterable[str | os.PathLike[str] | float]) -> list[str]:
    if isinstance(command, (bytes, os.PathLike, Mapping)) or not isinstance(command, Iterable):
        kind = type(command).__name__
        raise TypeError(f"a command is a line for the shell, or a list of words, not {kind}")
    words = (
        [command]
        if isinstance(command, str)
        else [
            as_word(word, f"word {i}", "what a call gives to it has a place: {0}")
            for i, word in enumerate(command)
        ]
    )
    if not words or not words[0].strip():
        raise ValueError("the command is empty; give a line for the shell, or a list of words")
    for word in words:
        if "\0" in word:
            raise ValueError(f"a word of the command has a null character: {word!r}")
    return words


def _label(words: list[str], is_shell: bool) -> str:
    """Return the name of the program, as far as it can be seen."""
    first = words[0]
    if is_shell:
        first = next((word for word in first.split() if "=" not in word), first)
    return re.sub(r"[^\w.+-]", "", os.path.basename(first)) or "command"


def _checked_env(env: Mapping[str, str | None]) -> dict[str, str | None]:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, (str, type(None))):
            raise TypeError(f"env= has texts, or None to remove one, not {name!r}: {value!r}")
        if not name or "=" in name or "\0" in name + (value or ""):
            raise ValueError(f"no variable of an environment: {name!r}: {value!r}")
    return dict(env)


def _stream(option: str, value: Any, numbers: Mapping[int, str]) -> str | int | None:
    """Return where a stream goes: a path, one of these numbers, or None."""
    if value is None or (isinstance(value, int) and value in numbers):
        return value
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    names = " or ".join(f"subprocess.{name}" for name in numbers.values())
    raise ValueError(f"{option}= is a path, or {names}, not {value!r}")


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    env = {**os.environ, **changes}
    return {name: value for name, value in env.items() if value is not None}


def _usage() -> AttemptUsage | None:
    """Return where the task of this thread notes what it uses; None = there is no task."""
    task = get_worker().task if is_in_task() else None
    return None if task is None else usage_of(task)


def _note_memory(usage: AttemptUsage, nbytes: int) -> None:
    """Note the memory that the program has now, or has had."""
    usage.kind = OWN_PROCESS
    usage.peak_nbytes = max(usage.peak_nbytes, nbytes)


def _note_end(usage: AttemptUsage, end: ProcessEnd) -> None:
    """Add what a program has used that has ended."""
    _note_memory(usage, end.peak_nbytes or 0)
    usage.cpu_us += int(end.cpu_s * 1e6)
    usage.read_nbytes += end.read_nbytes
    usage.written_nbytes += end.written_nbytes


def _is_wanted() -> Callable[[], bool]:
    """Return a function that says whether the task of this thread is to go on."""
    if not is_in_task():
        return lambda: True
    here = get_worker()
    return lambda: not here.is_cancelled
