"""Jobs of the journal as questions are answered, and as commands print them."""

from __future__ import annotations

import time
from typing import Any, Final

import msgpack

from ...protocol.array_rows import ArrayRows
from ...protocol.errors import InvalidSchedule
from ...protocol.recurrence import upcoming_ms
from ..core.journal.entries import PENDING

#: A job whose result is with workers, as the database has it.
MADE: Final = "made"
#: The states of jobs that have not ended, or whose result is not recorded.
OPEN: Final = (PENDING, MADE)
#: of a job, which `described` reads
COLUMNS: Final = "number, key, name, client, user_name, state, submitted, ended, nbytes, options"
#: ... in a database of form 1
COLUMNS_1: Final = COLUMNS.replace("user_name", "'' AS user_name")


def described(row: Any) -> dict[str, Any]:
    """Return a job as questions are answered; `row` has the `COLUMNS`."""
    number, key, name, client, user, state, submitted, ended, nbytes, packed = row
    options = msgpack.unpackb(packed)
    return {
        **_special(state, options),
        "queue": options.get("job_queue", ""),
        "number": number,
        "key": key,
        "name": name,
        "client": client,
        "user": user,
        "state": "done" if state == MADE else state,
        "submitted": submitted,
        "ended": ended,
        "nbytes": nbytes,
        "is_recorded": state not in OPEN,
    }


def _special(state: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what only arrays and recurring jobs have."""
    if rows := options.get("array"):
        return {"n_rows": ArrayRows(rows).n}
    return _recurring(options) if state == PENDING else {}


def _recurring(options: dict[str, Any]) -> dict[str, Any]:
    """Return the times of a job that has not ended, if it is recurring."""
    cron = options.get("cron")
    if not cron:
        return {}
    try:
        next_ms = upcoming_ms(cron, round(time.time() * 1000))
    except InvalidSchedule:  # its zone is not known here
        next_ms = None
    return {"cron": cron["expression"], "next": None if next_ms is None else next_ms / 1000}
