"""`CountDown`: those that wait go on when enough has been counted down, in a whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.wire.messages import Operated
from ...protocol.wire.messages.coordination import COUNT_DOWN, MAX_COUNT
from ..modes import Mode, waits
from .coordination_object import CoordinationObject, check_int, count_in

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..client import Client
    from ..shell.engine import Engine


def _is_open(_engine: Engine, answer: Operated) -> bool:
    return answer.info.get("open") is True


class CountDown(CoordinationObject[Mode]):
    """A latch that opens when clients and tasks have counted it down to 0, and stays open.

    What was counted down stays so when the client ends that did it. A latch is forgotten with the
    last client that has used it.

    Args:
        name: latches of one name are the same latch. None = a new one.
        n: what it counts down from; the same number wherever it is used.
        client: see `Client.current` for None.

    Example:
        >>> ready = weft.CountDown("ready", 2)
        >>> def prepare(part):
        ...     weft.CountDown("ready", 2).count_down()
        >>> weft.fire_and_forget(client.map(prepare, ["a", "b"]))
        >>> ready.wait(timeout="1 min")
        True
    """

    _KIND = COUNT_DOWN
    _MADE_OF = "name n client"
    _IS_MADE = True
    _AWAITS = "wait"

    def __init__(
        self, name: str | None = None, n: int = 1, client: Client[Mode] | None = None
    ) -> None:
        check_int("n", n, 1, MAX_COUNT)
        self.n = n
        super().__init__(name, client)
        self._note("create")

    def _limits(self) -> dict[str, Any]:
        return {"n": self.n}

    @waits
    def count_down(self, k: int = 1) -> int:
        """Count down by `k`, to 0 at least; return what is left.

        Raises:
            OtherLimit: the latch of this name counts down from another number.
        """
        check_int("k", k, 1, MAX_COUNT)
        return self._call("count_down", count_in, {"k": k})

    @waits
    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until it is open; return whether it was in time.

        Args:
            timeout: time to wait; None = no limit.

        Raises:
            OtherLimit: the latch of this name counts down from another number.
        """
        return self._call("wait", _is_open, timeout=timeout)

    @waits
    def count(self) -> int:
        """Return what is left at this moment; 0 = it is open."""
        return self._call("count", count_in)
