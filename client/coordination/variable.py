"""`Variable`: one value or future that any client or task sets, and all read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from ...protocol.wire.messages.coordination import VARIABLE
from ..modes import Item, Mode, waits
from .coordination_object import CoordinationObject, check_flag, durable_if, nothing
from .object_values import first, packed

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..client import Client


class Variable(CoordinationObject[Mode], Generic[Item, Mode]):
    """A value or future that is kept until another one is set.

    The scheduler keeps the value in its memory, so it is small (4 MiB at most).

    Args:
        name: variables of one name are the same variable. None = a new one.
        client: see `Client.current` for None.
        durable: the scheduler's journal records the value, so it is there after a restart of the
            scheduler, whoever has set it. `set` returns when it is on the disk. Futures in it are
            of detached calls. A variable that was set so is durable until it is deleted.

    Example:
        >>> best = weft.Variable("best")
        >>> best.set(0.25)
        >>> client.submit(best.get).result()
        0.25
    """

    _KIND = VARIABLE
    _MADE_OF = "name client durable"
    _AWAITS = "get"

    def __init__(
        self,
        name: str | None = None,
        client: Client[Mode] | None = None,
        durable: bool = False,
    ) -> None:
        check_flag("durable", durable)
        super().__init__(name, client)
        self.durable = durable

    def _late_text(self, operation: str) -> str:
        return f"variable {self.name!r} was not set"

    @waits
    def set(self, value: Item, timeout: Duration | None = "30 s") -> None:
        """Set the value: anything that can be pickled, with futures anywhere in it.

        Args:
            value: small; large data belongs in the result of a task, whose future is set.
            timeout: time to wait for the scheduler.

        Raises:
            TimeoutError: the scheduler was away for longer.
            TooLarge: the value is too large.
            ForeignFuture: a future in it belongs to another cluster.
            ValueNotRecorded: the variable is durable, and the journal could not record the value.
        """
        blob, keys = packed(self._engine(), value)
        arguments = durable_if(self.durable)
        return self._call("set", nothing, arguments, timeout=timeout, values=[blob], keys=keys)

    @waits
    def get(self, timeout: Duration | None = None) -> Item:
        """Return the value; wait until there is one.

        Args:
            timeout: time to wait for it; None = no limit.

        Raises:
            TimeoutError: none was set in time.
        """
        return self._call("get", first, timeout=timeout)  # type: ignore[no-any-return]

    @waits
    def delete(self) -> None:
        """Delete the value, so that `get` waits for another one."""
        return self._call("delete", nothing)
