"""Helpers for the invariants of the scheduler's core: counting and comparing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ..records.tasks import SchedulerTask

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState


def unless(holds: bool, found: object) -> list[object]:
    return [] if holds else [found]


def differences(found: Iterable[Any], expected: Iterable[Any]) -> list[Any]:
    """Return the members that one of two collections has more often than the other."""
    in_found, in_expected = [*found], [*expected]
    if in_found == in_expected:  # the rule: counters are many times dearer
        return []
    n_found, n_expected = Counter(in_found), Counter(in_expected)
    return [*(n_found - n_expected), *(n_expected - n_found)]


def tasks_in(state: SchedulerState, *names: str) -> Collection[SchedulerTask]:
    tasks = state.tasks.values()
    return [task for task in tasks if task.state in names] if names else tasks


def is_due(deadline: Deadline | None) -> bool:
    """Return whether something is yet to come."""
    return deadline is not None and deadline.is_pending


def in_order(times: Iterable[float]) -> list[object]:
    """Return times that are not in order; nothing if they are."""
    times = list(times)
    return unless(times == sorted(times), times)
