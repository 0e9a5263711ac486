"""How each invariant of passed on questions, and of visits, is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.protocol.wire.levels import Level
from weft.scheduler.core.insight.forwarded_questions import Passed, passed_of
from weft.scheduler.core.visitors.visits import Visit, visits_of


def other_worker(b: Any) -> Any:
    """Return a worker of another board."""
    return type(b)().w


#: {invariant: what breaks it}, of a `Broken` board
QUESTION_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "questions are passed on to registered processes": lambda b: passed_of(b.state).update(
        {other_worker(b): {1: Passed(b.w.peer, 1, "logs")}}
    ),
    "a process that was asked is connected": lambda b: (
        passed_of(b.state).update({b.w: {1: Passed(1, 1, "logs")}}),
        b.state.roles.pop(b.w.peer),
        b.state.levels.pop(b.w.peer),
    ),
    "the peer whose question is passed on is connected": lambda b: passed_of(b.state).update(
        {b.w: {1: Passed(99, 1, "logs")}}
    ),
    "an asked process has few questions, and at least one": lambda b: passed_of(b.state).update(
        {b.w: {}}
    ),
    "there are few visits, of clients and admins": lambda b: visits_of(b.state).by_number.update(
        {"1": Visit(Level.VIEW, "", "", 0.0)}
    ),
}
