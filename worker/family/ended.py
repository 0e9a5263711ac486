"""Collects what is known about a worker process that has ended: from its place, and what it left.

A part of the shell. Notes are removed as they are read.
"""

from __future__ import annotations

from ..slots.started import read_joined, read_left, read_served, read_started
from .exits import read_crash, read_failure, read_fault, read_refusal, read_signal
from .places import Place
from .restarts import WorkerExit


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
        crash=read_crash(record),
        refusal=read_refusal(record),
        fault=read_fault(record),
        # Without a program whose workers they are, a signal to one is the user's wish.
        signal=read_signal(record) if is_embedded else "",
        failure=read_failure(record),
        has_joined=read_joined(record),
        has_left=read_left(record),
    )
