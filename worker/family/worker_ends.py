"""Collects what is known about a worker process that has ended, and removes what it left.

A part of the shell. Notes are removed as they are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...protocol.wire.address import parse_address
from ..config import socket_path
from ..measuring.numbers import SUFFIX
from ..slots.silence import STACK_SUFFIX
from ..slots.started import read_joined, read_left, read_served, read_started
from .exits import CRASHED, FAULT, REFUSED, SIGNALLED, take_failure, take_note
from .places import Place
from .restarts import WorkerExit

#: Frames that are shown of the stack of an interpreter that a signal has ended.
_N_FRAMES: Final = 3
_FRAME: Final = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$', re.M)
#: Frames of weft's own code, which called the task.
_OWN_FOLDER: Final = str(Path(__file__).resolve().parent.parent) + "/"


def exit_of(place: Place, code: int, lived_s: float, *, is_embedded: bool) -> WorkerExit:
    """Return the facts about the process that has ended in a place.

    Args:
        place: its place.
        code: its exit code, a negative one is a signal.
        lived_s: since its start.
        is_embedded: the family is that of a program.
    """
    record = place.record
    return WorkerExit(
        code=code,
        lived_s=lived_s,
        running=read_started(record),
        served=read_served(record),
        verdict=place.verdict,
        crash=take_note(record, CRASHED),
        refusal=take_note(record, REFUSED),
        fault=fault_in(take_note(record, FAULT)),
        # Without a program whose workers they are, a signal to one is the user's wish.
        signal=take_note(record, SIGNALLED) if is_embedded else "",
        failure=take_failure(record),
        has_joined=read_joined(record),
        has_left=read_left(record),
    )


def fault_in(stack: str) -> str:
    """Return where a task was when a signal ended the interpreter.

    Returns:
        For example "in string_at (__init__.py:519), from f (script.py:3)"; "" if nothing is known.
    """
    frames = []
    for frame in _FRAME.finditer(stack):
        if frame["file"].startswith(_OWN_FOLDER):
            break
        frames.append(f"{frame['name']} ({Path(frame['file']).name}:{frame['line']})")
    return f"in {', from '.join(frames[:_N_FRAMES])}" if frames else ""


def remove_files(place: Place, addresses: Sequence[str]) -> None:
    """Remove the files of a worker that has ended. `addresses` are those of the scheduler."""
    place.record.unlink(missing_ok=True)
    for suffix in (STACK_SUFFIX, SUFFIX):
        place.record.with_suffix(suffix).unlink(missing_ok=True)
    for address in map(parse_address, addresses):
        if address.scheme == "unix":  # a killed worker leaves its socket
            socket_path(address.host, place.worker_id).unlink(missing_ok=True)
