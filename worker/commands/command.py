"""`weft.Command`: a program as the function of a task."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from ...protocol.errors.commands import CommandFailed, CommandResult
from ...protocol.settings.kinds import Size
from ..context import get_worker, is_in_task
from ..slots.interrupting import TaskInterrupted, closed_here
from .files import Input, file_names, move, put, scratch_directory
from .process_group import run_process

#: `{0}` and `{name}`: the place of an argument of the call.
_FIELD: Final = re.compile(r"\{(\w+)\}")


class Command:
    """A program to run as a task: `client.submit(weft.Command("sort {0}"), "names.txt")`.

    Each call runs in a *scratch directory* of its own, which is removed after it. Files are put
    there before (`inputs`) and taken from there after it (`outputs`), so programs need no common
    file system. When the task is cancelled, runs for too long, or loses its worker, the program and
    all that it has started are ended.

    Args:
        command: a line for the shell, or a list: the program and its arguments. `{0}`, `{1}` and
            `{name}` in it stand for arguments of the call, quoted for the shell. Other braces are
            left alone.
        env: variables beside those of the worker; None as a value removes one.
        cwd: a folder of the worker in which it runs, in the place of a scratch directory.
        inputs: `{name: content}` of files for it. A str or bytes is the content, a `Path` is a file
            of the worker, and a result of another command gives the output of that name. Or the
            names alone, in which case each call gives the contents, which may be futures:
            `client.submit(command, inputs={"names.txt": future})`.
        outputs: names of files that it makes, for `CommandResult.outputs`. Or `{name: Path}`, to
            move each to a path of the worker, which is a whole file at any time.
        stdin: what it reads, as a str or bytes, or a `Path` of the worker; None = nothing.
        stdout: a path of the worker to write what it prints to; None = keep that.
        stderr: the same for its errors; `subprocess.STDOUT` = where `stdout` goes.
        append: add to these files, instead of writing them anew.
        max_output: how much is kept of what it prints: the last bytes of each stream.
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
        command: str | Iterable[str | os.PathLike[str]],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, Input] | Iterable[str] = (),
        outputs: Iterable[str] | Mapping[str, str | os.PathLike[str]] = (),
        stdin: str | bytes | os.PathLike[str] | None = None,
        stdout: str | os.PathLike[str] | None = None,
        stderr: str | os.PathLike[str] | int | None = None,
        append: bool = False,
        max_output: int | str = "1MiB",
        check: bool = True,
    ) -> None:
        self.is_shell = isinstance(command, str)
        self.words = _words(command)
        self.env = {} if env is None else _checked_env(env)
        self.cwd = None if cwd is None else os.fspath(cwd)
        self.inputs = dict(inputs) if isinstance(inputs, Mapping) else {}
        self.input_names = file_names("inputs", inputs)
        self.output_names = file_names("outputs", outputs)
        self.destinations = (
            {name: os.fspath(path) for name, path in outputs.items()}
            if isinstance(outputs, Mapping)
            else {}
        )
        self.stdin = stdin
        self.stdout = None if stdout is None else os.fspath(stdout)
        if isinstance(stderr, int) and stderr != subprocess.STDOUT:
            raise ValueError(f"stderr= is a path, or subprocess.STDOUT, not {stderr!r}")
        self.stderr = stderr if stderr is None or isinstance(stderr, int) else os.fspath(stderr)
        self.append = append
        self.max_output = Size().read(max_output, "max_output")
        self.check = check
        if self.cwd is not None and (self.input_names or self.output_names):
            raise ValueError(
                "inputs= and outputs= are files of a scratch directory, and cwd= takes its place; "
                "leave one of them out"
            )
        #: The label of its tasks.
        self.__name__ = _label(self.words, self.is_shell)

    def __repr__(self) -> str:
        return f"<Command {self._text(self.words)!r}>"

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters of a call: `submit` tells them from its own options by this."""
        named = [name for word in self.words for name in _FIELD.findall(word)]
        names = ["inputs", *(name for name in dict.fromkeys(named) if name.isidentifier())]
        parameters = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
        parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        return inspect.Signature(parameters)

    def __call__(
        self, /, *args: object, inputs: Mapping[str, Input] | None = None, **kwargs: object
    ) -> CommandResult:
        """Run it here, and return what it has printed, made and used.

        Args:
            args: for `{0}`, `{1}`, ... in the command.
            inputs: files for its scratch directory, beside those that the command has.
            kwargs: for the names in the command.

        Raises:
            CommandFailed: its exit code is not 0, or it has not made a file.
            TypeError: the command has no place for an argument, or an input is missing or wrong.
            ValueError: the place for an argument is inside quotes.
            OSError: a file of this machine cannot be read or written.
        """
        words = self.words_for(args, kwargs)
        files = self._files({} if inputs is None else inputs)
        shown = self._text(words)
        if self.is_shell:
            words = ["/bin/sh", "-c", words[0]]
        # It looks itself whether its task is to end: an exception in between could leave something.
        with closed_here(), contextlib.ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory())
            folder = self.cwd
            if folder is None:
                folder = os.path.join(scratch, "files")
                os.mkdir(folder)
            for name, content in files.items():
                put(Path(folder, name), name, content)
            stdin = os.devnull
            if self.stdin is not None:
                stdin = os.path.join(scratch, "stdin")
                put(Path(stdin), "stdin", self.stdin)
            stderr = self.stderr
            end = run_process(
                words,
                env=_environment(self.env),
                folder=folder,
                stdin=stdin,
                stdout=self._opened(stack, self.stdout),
                stderr=stderr if isinstance(stderr, int) else self._opened(stack, stderr),
                keep_nbytes=self.max_output,
                is_wanted=_is_wanted(),
            )
            if end.returncode and not _is_wanted()():
                raise TaskInterrupted
            result = CommandResult(
                *(shown, end.returncode, end.stdout, end.stderr),
                wall_s=end.wall_s,
                cpu_s=end.cpu_s,
                peak_nbytes=end.peak_nbytes,
                read_nbytes=end.read_nbytes,
                written_nbytes=end.written_nbytes,
                is_cut=end.is_cut,
                worker=get_worker().name if is_in_task() else "",
            )
            if end.returncode and self.check:
                raise CommandFailed(result)
            outputs, missing = self._collected(Path(folder))
            if missing and self.check:
                raise CommandFailed(result, tuple(missing))
        return replace(result, outputs=outputs)

    def _text(self, words: list[str]) -> str:
        return words[0] if self.is_shell else shlex.join(words)

    def words_for(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[str]:
        """Return the words with arguments in their places."""
        given: dict[str, object] = {str(i): value for i, value in enumerate(args)} | dict(kwargs)
        used: set[str] = set()

        def value_of(match: re.Match[str]) -> str:
            name = match[1]
            if name not in given:
                return match[0]
            used.add(name)
            text = _as_word(name, given[name])
            if self.is_shell and _is_quoted(match.string, match.start()):
                raise ValueError(
                    f"{match[0]} stands inside quotes in {match.string!r}: leave the quotes out, "
                    "each argument is quoted anyway"
                )
            return shlex.quote(text) if self.is_shell else text

        words = [_FIELD.sub(value_of, word) for word in self.words]
        left = [name for name in given if name not in used]
        if left:
            raise TypeError(
                f"the command {self._text(self.words)!r} has no {{{left[0]}}} for the argument "
                f"{left[0]}"
            )
        return words

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

    def _opened(self, stack: contextlib.ExitStack, path: str | None) -> IO[bytes] | None:
        if path is None:
            return None
        whole = os.path.join(self.cwd or "", path)
        return stack.enter_context(open(whole, "ab" if self.append else "wb"))

    def _collected(self, folder: Path) -> tuple[dict[str, bytes], list[str]]:
        """Read or move the files that it has made; return those read, and names of missing ones."""
        outputs: dict[str, bytes] = {}
        missing: list[str] = []
        for name in self.output_names:
            made = folder / name
            if not made.is_file():
                missing.append(name)
            elif name in self.destinations:
                move(made, Path(self.destinations[name]))
            else:
                outputs[name] = made.read_bytes()
        return outputs, missing


def _is_quoted(line: str, place: int) -> bool:
    """Return whether a place of a line for the shell is inside quotes."""
    quote = ""
    i = 0
    while i < place:
        char = line[i]
        if char == "\\" and quote != "'":
            i += 1  # the next one is taken as it is
        elif not quote and char in "'\"":
            quote = char
        elif char == quote:
            quote = ""
        i += 1
    return bool(quote)


def _words(command: str | Iterable[str | os.PathLike[str]]) -> list[str]:
    words = [command] if isinstance(command, str) else [os.fspath(word) for word in command]
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


def _as_word(name: str, value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        value = os.fspath(value)
    if isinstance(value, (bool, int, float, str)):
        return str(value)
    raise TypeError(
        f"the argument {name} of a command is a text, a number or a path, not "
        f"{type(value).__name__}; data goes into a file: inputs={{'name': data}}"
    )


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    env = {**os.environ, **changes}
    return {name: value for name, value in env.items() if value is not None}


def _is_wanted() -> Callable[[], bool]:
    """Return a function that says whether the task of this thread is to go on."""
    if not is_in_task():
        return lambda: True
    here = get_worker()
    return lambda: not here.is_cancelled
