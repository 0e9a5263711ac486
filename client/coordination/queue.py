"""`Queue`: values and futures from any client or task to any other, each taken once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from ...protocol.wire.messages.coordination import MAX_BATCH, MAX_COUNT, QUEUE
from ..modes import Awaited, Blocking, Item, Mode, waits
from .coordination_object import (
    CoordinationObject,
    check_flag,
    check_int,
    count_in,
    durable_if,
    nothing,
)
from .object_values import first, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ...protocol.durations import Duration
    from ..client import Client


class Queue(CoordinationObject[Mode], Generic[Item, Mode]):
    """A queue of values and futures, which are kept alive while they are in it.

    The scheduler keeps the values in its memory, so they are small (4 MiB at most). A value that
    was taken is gone with the client that took it.

    Args:
        name: queues of one name are the same queue. None = a new one.
        client: see `Client.current` for None.
        maxsize: `put` waits while so many values are in it; 0 = no limit, or that of the queue of
            this name.
        durable: the scheduler's journal records what is put, so it is there after a restart of the
            scheduler, also for other programs. `put` returns when it is on the disk. Futures in
            the values are of detached calls. A queue that was made so once is durable.

    Example:
        >>> queue = weft.Queue("jobs")
        >>> done = client.submit(lambda: weft.Queue("jobs").put("from a task")).result()
        >>> queue.get(timeout="1 min")
        'from a task'
    """

    _KIND = QUEUE
    _MADE_OF = "name client maxsize durable"
    _IS_MADE = True
    _LOST = "what the queue held"

    def __init__(
        self,
        name: str | None = None,
        client: Client[Mode] | None = None,
        maxsize: int = 0,
        durable: bool = False,
    ) -> None:
        check_flag("durable", durable)
        check_int("maxsize", maxsize, 0, MAX_COUNT, " (no limit)")
        super().__init__(name, client)
        self.maxsize = maxsize
        self.durable = durable
        self._note("create")

    def _limits(self) -> dict[str, Any]:
        return {"maxsize": self.maxsize, **durable_if(self.durable)}

    def _late_text(self, operation: str) -> str:
        if operation == "put":
            return f"there was no room in queue {self.name!r}"
        return f"there were not enough values in queue {self.name!r}"

    @waits
    def put(self, value: Item, timeout: Duration | None = None) -> None:
        """Append a value: anything that can be pickled, with futures anywhere in it.

        Args:
            value: small; large data belongs in the result of a task, whose future is put.
            timeout: time to wait for room, if the queue has a `maxsize`; None = no limit.

        Raises:
            TimeoutError: there was no room in time.
            TooLarge: the value is too large.
            ForeignFuture: a future in it belongs to another cluster.
            HeldClosed: the queue was closed.
            ValueNotRecorded: the queue is durable, and the journal could not record the value.

        Example:
            >>> queue = weft.Queue(maxsize=10)
            >>> queue.put({"sum": client.submit(sum, [1, 2])})
            >>> queue.get()["sum"].result()
            3
        """
        blob, keys = packed(self._engine(), value)
        return self._call("put", nothing, timeout=timeout, values=[blob], keys=keys)

    @overload
    def get(  # type: ignore[overload-overlap]
        self: Queue[Item, Blocking],
        timeout: Duration | None = None,
        batch: Literal[False] = False,
    ) -> Item: ...
    @overload
    def get(
        self: Queue[Item, Blocking], timeout: Duration | None = None, *, batch: int
    ) -> list[Item]: ...
    @overload
    def get(  # type: ignore[overload-overlap]
        self: Queue[Item, Awaited],
        timeout: Duration | None = None,
        batch: Literal[False] = False,
    ) -> Coroutine[Any, Any, Item]: ...
    @overload
    def get(
        self: Queue[Item, Awaited], timeout: Duration | None = None, *, batch: int
    ) -> Coroutine[Any, Any, list[Item]]: ...
    def get(self, timeout: Duration | None = None, batch: bool | int = False) -> Any:
        """Take the first value out.

        Args:
            timeout: time to wait for it; None = no limit.
            batch: True = all values that there are now, in a list, without waiting; a number = so
                many, waiting for them. At most 10 000, and 32 MiB of them: if so many take more,
                the list has fewer, and the next call the rest.

        Raises:
            TimeoutError: there was none in time.
            HeldClosed: the queue was closed.

        Example:
            >>> queue = weft.Queue()
            >>> for number in range(3):
            ...     queue.put(number)
            >>> queue.get(), queue.get(batch=True)
            (0, [1, 2])
        """
        if type(batch) is not bool and (type(batch) is not int or batch < 1):
            raise ValueError(f"batch= is True, False or a number from 1 on, not {batch!r}")
        if type(batch) is int and batch > MAX_BATCH:
            raise ValueError(f"batch= is at most {MAX_BATCH} values at once, not {batch}")
        if batch is False:
            return self._call("get", first, {"number": 1}, timeout=timeout)
        if batch is True:
            return self._call("drain", unpacked)
        return self._call("get", unpacked, {"number": batch}, timeout=timeout)

    @waits
    def qsize(self) -> int:
        """Return how many values are in the queue at this moment."""
        return self._call("count", count_in)

    @waits
    def close(self) -> None:
        """End the queue: its values are dropped, and calls that wait raise `HeldClosed`."""
        return self._call("close", nothing)
