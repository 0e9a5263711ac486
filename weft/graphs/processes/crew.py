"""The worker processes of one run, as the parent sees them: `pool` and `executor_crew` make them.

It owns the record of each, and waits for all of them at once. It passes messages on without reading
them.
"""

from __future__ import annotations

import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from . import link
from .link import Link, Message
from .serving import NO_TASK
from .sharing import SharedDirectory

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Member:
    """One worker process during one run."""

    def __init__(self, sock_link: Link, pid: int, note: memoryview) -> None:
        self.link = sock_link
        self.pid = pid
        #: The number of the task that it runs, in memory that it shares with the parent.
        self.note = note
        #: Its index in the run's state; -1 before its READY.
        self.index = -1
        #: Numbers of the functions that it was sent.
        self.functions: set[int] = set()

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"worker process {self.pid}"

    @property
    def running(self) -> int | None:
        """The number of the task that it runs, or was running when it died."""
        number: int = self.note[0]
        return None if number == NO_TASK else number


#: A member to receive from, or a function to call.
Watched: TypeAlias = "Member | Callable[[], None]"


class Crew(ABC):
    """Worker processes for one run, each of which joins when it is ready.

    Args:
        n_workers: number of workers requested.
        directory: the directory that they share.
    """

    def __init__(self, n_workers: int, directory: SharedDirectory) -> None:
        self.n_workers = n_workers
        self.directory = directory
        self.members: list[Member] = []
        #: The links of all members, former ones too, with the bytes sent and received before.
        self._links: list[tuple[Link, int, int]] = []
        self._poll = select.poll()
        #: {file descriptor: its member, or a function to call when it can be read}
        self._watched: dict[int, Watched] = {}
        #: Members whose sockets are also watched until they can be written.
        self._stuck: list[Member] = []
        #: `check` should be called soon.
        self.is_check_due = False

    @abstractmethod
    def begin(self, run_id: int) -> None:
        """Have the present members, and those that join, begin with a run."""

    @abstractmethod
    def check(self) -> list[Member]:
        """Check members, about each second; raise an error if none will ever join.

        Returns:
            Those that have ended, although their sockets may be open: a process that a task has
            started may hold a copy, a thread that is about to receive may hold a closed one.
        """

    @abstractmethod
    def on_lost(self, member: Member) -> None:
        """Go on without a member that ended before its READY; or raise, as `check` does."""

    @abstractmethod
    def cause_of_death(self, member: Member) -> tuple[Member, str]:
        """Return how a member ended, as far as that becomes known within a second.

        Returns:
            The member that ended first, if this one was ended because of it; and how that ended.
        """

    @abstractmethod
    def end(self, *, is_clean: bool) -> None:
        """Give the members back after the run.

        Args:
            is_clean: none of them is running a task.
        """

    @abstractmethod
    def kill(self) -> None:
        """Give the members back, and end tasks of this run within a second if possible."""

    @property
    def n_bytes(self) -> tuple[int, int]:
        """The number of bytes sent to members, and of bytes received from them."""
        return (
            sum(one.n_bytes_sent - before for one, before, _ in self._links),
            sum(one.n_bytes_received - before for one, _, before in self._links),
        )

    def wait(self, timeout_s: float | None) -> Iterator[tuple[Member, list[Message] | None]]:
        """Wait for messages; yield those that have come, and None for a member that has ended."""
        for member in self.members:
            if member.link.is_stuck and member not in self._stuck:
                self._stuck.append(member)
                self._poll.modify(member.link.fileno(), _READABLE | select.POLLOUT)
        timeout_ms = None if timeout_s is None else max(timeout_s * 1000, 0)
        for fd, events in self._poll.poll(timeout_ms):
            watched = self._watched.get(fd)
            if watched is None:  # not any more, because of another message
                continue
            if not isinstance(watched, Member):
                watched()
                continue
            if events & select.POLLOUT:
                watched.link.flush()
                if not watched.link.is_stuck:
                    self._stuck.remove(watched)
                    self._poll.modify(fd, _READABLE)
            if events & _READABLE:
                yield watched, watched.link.receive()

    def add(self, member: Member) -> None:
        """Add a member."""
        self.members.append(member)
        counted = (member.link, member.link.n_bytes_sent, member.link.n_bytes_received)
        self._links.append(counted)
        self._watch(member.link.fileno(), member)

    def remove(self, member: Member) -> None:
        """Forget a member, without closing anything."""
        self.members.remove(member)
        if member in self._stuck:
            self._stuck.remove(member)
        self._unwatch(member.link.fileno())

    def _watch(self, fd: int, watched: Watched) -> None:
        self._watched[fd] = watched
        self._poll.register(fd, _READABLE)

    def _unwatch(self, fd: int) -> None:
        del self._watched[fd]
        self._poll.unregister(fd)


def begin(member: Member, run_id: int, directory: SharedDirectory, context: Any) -> None:
    """Notify a member of a run."""
    member.functions.clear()
    member.index = -1
    member.link.send(link.BEGIN, run_id, directory.path, context)
