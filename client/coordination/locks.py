"""`Lock`, `Semaphore` and `MultiLock`: who may go on, in a whole cluster."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import threading
import uuid
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol.errors import ClientClosed, NotHeld
from ...protocol.wire.messages import WARNED, Operated
from ...protocol.wire.messages.coordination import LOCK, MAX_COUNT, MAX_LOCKS, MULTILOCK, SEMAPHORE
from ..core.features.coordination import CallAbandoned, ObjectCall
from ..modes import Mode, T, waits
from ..shell.both_ways import blocks_here, result_of
from ..shell.in_task import context_here, owner_here
from .coordination_object import (
    CoordinationObject,
    Read,
    check_int,
    count_in,
    names_in,
    nothing,
    shown,
)

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ...protocol.wire.payload import Blob
    from ..client import Client
    from ..shell.engine import Engine

logger: Final = logging.getLogger("weft.client")

_numbers: Final = itertools.count(1)
_Acquired = TypeVar("_Acquired", bound="Acquirable[Any]")


class _ThreadOwner(threading.local):
    def __init__(self) -> None:
        self.name = f"thread-{next(_numbers)}"


_thread_owner: Final = _ThreadOwner()
_task_owners: Final[weakref.WeakKeyDictionary[asyncio.Task[Any], str]] = weakref.WeakKeyDictionary()


def _owner(*, is_async: bool) -> str:
    """Return the name of the thread, or asyncio task, that must not wait for itself."""
    task = asyncio.current_task() if is_async else None
    if task is None:
        return owner_here() or _thread_owner.name
    return _task_owners.setdefault(task, f"task-{next(_numbers)}")


#: {lease that a running task has asked for and not given back: its attempt, the object, the call}.
#: A lease is here from before its call is sent until its release is answered, so an interrupt
#: between any two steps loses none.
_of_tasks: Final[dict[str, tuple[int, Acquirable[Any], ObjectCall]]] = {}


def _release_left() -> None:
    """Release what the task that ends has left, and warn: nobody else could release it."""
    context = context_here()
    left: dict[str, None] = {}
    for lease, (attempt, lock, call) in list(_of_tasks.items()):
        # Else it is another task's, or another thread was faster.
        is_left = attempt == context.attempt and _of_tasks.pop(lease, None) is not None
        if is_left and lock._give_back(lease, call):
            left[f"{lock._KIND} {lock.name!r}"] = None
    for what in left:
        text = (
            f"task {context.task_key!r} has ended and still held {what}, which is released now; "
            "use a `with` block, or release it\n"
        )
        if not context.show(WARNED, "RuntimeWarning", text):
            logger.warning("%s", text.rstrip())


class Acquirable(CoordinationObject[Mode]):
    """An object that is acquired and released, with `with` and `async with`."""

    def __init__(self, name: str | None = None, client: Client[Mode] | None = None) -> None:
        super().__init__(name, client)
        #: {lease that this object has: its owner}, oldest first
        self._leases: dict[str, str] = {}

    def _acquire(
        self,
        timeout: Duration | None,
        arguments: dict[str, Any] | None = None,
    ) -> bool:
        return result_of(self._engine(), lambda: self._take(timeout, arguments))

    async def _take(self, timeout: Duration | None, arguments: dict[str, Any] | None) -> bool:
        # The task that awaits is the owner, which is known only now.
        given, read = self._lease(_owner(is_async=not blocks_here()), arguments)
        return await self._do("acquire", read, given, timeout)

    def _lease(
        self, owner: str, arguments: dict[str, Any] | None
    ) -> tuple[dict[str, Any], Read[bool]]:
        """Return the arguments of a call for a new lease, and what reads the answer."""
        lease = f"lease-{next(_numbers)}"

        def read(_engine: Engine, answer: Operated) -> bool:
            is_granted = answer.info.get("granted") is True
            if is_granted:
                self._leases[lease] = owner
            return is_granted

        return {**(arguments or {}), "lease": lease, "owner": owner}, read

    def _made(
        self,
        operation: str,
        arguments: dict[str, Any] | None,
        timeout: Duration | None,
        values: list[Blob | None] | None,
        keys: list[str] | None,
    ) -> tuple[ObjectCall, float | None]:
        call, limit_s = super()._made(operation, arguments, timeout, values, keys)
        if operation == "acquire":
            self._note_task(call)
        return call, limit_s

    def _note_task(self, call: ObjectCall) -> None:
        """Have released at the end of the task that runs here what it is about to acquire.

        Not for actors, which may release in a later call.
        """
        context = context_here()
        seat = None if context is None else context.seat
        if seat is not None and context.attempt and not seat.actor:
            seat.when_task_ends(_release_left)
            _of_tasks[call.arguments["lease"]] = int(context.attempt), self, call

    def _read(self, engine: Engine, call: ObjectCall, answer: Operated, read: Read[T]) -> T:
        is_granted = call.operation == "acquire" and answer.info.get("granted") is True
        if not is_granted and "lease" in call.arguments:
            _of_tasks.pop(call.arguments["lease"], None)  # it is not held, or no longer
        return super()._read(engine, call, answer, read)

    def _give_back(self, lease: str, call: ObjectCall) -> bool:
        """Release what a task has left; return whether it held it, by what it knew."""
        is_held = self._leases.pop(lease, None) is not None
        try:
            engine = self._engine()
        except ClientClosed:
            return False  # its end has released all
        # The task may have been interrupted before it took the answer: then that is given back.
        engine.post(CallAbandoned(call))
        release = super()._made("release", {"lease": lease}, None, None, None)[0]
        engine.post(release)
        return is_held

    def _release(self, read: Read[T]) -> T:
        return self._call("release", read, {"lease": self._take_lease(is_async=False)})

    def _take_lease(self, *, is_async: bool) -> str:
        """Return the lease that the caller gives back, which this object has no more then."""
        while True:
            leases = list(self._leases.items())
            if not leases:
                raise NotHeld(
                    f"{self._KIND} {self.name!r} is not held by this object, so it cannot release "
                    "it"
                )
            # The caller's own one, if there are several: the scheduler knows their owners.
            owner = _owner(is_async=is_async or self._engine().is_asynchronous)
            lease = next((own for own, by in leases if by == owner), leases[0][0])
            if self._leases.pop(lease, None) is not None:  # else another thread was faster
                return lease

    def __enter__(self: _Acquired) -> _Acquired:
        if self._engine().is_asynchronous:
            raise TypeError(f"a {type(self).__name__} of an asynchronous client needs `async with`")
        self._acquire(None, self._asked())
        return self

    def __exit__(self, *_: object) -> None:
        self._release(nothing)

    async def __aenter__(self: _Acquired) -> _Acquired:
        await self._take(None, self._asked())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._do("release", nothing, {"lease": self._take_lease(is_async=True)})

    def _asked(self) -> dict[str, Any] | None:
        """Return the arguments of `acquire`."""
        return None


class Lock(Acquirable[Mode]):
    """A lock that one client, task or thread of the cluster holds at a time.

    Those that wait get it in the order in which they asked. What a client or task holds is released
    when it ends; when it is cut off, at the end of its lease.

        with weft.Lock("the file"):
            ...

    Args:
        name: locks of one name are the same lock. None = a new one.
        client: see `Client.current` for None.

    Example:
        >>> def append(line):
        ...     with weft.Lock("the file"):             # one task at a time, in the whole cluster
        ...         return len(line)
        >>> client.gather(client.map(append, ["a", "bb"]))
        [1, 2]
    """

    _KIND = LOCK

    @waits
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> bool:
        """Take the lock; return whether that was possible in time.

        Args:
            blocking: wait for it.
            timeout: time to wait; None = no limit.

        Raises:
            AlreadyHeld: the thread or task holds it and would wait for itself for ever.
        """
        return self._acquire(_limit_of(blocking, timeout))

    @waits
    def release(self) -> None:
        """Give the lock to the next one that waits.

        Raises:
            NotHeld: this object does not hold it.
            HoldLost: another holder has it already; see docs/coordination.md.
        """
        return self._release(nothing)

    @functools.cached_property
    def id(self) -> str:
        """A text that no other object has, also none of the same name."""
        return uuid.uuid4().hex

    @waits
    def locked(self) -> bool:
        """Return whether any client holds it at this moment."""
        return self._call("count", lambda _engine, answer: bool(answer.info["n"]))


def _limit_of(blocking: bool, timeout: Duration | None) -> Duration | None:
    if blocking:
        return timeout
    if timeout is not None:
        raise ValueError("timeout= is of no use with blocking=False, which does not wait")
    return 0.0


class Semaphore(Acquirable[Mode]):
    """A semaphore: at most `max_leases` holders in the whole cluster.

    Args:
        max_leases: the number; the same wherever a semaphore of this name is made.
        name: semaphores of one name are the same. None = a new one.
        client: see `Client.current` for None.

    Example:
        >>> connections = weft.Semaphore(max_leases=2, name="connections")
        >>> with connections:
        ...     connections.get_value()
        1
    """

    _KIND = SEMAPHORE
    _MADE_OF = "max_leases name client"
    _IS_MADE = True

    def __init__(
        self, max_leases: int = 1, name: str | None = None, client: Client[Mode] | None = None
    ) -> None:
        check_int("max_leases", max_leases, 1, MAX_COUNT)
        super().__init__(name, client)
        self.max_leases = max_leases
        self._note("create")

    def _limits(self) -> dict[str, Any]:
        return {"limit": self.max_leases}

    @waits
    def register(self) -> None:
        """Make the semaphore known to the scheduler, which the first use does as well.

        Raises:
            OtherLimit: it exists with another `max_leases`.
        """
        return self._call("create", nothing)

    @waits
    def acquire(self, timeout: Duration | None = None) -> bool:
        """Take one lease; return whether that was possible in time.

        Args:
            timeout: time to wait; None = no limit.

        Raises:
            AlreadyHeld: the thread or task holds all leases and would wait for itself for ever.
            HeldClosed: it was closed.
        """
        return self._acquire(timeout)

    @waits
    def release(self) -> bool:
        """Give back the oldest lease that the caller has by this object, or else of the object.

        It returns True, as in dask.

        Raises:
            NotHeld: this object has none.
            HoldLost: another holder has it already; see docs/coordination.md.
        """
        return self._release(lambda _engine, _answer: True)

    @waits
    def get_value(self) -> int:
        """Return how many leases are taken."""
        return self._call("count", count_in)

    @waits
    def close(self) -> None:
        """End the semaphore: all leases, and all waits for one, which raise `HeldClosed`."""
        for lease in list(self._leases):
            self._leases.pop(lease, None)
            _of_tasks.pop(lease, None)
        return self._call("close", nothing)


class MultiLock(Acquirable[Mode]):
    """Several locks that are taken together, all or none, so that none waits for the other.

    These are not the locks that `Lock` takes.

    Args:
        names: of the locks.
        client: see `Client.current` for None.

    Example:
        >>> with weft.MultiLock(["account 1", "account 2"]) as both:
        ...     both.locked()
        True
    """

    _KIND = MULTILOCK
    _MADE_OF = "names client"

    def __init__(self, names: Iterable[str] = (), client: Client[Mode] | None = None) -> None:
        if isinstance(names, str):
            raise TypeError("names= is a list of names, not str")
        self.names = list(dict.fromkeys(names_in(names, "MultiLock's lock")))
        if not self.names:
            raise ValueError("names= of a MultiLock has at least one name")
        if len(self.names) > MAX_LOCKS:
            raise ValueError(
                f"names= of a MultiLock has at most {MAX_LOCKS} names, not {len(self.names)}"
            )
        super().__init__("all", client)

    def __repr__(self) -> str:
        return f"<MultiLock: {', '.join(map(shown, self.names))}>"

    def _asked(self, num_locks: int | None = None) -> dict[str, Any]:
        number = len(self.names) if num_locks is None else num_locks
        check_int("num_locks", number, 1, len(self.names))
        return {"names": self.names, "number": number}

    @waits
    def acquire(
        self,
        blocking: bool = True,
        timeout: Duration | None = None,
        num_locks: int | None = None,
    ) -> bool:
        """Take the locks together; return whether that was possible in time.

        Args:
            blocking: wait for them.
            timeout: time to wait; None = no limit.
            num_locks: take so many of them, whichever are free; None = all.

        Raises:
            AlreadyHeld: the thread or task holds some and would wait for itself for ever.
        """
        return self._acquire(_limit_of(blocking, timeout), self._asked(num_locks))

    @waits
    def release(self) -> None:
        """Give back all locks that were taken together.

        Raises:
            NotHeld: this object holds none.
            HoldLost: another holder has one already; see docs/coordination.md.
        """
        return self._release(nothing)

    def locked(self) -> bool:
        """Return whether this object holds locks."""
        return bool(self._leases)
