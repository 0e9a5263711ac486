"""The limits of the product in a run, tiny ones show what happens at them; and its pickles."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import weft.client.core.fetching
import weft.client.core.submitting
import weft.scheduler.core.assignment.assignment
import weft.scheduler.core.coordination.cycles
import weft.scheduler.core.data.relays
import weft.scheduler.core.memory.full
import weft.worker.core.fetching
import weft.worker.core.seats
import weft.worker.core.slots
from weft.scheduler.core.arrays import running as running_arrays
from weft.scheduler.core.categories import stragglers
from weft.scheduler.core.journal import resubmission
from weft.scheduler.core.promises import feature as promises
from weft.scheduler.core.recurring import feature as recurring_jobs

from . import arrays
from .graphs import Constants
from .memory import Limits
from .plan import Plan
from .recurring import GRACE_S, Recurring


def of_modules(plan: Plan, memory: Limits | None, recurring: Recurring) -> ExitStack:
    """Set the limits of a run in the modules that have them, until the stack is closed."""
    limits = plan.limits
    stack = ExitStack()
    constants = Constants()
    swing = weft.scheduler.core.memory.full.SWING_NBYTES if memory is None else memory.swing
    for module, name, value in (
        (weft.client.core.submitting, "MAX_TASKS", limits["client.max_tasks"]),
        (weft.client.core.fetching, "MAX_NBYTES_IN_FLIGHT", limits["client.in_flight"]),
        (weft.worker.core.fetching, "REQUEST_KEYS", limits["worker.request_keys"]),
        (weft.worker.core.fetching, "IN_FLIGHT_BYTES", limits["worker.in_flight"]),
        (weft.worker.core.slots, "CHUNK_US", float(limits["worker.chunk_us"])),
        (weft.worker.core.seats, "MANY_BLOCKED", limits["worker.many_blocked"]),
        (weft.scheduler.core.data.relays, "MAX_RELAYED_BYTES", limits["scheduler.relayed"]),
        (weft.scheduler.core.assignment.assignment, "MAX_ASKING", 2),
        (promises, "LONGEST_NS", limits["scheduler.promised_ms"] * 10**6),
        (promises, "LEAST_FINISHED", limits["scheduler.promised_of"]),
        # All members of a cycle are named: see `task_clients.py`.
        (weft.scheduler.core.coordination.cycles, "MAX_NAMED", 1000),
        (weft.scheduler.core.memory.full, "SWING_NBYTES", swing),
        (recurring_jobs, "GRACE_S", GRACE_S if recurring.are_some else recurring_jobs.GRACE_S),
        # Most tasks are shorter than a second.
        (stragglers, "LEAST_ENDED", 1),
        (stragglers, "LEAST_RUN_S", 0.05),
        (stragglers, "LOOK_S", 0.05),
        (running_arrays, "WINDOW", arrays.WINDOW),
        (running_arrays, "LEAST_WINDOW", arrays.LEAST_WINDOW),
        # Values are no pickles here.
        (running_arrays, "arguments_of", arrays.arguments_of),
        (resubmission, "CONSTANT_ID", constants.function[0]),
        (resubmission, "CONSTANT_BLOB", constants.function[1]),
        (resubmission, "arguments_of", constants.arguments),
    ):
        stack.enter_context(patch.object(module, name, value))
    return stack


__all__ = ["of_modules"]
