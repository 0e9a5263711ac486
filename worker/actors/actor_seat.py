"""The thread of an actor has these in place of the seat of a slot, and of a task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...protocol.wire.messages.actors import call_text, is_unanswered

if TYPE_CHECKING:
    from ...protocol.host.blocking import TaskWait
    from .actor_thread import ActorThread


class ActorTask:
    """Stands for the task of a thread that has made its object."""

    __slots__ = ("attempt", "key")

    def __init__(self, key: str, attempt: int) -> None:
        self.key = key
        self.attempt = attempt


class ActorSeat:
    """Stands for the seat of a slot: the thread of an actor has none to give up."""

    __slots__ = ("_depth", "_thread", "actor", "at_end", "attempt")

    def __init__(self, thread: ActorThread, actor: str, attempt: int) -> None:
        self._thread = thread
        #: Its key, on whose behalf its methods submit tasks.
        self.actor = actor
        self.attempt = attempt
        #: Called before the next answers.
        self.at_end: dict[Callable[[], object], None] = {}
        #: Number of `blocked` that the thread is in.
        self._depth = 0

    def secede(self) -> None:
        """Do nothing."""

    def rejoin(self) -> None:
        """Do nothing."""

    def is_cancelled(self, attempt: int) -> bool:
        """Return False: calls of actors are not cancelled."""
        return False

    def is_behind(self, call: str) -> bool:
        """Return whether a call of this actor has not ended, by its text: it waits for this one."""
        begun = self._thread.begun()
        if begun is None:
            return False  # it cannot be said
        last = {holder: numbers for holder, *numbers in begun}
        return is_unanswered(call, last, [call_text(*one) for one in self._thread.open()])

    def when_task_ends(self, action: Callable[[], object]) -> None:
        """Call `action` before the call that runs is answered."""
        self.at_end[action] = None

    def end_calls(self) -> BaseException | None:
        """Do all that is due before an answer; return the first error of it."""
        error: BaseException | None = None
        actions, self.at_end = list(self.at_end), {}
        for action in actions:
            try:
                action()
            except BaseException as raised:  # the answer must go out nevertheless
                error = error or raised
        return error

    @contextlib.contextmanager
    def blocked(self, wait: TaskWait | None = None, may_park: bool = False) -> Iterator[None]:
        """Answer what is done; have the wait reported if it lasts."""
        waits = self._thread.actors.waits
        if self._depth or waits is None:
            yield
            return
        self._depth = 1
        self._thread.answer_before_wait()
        waits.begin(self._thread, wait)
        try:
            yield
        finally:
            waits.end(self.attempt)
            self._depth = 0
