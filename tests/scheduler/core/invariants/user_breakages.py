"""How each invariant of users is broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.records.users import User
from weft.scheduler.core.upkeep.refusals import refusals_of
from weft.scheduler.core.upkeep.running_limits import RunningTasks, running_limits_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of


def hold(b: Any, key: str) -> None:
    """Let a task be held back as one of its user."""
    row = running_limits_of(b.state)[b.task(key).group.user] = RunningTasks()
    row.hold(b.task(key))


#: {invariant: what breaks it}, of a `Broken` board
USER_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "users are filed by name, and have different numbers": lambda b: b.state.users.update(
        {"bob": User("bob", 1), "ann": User("ann", 1)}
    ),
    "a client's number has that of its user": lambda b: setattr(b.alice, "number", 5 << 40 | 1),
    "a user with a name is that of its name": lambda b: setattr(b.alice.user, "name", "ann"),
    "the turns of a task are those of its user": lambda b: setattr(
        b.task("aside").group, "client", 5 << 40 | 1
    ),
    "user.n_rows counts the tasks of a user": lambda b: setattr(b.alice.user, "n_rows", -1),
    "user.nbytes is the sum over their arguments": lambda b: setattr(b.alice.user, "nbytes", -1),
    "what was refused is kept of clients that are here": lambda b: refusals_of(
        b.state
    ).by_client.update({b.alice: {}}),
    "tasks that are held back are no_worker, and there is no room for them": lambda b: hold(
        b, "memory"
    ),
    "what is queued of a limited user was granted": lambda b: (
        hold(b, "queued"),
        setattr(b.task("queued").group.user, "is_limited", True),
    ),
    "what is granted runs, or has moved since the last pass": lambda b: (
        hold(b, "queued"),
        running_limits_of(b.state)[b.alice.user].granted.update({b.task("memory"): None}),
    ),
    "what waits for a lock was granted": lambda b: (
        hold(b, "queued"),
        running_limits_of(b.state)[b.alice.user].at_locks.update({b.task("memory"): 1}),
    ),
    "the tasks of a user are followed iff it has some here": lambda b: setattr(
        b.alice.user, "moved", []
    ),
    "running limits are busy while there are tasks": lambda b: running_limits_of(b.state).update(
        {b.alice.user: RunningTasks()}
    ),
    "users have reached a limit only if there is one": lambda b: user_limits_of(
        b.state
    ).reached.update({b.alice.user: None}),
}
