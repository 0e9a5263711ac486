"""Limits of what the tasks of one user hold here: their number, and the memory that they take.

Beyond them new tasks are refused, with a failure that names the limit. To read no more from the
client was no way: what it sends to release and cancel tasks would wait behind the tasks. Keys that
are known are taken, and so is all while clients of an earlier scheduler come back: what was
accepted once is not refused later. A message that comes below the limit is taken as a whole.

A client without a user is a user of its own (`rotation`), so the limits hold for it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, user_limit
from ....protocol.wording import counted, sized
from ..feature import Feature, StateMetric

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..records.users import User
    from ..state import SchedulerState

#: Memory of one task beside its arguments: its record, its key, and their entries.
ROW_NBYTES: Final = 1024
_NONE: Final[Mapping[int, Failure]] = {}
_NO_LIMITS: Final[Mapping[str, int]] = {}


class UserLimits:
    """The limits of each user, and who has reached them. 0 = no limit."""

    __slots__ = ("max_nbytes", "max_rows", "max_running", "n_refused", "of_users", "reached")

    def __init__(self) -> None:
        #: of the tasks and their arguments
        self.max_nbytes = 0
        #: tasks
        self.max_rows = 0
        #: tasks that run at a time (`running_limits`)
        self.max_running = 0
        #: {name of a user: {"memory", "tasks" or "running": what counts in the place of the above}}
        self.of_users: Mapping[str, Mapping[str, int]] = {}
        #: {user: None} of those whose last new tasks were refused
        self.reached: dict[User, None] = {}
        #: tasks that were refused
        self.n_refused = 0

    def common(self, name: str) -> int:
        """Return the limit of users that have none of their own."""
        if name == "running":
            return self.max_running
        return self.max_nbytes if name == "memory" else self.max_rows

    def own(self, user: User) -> Mapping[str, int]:
        """Return the limits that only this user has."""
        return self.of_users.get(user.name, _NO_LIMITS) if user.name else _NO_LIMITS

    def of(self, user: User, name: str) -> int:
        """Return a limit of a user."""
        return self.own(user).get(name, self.common(name))

    def setting(self, user: User, name: str) -> str:
        """Return the name of the setting that has this limit."""
        return f"user-limits.{user.name}.{name}" if name in self.own(user) else f"user-{name}"


def user_limits_of(state: SchedulerState) -> UserLimits:
    """Return the limits of each user."""
    return state.record(UserLimits)


def nbytes_held(user: User) -> int:
    """Return the memory that the tasks of a user take here, about."""
    return user.nbytes + user.n_rows * ROW_NBYTES


def _is_beyond(limits: UserLimits, user: User) -> bool:
    if 0 < limits.of(user, "tasks") <= user.n_rows:
        return True
    return 0 < limits.of(user, "memory") <= nbytes_held(user)


def _refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Collection[int],
) -> Mapping[int, Failure]:
    """Return the rows with new keys whose users have reached a limit, and why."""
    limits = user_limits_of(state)
    users = _users_of(state, client, message)
    beyond = {user: None for user in users if _is_beyond(limits, user)}
    for user in users if limits.reached else ():
        if user not in beyond:
            limits.reached.pop(user, None)
    if not beyond or client.receive is not None or state.awaits_owners:
        return _NONE
    failures: dict[User, Failure] = {}
    rows: dict[int, Failure] = {}
    for row, key in enumerate(message.keys):
        user = users[message.option_of[row] if message.option_of else 0]
        if user in beyond and key not in state.tasks and row not in refused:
            if user not in failures:
                failures[user] = _failure(limits, user, key)
            rows[row] = failures[user]
    limits.n_refused += len(rows)
    for user in failures:
        if user not in limits.reached:
            limits.reached[user] = None
            text = f"tasks of client {client.name} are refused: {_text(limits, user)}"
            state.log("warning", text, "user-limit")
    return rows


def _users_of(state: SchedulerState, client: ClientHandle, message: m.SubmitTasks) -> list[User]:
    """Return the user for each of the options of a message: in a task, that of this task."""
    options = message.options or [{}]
    if client.worker is None:
        return [client.user] * len(options)
    parents = client.worker.processing
    found = (parents.get(record.get("attempt", 0)) for record in options)
    return [client.user if parent is None else parent.group.user for parent in found]


def _failure(limits: UserLimits, user: User, key: str) -> Failure:
    name = "tasks" if 0 < limits.of(user, "tasks") <= user.n_rows else "memory"
    setting, limit = limits.setting(user, name), limits.of(user, name)
    return user_limit(key, user.name, setting, limit, user.n_rows, user.nbytes)


def _text(limits: UserLimits, user: User) -> str:
    held = f"{counted(user.n_rows, 'task')} with {sized(user.nbytes)} of arguments"
    return f"{f'user {user.name}' if user.name else 'it'} has {held} here"


def _forget(state: SchedulerState, client: ClientHandle) -> None:
    """Forget that users had reached a limit who have nothing any more."""
    reached = user_limits_of(state).reached
    for user in [user for user in reached if not user.n_rows]:
        del reached[user]


FEATURE: Final = Feature(
    name="user limits",
    records=(UserLimits,),
    refusing=(_refuse,),
    client_gone=(_forget,),
    metrics=(
        StateMetric(
            "tasks_refused_total",
            "Tasks that were refused because their user had reached a limit.",
            read=lambda state: user_limits_of(state).n_refused,
        ),
    ),
    invariants={
        "users have reached a limit only if there is one": lambda s: [
            user.name
            for user in user_limits_of(s).reached
            if not any(user_limits_of(s).of(user, name) for name in ("tasks", "memory"))
        ],
    },
)
