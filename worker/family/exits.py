"""The notes that a worker leaves for its supervisor."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from .shadowing import describe_hiding

#: Suffix of the file to which a worker's interpreter writes its stack when a signal like SIGSEGV
#: ends it; beside the record of started attempts.
FAULT_SUFFIX: Final = ".fault"
#: Frames that are shown of that stack.
_N_FRAMES: Final = 3
_FRAME: Final = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$', re.M)
#: Frames of weft's own code, which called the task.
_OWN_FOLDER: Final = str(Path(__file__).resolve().parent.parent) + "/"


def note_refusal(record: Path | None, reason: str) -> None:
    """Write the reason beside the record of started attempts, where the supervisor looks."""
    _note(record, ".refused", reason)


def read_refusal(record: Path) -> str:
    """Return the reason that a refused worker left, "" if it left none; remove the note."""
    return _read(record, ".refused")


def note_crash(record: Path | None, reason: str) -> None:
    """Write the reason why weft's own code failed, as `note_refusal` does."""
    _note(record, ".crashed", reason)


def read_crash(record: Path) -> str:
    """Return why weft's own code failed, "" if nothing was noted; remove the note."""
    return _read(record, ".crashed")


def note_failure(record: Path, error: BaseException) -> None:
    """Write the error that ends the worker, as `note_refusal` does, if that is possible."""
    hiding = describe_hiding(error)
    text = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):  # which may be the same error: no space, no permission
        _note(record, ".failed", f"{hiding} ({text})" if hiding else text)


def read_failure(record: Path) -> str:
    """Return the error that has ended a worker, "" if none is known; remove the note.

    The same error has the same text in each worker: the id is left out of names of files.
    """
    return _read(record, ".failed").replace(record.stem, "(id)")


def note_signal(record: Path | None, name: str) -> None:
    """Write which signal ended the worker in order, as `note_refusal` does."""
    _note(record, ".signal", name)


def read_signal(record: Path) -> str:
    """Return the signal that ended a worker in order, "" if none did; remove the note."""
    return _read(record, ".signal")


def read_fault(record: Path) -> str:
    """Return where a task was when a signal ended the interpreter; remove the note.

    Returns:
        For example "in string_at (__init__.py:519), from f (script.py:3)"; "" if nothing is known.
    """
    frames = []
    for frame in _FRAME.finditer(_read(record, FAULT_SUFFIX)):
        if frame["file"].startswith(_OWN_FOLDER):
            break
        frames.append(f"{frame['name']} ({Path(frame['file']).name}:{frame['line']})")
    return f"in {', from '.join(frames[:_N_FRAMES])}" if frames else ""


def _note(record: Path | None, suffix: str, reason: str) -> None:
    if record is not None:
        record.with_suffix(suffix).write_text(reason, "utf-8", "backslashreplace")


def _read(record: Path, suffix: str) -> str:
    note = record.with_suffix(suffix)
    try:
        reason = note.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    note.unlink()
    return reason
