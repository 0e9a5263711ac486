"""Notes that a worker leaves for its supervisor, beside its record of started attempts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from .shadowing import describe_hiding

#: Kinds of notes, by the suffix of their files: why the scheduler refused the worker, why weft's
#: own code failed in it, which error ended it, and which signal ended it in order.
REFUSED: Final = ".refused"
CRASHED: Final = ".crashed"
FAILED: Final = ".failed"
SIGNALLED: Final = ".signal"
#: A note of the supervisor for the worker: why it sends it a signal to leave.
ASKED: Final = ".asked"
#: The stack that a worker's interpreter writes when a signal like SIGSEGV ends it.
FAULT: Final = ".fault"


def note(record: Path | None, kind: str, text: str) -> None:
    """Write a note where the supervisor looks."""
    if record is not None:
        record.with_suffix(kind).write_text(text, "utf-8", "backslashreplace")


def note_failure(record: Path, error: BaseException) -> None:
    """Write the error that ends the worker, if that is possible."""
    hiding = describe_hiding(error)
    text = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):  # which may be the same error: no space, no permission
        note(record, FAILED, f"{hiding} ({text})" if hiding else text)


def take_note(record: Path, kind: str) -> str:
    """Return the text of a note, "" if there is none; remove it."""
    path = record.with_suffix(kind)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    path.unlink()
    return text


def take_failure(record: Path) -> str:
    """Return the error that has ended a worker, "" if none is known; remove the note.

    The same error has the same text in each worker: the id is left out of names of files.
    """
    return take_note(record, FAILED).replace(record.stem, "(id)")


def ask_because(record: Path, reason: str) -> None:
    """Note why a worker gets a signal to leave: it tells the scheduler that, not the signal."""
    with contextlib.suppress(OSError):  # no space: the worker names the signal instead
        note(record, ASKED, reason)


def asked_because(record: Path | None) -> str:
    """Return why the supervisor has asked this worker to leave; "" = it is not known to."""
    with contextlib.suppress(OSError):
        return "" if record is None else take_note(record, ASKED)
    return ""
