"""How each invariant of categories is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.categories.allotting import hold
from weft.scheduler.core.categories.recording import unrecorded_of
from weft.scheduler.core.categories.records import (
    CategoryRecord,
    Stragglers,
    categories_of,
    make_category,
)
from weft.scheduler.core.ends.measured import MAX_TASKS, MeasuredUse, latest_use
from weft.scheduler.core.moves.transitions import move
from weft.scheduler.core.records.tasks import WAITING

_CATEGORY = {"name": "c", "mode": "fixed", "max_nbytes": 0}


def unlisted(b: Any) -> None:
    """Let a task wait for a category that does not list it."""
    task = b.task("aside")
    task.group.options = task.group.options.changed(category=_CATEGORY)
    move(b.state, task, WAITING)
    hold(b.state, task)
    task.waiting_on = {}


def waiting(b: Any) -> CategoryRecord:
    """Let a category have a row."""
    category = make_category(b.state, "c")
    category.waiting.append((0, 1, b.task("memory")))
    return category


def held(b: Any) -> None:
    """Let a task that was given amounts be in the class in which it waits for them."""
    task = b.task("aside")
    options = task.group.options.changed(category=_CATEGORY)
    make_category(b.state, "c").given[task] = None
    task.group.options = options
    task.group.task_class.key = (*options.held_in, ())


def choose_unasked(b: Any) -> None:
    """Let a task have been given cores that it does not ask for."""
    group = b.task("aside").group
    group.options = group.options.changed(allotted_cores=2)


def look_in_the_past(b: Any) -> None:
    """Let the next look for stragglers be one that was called off."""
    stragglers = b.state.record(Stragglers)
    stragglers.next_look = b.state.call_after(1.0, print)
    b.state.deadlines.cancel(stragglers.next_look)


def measure_too_many(b: Any) -> None:
    """Remember what too many tasks have used."""
    use = MeasuredUse(1, 1, 1, 1, 1, 1, 1)
    latest_use(b.state).update({str(i): use for i in range(MAX_TASKS + 1)})


#: {invariant: what breaks it}, of a `Broken` board
CATEGORY_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "the next look for stragglers is to come": look_in_the_past,
    "the end of what runs twice is looked for": lambda b: b.state.record(Stragglers).copies.update(
        {1: (None, b.task("aside"))}
    ),
    "what categories have learned is to be recorded": lambda b: unrecorded_of(b.state).names.update(
        {"c": None}
    ),
    "a category lists the tasks that wait for it": unlisted,
    "categories with waiting tasks are known": waiting,
    "categories are busy while one is to be looked at": lambda b: categories_of(
        b.state
    ).to_review.update({make_category(b.state, "c"): None}),
    "categories are busy while all tasks are to be looked at": lambda b: setattr(
        categories_of(b.state), "must_sweep", True
    ),
    "cores that a category has chosen are asked for": choose_unasked,
    "a task that was given amounts is held no more": held,
    "what was measured is bounded": measure_too_many,
}
