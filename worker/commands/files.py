"""The files of a command: its scratch directory, what is put there and what is taken from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias, Union

from ...protocol.errors.commands import CommandResult
from ..slots.scratch import scratch_parent

#: Contents that begin so may be executed: scripts, and programs.
_OF_PROGRAMS: Final = (b"#!", b"\x7fELF")
_ENCODING: Final = "utf-8"


#: What a file of a scratch directory may be made of; see `Command`.
Input: TypeAlias = Union[bytes, bytearray, memoryview, str, "os.PathLike[str]", CommandResult]


def file_names(option: str, files: Mapping[str, Any] | Iterable[str]) -> list[str]:
    """Return the names of files that an option has.

    Raises:
        TypeError, ValueError: one is none, or is outside of a scratch directory.
    """
    if isinstance(files, (str, bytes)):
        raise TypeError(f"{option}= is a list of names, or a dict by name, not {files!r}")
    names = list(files)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{option}= has names of files, not {name!r}")
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
            raise ValueError(
                f"{option}= has names of files in a scratch directory, not {name!r}; give a path "
                "of the worker as a value: {'name': Path(...)}"
            )
    return names


def put(path: Path, name: str, content: Input) -> None:
    """Make one file of a scratch directory."""
    if isinstance(content, CommandResult):
        made: dict[str, Any] = {**content.outputs}
        made.update((name, Path(path)) for name, path in content.moved.items())
        if name not in made:
            raise TypeError(
                f"the input {name!r} is the result of {content.command!r}, which has no output of "
                f"that name, but {list(made)}"
            )
        content = made[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode(_ENCODING)
    if isinstance(content, (bytes, bytearray, memoryview)):
        path.write_bytes(content)
        if bytes(content[:4]).startswith(_OF_PROGRAMS):
            path.chmod(0o755)
    elif isinstance(content, os.PathLike):
        source = Path(content).absolute()
        if not source.exists():
            raise FileNotFoundError(f"the input {name!r} is to be {source}, which is not there")
        path.symlink_to(source)
    else:
        raise TypeError(
            f"the input {name!r} is a str, bytes, a Path or the result of a command, not "
            f"{type(content).__name__}"
        )


def move(made: Path, destination: Path) -> str:
    """Move a file of a resolved folder, and return where it is now.

    It goes by way of one beside its destination, which so is whole at any time.
    """
    destination = destination.absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".weft-", dir=destination.parent) as beside:
        there = Path(beside, "made")
        # What a link leads to may be removed with the folder, or be an input of the worker.
        (shutil.move if made.resolve() == made else shutil.copy)(made, there)
        there.replace(destination)
    return str(destination)


@contextlib.contextmanager
def scratch_directory() -> Iterator[str]:
    """Make a folder, which is removed with the worker at the latest."""
    with tempfile.TemporaryDirectory(
        prefix="command-", dir=scratch_parent(), ignore_cleanup_errors=True
    ) as folder:
        yield folder
