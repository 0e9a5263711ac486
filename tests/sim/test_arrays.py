"""The simulated arrays: what a start of the scheduler can know of rows that have ended."""

from __future__ import annotations

import pytest

from weft.protocol.array_rows import key_of_row
from weft.scheduler.core.journal.entries import RowsChanged

from .simulation import Simulation

DONE = 1


def test_a_row_that_is_done_on_record_is_assigned_only_by_a_scheduler_that_was_suspended_before():
    sim = Simulation(1)
    arrays, first = sim.arrays, sim.scheduler
    arrays._parts["array"] = [[0, 3, 1, 0]]
    arrays.apply(RowsChanged("array", {0: DONE}))
    sim._suspend_scheduler()
    arrays.apply(RowsChanged("array", {1: DONE}))
    for row in "0", "1":
        with pytest.raises(AssertionError, match="is done on record"):
            arrays.check_assigned(sim.scheduler, key_of_row("array", row))
    with pytest.raises(AssertionError, match="is done on record"):
        arrays.check_assigned(first, key_of_row("array", "0"))
    arrays.check_assigned(first, key_of_row("array", "1"))
    arrays.check_assigned(sim.scheduler, key_of_row("array", "2"))


def test_a_suspended_scheduler_that_begins_again_knows_what_is_on_record_then():
    sim = Simulation(1)
    arrays, first = sim.arrays, sim.scheduler
    arrays._parts["array"] = [[0, 2, 1, 0]]
    sim._suspend_scheduler()
    arrays.apply(RowsChanged("array", {0: DONE}))
    arrays.check_assigned(first, key_of_row("array", "0"))
    sim.journal.read(first)
    with pytest.raises(AssertionError, match="is done on record"):
        arrays.check_assigned(first, key_of_row("array", "0"))
