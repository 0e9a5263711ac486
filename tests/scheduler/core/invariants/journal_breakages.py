"""How each invariant of the journal is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.journal.jobs import journal_of

#: {invariant: what breaks it}, of a `Broken` board
JOURNAL_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "the journal wants its jobs, and no other tasks": lambda b: journal_of(b.state).jobs.update(
        {"memory": "made"}
    ),
    "results that are to be recorded are counted": lambda b: setattr(
        journal_of(b.state), "unrecorded_nbytes", 1
    ),
    "clients are noted of the jobs whose beginning is not recorded, and of no others": (
        lambda b: journal_of(b.state).submitters.update({"memory": b.alice.alone})
    ),
    "entries of the journal are handed over with the event": lambda b: journal_of(b.state).batch(),
    "ends of jobs are asked for with the event": lambda b: journal_of(b.state).reading.update(
        {"a": None}
    ),
}
