"""When a child has run long enough, by the numbers that it reports."""

from __future__ import annotations

from weft.worker.isolation.recycling import Recycling
from weft.worker.policy import Isolation, isolation_of

MB = 1_000_000


def reasons(isolation, memory):
    recycling = Recycling(isolation)
    return [recycling.note_idle(nbytes) for nbytes in memory]


def test_a_child_without_bounds_is_never_replaced():
    assert not any(reasons(Isolation("module"), [10 * MB, 10_000 * MB] * 100))


def test_a_child_is_replaced_after_the_last_call_that_it_may_run():
    isolation = Isolation("module", max_tasks=3)
    assert reasons(isolation, [MB] * 3) == ["", "", "it has run 3 calls"]


def test_memory_that_the_first_call_takes_is_no_drift():
    isolation = Isolation("module", max_drift=50 * MB)
    *before, last = reasons(isolation, [200 * MB, 250 * MB, 100 * MB, 251 * MB])
    assert before == ["", "", ""]
    assert last == "its memory has grown by 48.6 MiB in 4 calls"


def test_memory_that_is_not_known_is_no_drift():
    assert reasons(Isolation("module", max_drift=MB), [0, 0, 200 * MB, 0]) == [""] * 4


def test_a_bound_of_zero_is_none():
    assert isolation_of("module", None) is None
    assert isolation_of("module", [0, 0]) == Isolation("module")
    assert isolation_of("module", [3, 5]) == Isolation("module", 3, 5)
