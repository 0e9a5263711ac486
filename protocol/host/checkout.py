"""The commit of the git checkout that this weft runs from, if it runs from one.

An editable install names the commit at which it was made, and goes on naming it when the checkout
moves on. So the commit is read where git keeps it, in small files, without git: a process that
starts must not start another one. deploy/docker/install.sh runs this file by its path, so it
imports nothing of weft.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

_HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: As in the versions that setuptools-scm makes.
_N_DIGITS: Final = 9


@functools.cache
def running_commit() -> str:
    """Return the beginning of its hash, "" = this is no checkout, or it has no commit.

    It is read once, when the process registers, because the code that it has imported stays what
    it was when the checkout moves on.
    """
    return commit_of(Path(__file__).resolve().parents[2])


def commit_of(root: Path) -> str:
    """Return the beginning of the hash of HEAD of the checkout at `root`, "" = there is none."""
    try:
        return _head(root)[:_N_DIGITS]
    except (OSError, UnicodeDecodeError):
        return ""


def _head(root: Path) -> str:
    git = root / ".git"
    if git.is_file():  # of a worktree or a submodule: it names the folder
        git = root / _read(git).partition("gitdir: ")[2]
    common = git / "commondir"
    shared = git / _read(common) if common.exists() else git
    _, is_reference, name = (head := _read(git / "HEAD")).partition("ref: ")
    if not is_reference:
        return _checked(head)
    for place in (git / name, shared / name):
        if place.is_file():
            return _checked(_read(place))
    for line in _read(shared / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return _checked(commit)
    return ""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _checked(text: str) -> str:
    return text if _HASH.fullmatch(text) else ""
