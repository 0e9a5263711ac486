"""The errors of locks, semaphores, events, queues and variables."""

from __future__ import annotations

from .base import WeftError


class HeldError(WeftError):
    """An operation on a lock, semaphore, event, queue or variable was refused; nothing was changed.

    The text says why, and what to do.

    Args:
        text: what happened, and what can be done.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class AlreadyHeld(HeldError, RuntimeError):
    """A thread or task asks, without a time limit, for a lock that it holds itself.

    It would wait for ever. Release the lock first, or use one `with` block for both parts.
    """


class NotHeld(HeldError, RuntimeError):
    """A lock or semaphore is released through an object that does not hold it.

    Only the object that has acquired it can release it, and once per `acquire`; a copy that was
    pickled, or another object of the same name, cannot.
    """


class HoldLost(HeldError, RuntimeError):
    """A lock or semaphore was given to another holder before it was released.

    The client was away from the scheduler for longer than its lease, or came back later than others
    to one that was started again, so what the lock protects may have been changed meanwhile.
    `--client-lease` of `weft scheduler` is how long it waits.
    """


class HeldClosed(HeldError, RuntimeError):
    """A semaphore or queue was closed, here or by another client.

    Make an object of the same name to use it again.
    """


class OtherLimit(HeldError, ValueError):
    """A semaphore or queue exists with another limit.

    Use the same `max_leases` or `maxsize` wherever it is made, or another name.
    """


class TooLarge(HeldError, ValueError):
    """A value is too large for a queue or variable, or there are too many of them.

    The scheduler keeps the values in its memory. Large data belongs in the result of a task: put
    the future, which is kept alive.
    """


class WaitingCycle(WeftError, RuntimeError):
    """A task, or a thread that asks for a lock, waits for itself, by way of others.

    The text names the tasks and locks that wait for each other. The wait fails that closed the
    cycle, so the others go on. Waits with a time limit do not fail so, but end in time.

    Args:
        text: which they are, and what can be done.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ValueNotRecorded(HeldError):
    """A durable value is not on the scheduler's disk: its journal could not record it.

    Start the scheduler with a state directory, or make room on its disk; or leave `durable=True`
    out. A queue does not have the value. Whatever else was set is set, and tried again until the
    scheduler ends.
    """


class DatasetExists(HeldError, KeyError):
    """A dataset is published under a name that another one has.

    Publish it with `override=True`, or under another name.
    """

    __str__ = WeftError.__str__  # a KeyError shows the `repr` of its text


class DatasetNotFound(HeldError, KeyError):
    """There is no dataset of this name.

    `client.list_datasets()` returns the names. The scheduler keeps datasets as long as it lives,
    and a later one those whose clients are still there.
    """

    __str__ = WeftError.__str__
