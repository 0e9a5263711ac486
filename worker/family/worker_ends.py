"""Collects what is known about a worker process that has ended, and removes what it left.

A part of the shell. Notes are removed as they are read.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...protocol.death_facts import DeathFacts, last_lines_of
from ...protocol.host.log_tail import SUFFIX as LOG_SUFFIX
from ...protocol.host.log_tail import read_tail
from ...protocol.wire.address import parse_address
from ..config import scratch_folder, socket_path, spill_folder
from ..measuring.numbers import SUFFIX
from ..slots.silence import STACK_SUFFIX
from ..slots.started import read_joined, read_left, read_served, read_started
from .exits import ASKED, CRASHED, FAULT, REFUSED, SIGNALLED, take_failure, take_note
from .oom_kills import OomClaims, kills_since
from .places import Place
from .restarts import WorkerExit

#: Frames that are shown of the stack of an interpreter that a signal has ended.
_N_FRAMES: Final = 3
_FRAME: Final = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$', re.M)
#: Frames of weft's own code, which called the task.
_OWN_FOLDER: Final = str(Path(__file__).resolve().parent.parent) + "/"


def exit_of(
    place: Place, code: int, peak_nbytes: int, claims: OomClaims, *, is_embedded: bool
) -> WorkerExit:
    """Return the facts about the process that has ended in a place.

    Args:
        place: its place.
        code: its exit code, a negative one is a signal.
        peak_nbytes: its largest resident memory, 0 = not known.
        claims: of its family.
        is_embedded: the family is that of a program.
    """
    record = place.record
    n_oom_kills = kills_since(place.oom)
    is_foreign_kill = code == -signal.SIGKILL and not (place.verdict or place.ended_for)
    log = read_tail(record.with_suffix(LOG_SUFFIX))
    return WorkerExit(
        code=code,
        lived_s=time.monotonic() - place.started,
        running=read_started(record),
        served=read_served(record),
        verdict=place.verdict,
        crash=take_note(record, CRASHED),
        refusal=take_note(record, REFUSED),
        fault=fault_in(take_note(record, FAULT)),
        signal=take_note(record, SIGNALLED),
        may_leave=not is_embedded,
        failure=take_failure(record),
        has_joined=read_joined(record),
        has_left=read_left(record),
        is_oom_kill=is_foreign_kill and claims.claim(place.oom, n_oom_kills),
        facts=DeathFacts(peak_nbytes or None, n_oom_kills, (), last_lines_of(log)),
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
    for suffix in (STACK_SUFFIX, SUFFIX, LOG_SUFFIX, ASKED):
        place.record.with_suffix(suffix).unlink(missing_ok=True)
    for address in map(parse_address, addresses):
        if address.scheme == "unix":  # a killed worker leaves its socket
            socket_path(address.host, place.worker_id).unlink(missing_ok=True)


def folders_of(place: Place) -> list[Path]:
    """Return the folders that a worker has left: they are removed with it, which takes a while."""
    options, worker_id = place.spec.options, place.worker_id
    folders = [
        folder(Path(options[name]), worker_id)
        for name, folder in (("spill_directory", spill_folder), ("local_directory", scratch_folder))
        if options.get(name)
    ]
    return [folder for folder in folders if folder.exists()]
