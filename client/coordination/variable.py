"""`Variable`: one value or future that any client or task sets, and all read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from ...protocol.wire.messages.coordination import VARIABLE
from ..modes import Item, Mode, waits
from .coordination_object import CoordinationObject, nothing
from .object_values import first, packed

if TYPE_CHECKING:
    from ...protocol.durations import Duration


class Variable(CoordinationObject[Mode], Generic[Item, Mode]):
    """A value or future that is kept until another one is set.

    The scheduler keeps the value in its memory, so it is small (4 MiB at most).

    Args:
        name: variables of one name are the same variable. None = a new one.
        client: see `Client.current` for None.
    """

    _KIND = VARIABLE
    _AWAITS = "get"

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
        """
        blob, keys = packed(self._engine(), value)
        return self._call("set", nothing, timeout=timeout, values=[blob], keys=keys)

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
