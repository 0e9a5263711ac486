"""Users: who has the turns and the limits of clients, and what their tasks hold here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tasks import SchedulerTask


def user_of(users: dict[str, User], name: str) -> User:
    """Return the user of this name, perhaps a new one; always a new one if it has none."""
    user = users.get(name) if name else User()
    if user is None:
        user = users[name] = User(name, len(users))
    return user


class User:
    """One user, by the name that tokens carry; or a client without a user, which is its own."""

    __slots__ = ("is_limited", "moved", "n_rows", "name", "nbytes", "number")

    def __init__(self, name: str = "", number: int = 0) -> None:
        self.name = name
        #: its part of the numbers of its clients (`rotation.USER_SHIFT`); 0 = it has no name
        self.number = number
        #: so are its groups
        self.is_limited = False
        #: its tasks that have left a state, or wait in it no more; None = no feature follows that
        self.moved: list[SchedulerTask] | None = None
        #: tasks of its groups that are not forgotten
        self.n_rows = 0
        #: bytes of their arguments
        self.nbytes = 0
