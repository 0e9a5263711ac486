"""How each invariant of interruptions is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.interruption import interrupted
from weft.scheduler.core.interruption.withdrawing import withdrawals_of

#: {invariant: what breaks it}, of a `Broken` board
INTERRUPTION_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "withdrawn attempts are of registered workers": lambda b: withdrawals_of(b.state).update(
        {type(b)().w: {}}
    ),
    "interrupted lists zombies of workers": lambda b: interrupted.interruptions_of(b.state).update(
        {9999: interrupted.InterruptedAttempt(b.w, "x", "why", 0.0, None)}
    ),
    "interruption is busy iff an attempt is interrupted": lambda b: b.state.busy.update(
        {interrupted.Interruptions: None}
    ),
}
