"""`limit`: how many may use something at a time, and how many begin per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.wire.messages.coordination import LIMIT, MAX_COUNT, MAX_RATE, MIN_RATE
from ..modes import Mode, waits
from .coordination_object import check_int, nothing
from .locks import Acquirable

if TYPE_CHECKING:
    from ...protocol.durations import Duration
    from ..client import Client


class Limit(Acquirable[Mode]):
    """A limit by name for the whole cluster; made by `weft.limit`."""

    _KIND = LIMIT
    _MADE_OF = "name at_once per_s client"
    _MAY_PARK = True

    def __init__(
        self,
        name: str,
        at_once: int | None = None,
        per_s: float | None = None,
        client: Client[Mode] | None = None,
    ) -> None:
        if name is None:
            raise TypeError("a limit has a name: that of what is limited")
        if at_once is None and per_s is None:
            raise ValueError(f"limit {name!r} needs a number: at_once=, per_s=, or both")
        if at_once is not None:
            check_int("at_once", at_once, 1, MAX_COUNT)
        if per_s is not None and type(per_s) not in (int, float):
            raise TypeError(f"per_s= is a number, not {type(per_s).__name__}")
        if per_s is not None and not MIN_RATE <= per_s <= MAX_RATE:
            raise ValueError(f"per_s= is from {MIN_RATE:g} to {MAX_RATE}, not {per_s}")
        super().__init__(name, client)
        self.at_once = at_once
        self.per_s = per_s

    def _limits(self) -> dict[str, Any]:
        return {"limit": self.at_once or MAX_COUNT, "per_s": float(self.per_s or 0)}

    @waits
    def acquire(self, timeout: Duration | None = None) -> bool:
        """Begin to use what is limited; return whether that was possible in time.

        Args:
            timeout: time to wait; None = no limit.

        Raises:
            AlreadyHeld: the thread or task takes all places itself, and would wait for ever.
            OtherLimit: the limit exists with other numbers.
        """
        return self._acquire(timeout)

    @waits
    def release(self) -> None:
        """End the use that the caller began first by this object, or else the first of the object.

        Raises:
            NotHeld: this object has begun none.
            HoldLost: another holder has its place already; see docs/coordination.md.
        """
        return self._release(nothing)


def limit(
    name: str,
    at_once: int | None = None,
    *,
    per_s: float | None = None,
    client: Client[Mode] | None = None,
) -> Limit[Mode]:
    """Return a limit, for a `with` block around the use of something that all share.

        with weft.limit("api", 10, per_s=1):
            ...

    Blocks wait for their turn in the order in which they came. A task that waits gives its thread
    up meanwhile. The numbers are the same wherever a limit of this name is made.

    Args:
        name: of what is limited; limits of one name are the same in the whole cluster.
        at_once: at most so many blocks run at a time; None = any number.
        per_s: at most so many blocks begin per second; below 1, such as 0.1, one in so many
            seconds; None = any number.
        client: see `Client.current` for None.

    Raises:
        TypeError, ValueError: a number is none, or out of range, or there is none.

    Example:
        >>> def fetch(url):
        ...     with weft.limit("that service", 2, per_s=100):
        ...         return len(url)
        >>> client.gather(client.map(fetch, ["/a", "/bb"]))
        [2, 3]
    """
    return Limit(name, at_once, per_s, client)
