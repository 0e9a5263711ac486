"""The invariants of users and of what their tasks hold, by name; `validate.py` checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.rotation import USER_SHIFT
from ....protocol.wire.payload import nbytes_of
from ..records.users import User
from .checking import tasks_in

if TYPE_CHECKING:
    from ..state import SchedulerState


def _users(state: SchedulerState) -> list[User]:
    of_tasks = [task.group.user for task in state.tasks.values()]
    of_clients = [client.user for client in state.clients.values()]
    return [*dict.fromkeys((*state.users.values(), *of_tasks, *of_clients))]


def _miscounted_rows(state: SchedulerState) -> list[tuple[str, int, int]]:
    n = Counter(task.group.user for task in state.tasks.values())
    return [(u.name, u.n_rows, n[u]) for u in _users(state) if u.n_rows != n[u]]


def _miscounted_nbytes(state: SchedulerState) -> list[tuple[str, int, int]]:
    n: Counter[User] = Counter()
    for task in state.tasks.values():
        n[task.group.user] += nbytes_of(task.args)
    return [(u.name, u.nbytes, n[u]) for u in _users(state) if u.nbytes != n[u]]


#: {what holds: what breaks it}
USER_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "users are filed by name, and have different numbers": lambda s: [
        (name, user.number)
        for place, (name, user) in enumerate(s.users.items())
        if (user.name, user.number) != (name, place)
    ],
    "a client's number has that of its user": lambda s: [
        client for client in s.clients.values() if client.number >> USER_SHIFT != client.user.number
    ],
    "a user with a name is that of its name": lambda s: [
        client
        for client in s.clients.values()
        if client.user.name and s.users.get(client.user.name) is not client.user
    ],
    "the turns of a task are those of its user": lambda s: [
        t for t in tasks_in(s) if t.group.client >> USER_SHIFT != t.group.user.number
    ],
    "user.n_rows counts the tasks of a user": _miscounted_rows,
    "user.nbytes is the sum over their arguments": _miscounted_nbytes,
}
