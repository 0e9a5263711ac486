"""`Event`: those that wait go on when it is set, in a whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.wire.messages import Operated
from ...protocol.wire.messages.coordination import EVENT
from ..modes import Mode, waits
from .coordination_object import CoordinationObject, nothing

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..shell.engine import Engine


def _is_set(_engine: Engine, answer: Operated) -> bool:
    return answer.info.get("set") is True


class Event(CoordinationObject[Mode]):
    """An event that clients and tasks set, clear and wait for.

    It stays set when the client that has set it ends, until it is cleared.

    Args:
        name: events of one name are the same event. None = a new one.
        client: see `Client.current` for None.

    Example:
        >>> go = weft.Event("go")
        >>> waiting = client.submit(go.wait)
        >>> go.set()
        >>> waiting.result()
        True
    """

    _KIND = EVENT
    _AWAITS = "wait"

    @waits
    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until it is set; return whether it was in time.

        Args:
            timeout: time to wait; None = no limit.
        """
        return self._call("wait", _is_set, timeout=timeout)

    @waits
    def set(self) -> None:
        """Set it, so that all that wait go on."""
        return self._call("set", nothing)

    @waits
    def clear(self) -> None:
        """Clear it, so that later calls of `wait` wait."""
        return self._call("clear", nothing)

    @waits
    def is_set(self) -> bool:
        """Return whether it is set at this moment."""
        return self._call("is_set", _is_set)
