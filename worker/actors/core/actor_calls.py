"""Decides which calls of actors are done, and how long the futures in their answers are kept.

Calls do not touch the scheduler, so this is no part of `WorkerState`. The shell is `actors.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from ....protocol.errors import RemoteProtocolError

ConnectionT = TypeVar("ConnectionT")


class HolderConnections(Generic[ConnectionT]):
    """The connections over which holders call actors here, by the numbers that holders give them.

    Invariant: after calls over one connection of a holder were taken, none is taken over another
    one with a lower number. The holder has given that one up, and reports its calls as in doubt; a
    call that is done now would come behind later ones of the same holder. A number outlives its
    connection, because an earlier one may end later: `forget` it when that cannot be any more.

    A connection is of one holder, so there are at most as many holders as connections of the last
    minute.
    """

    def __init__(self) -> None:
        #: {holder: (its connection, or None if that has ended; the number of that)}
        self._connections: dict[str, tuple[ConnectionT | None, int]] = {}
        #: {connection that has not ended: its holder}
        self._holders: dict[ConnectionT, str] = {}

    def accept(self, connection: ConnectionT, holder: str, number: int) -> bool:
        """Return whether calls that came over a connection are to be done.

        Raises:
            RemoteProtocolError: calls of another holder came over it before.
        """
        known = self._connections.get(holder)
        if known is not None:
            if known[0] is connection:
                return True
            if number < known[1]:
                return False
        if self._holders.setdefault(connection, holder) != holder:
            raise RemoteProtocolError("calls of a second holder of actors came over one connection")
        self._connections[holder] = connection, number
        return True

    def end(self, connection: ConnectionT) -> tuple[str, int] | None:
        """Note the end of a connection; return its holder and number, if that has no later one."""
        holder = self._holders.pop(connection, None)
        if holder is None:
            return None
        known, number = self._connections.get(holder, (None, 0))
        if known is not connection:
            return None
        self._connections[holder] = None, number
        return holder, number

    def forget(self, holder: str, number: int) -> None:
        """Forget a connection that has ended, unless the holder has another one by now."""
        if self._connections.get(holder) == (None, number):
            del self._connections[holder]

    def __len__(self) -> int:
        return len(self._connections)


class HandedOver(Generic[ConnectionT]):
    """The futures in answers that went over each connection, until the holders have their own.

    Invariant: what was added is here until it is taken, or is returned by `end`. So somebody wants
    the key of a future that is on its way, whatever becomes of the actor meanwhile.
    """

    def __init__(self) -> None:
        #: {connection: {request: its futures}}
        self._handed: dict[ConnectionT, dict[int, list[Any]]] = {}

    def add(self, connection: ConnectionT, futures: Iterable[tuple[int, list[Any]]]) -> None:
        """Keep the futures in the answers to some requests."""
        self._handed.setdefault(connection, {}).update(futures)

    def taken(self, connection: ConnectionT, requests: Iterable[int]) -> list[Any]:
        """Return the futures of these requests, which are not kept any more."""
        handed = self._handed.get(connection, {})
        return [future for request in requests for future in handed.pop(request, ())]

    def end(self, connection: ConnectionT) -> list[Any]:
        """Note the end of a connection; return the futures that were not taken.

        The holder may have read of them, and the scheduler not yet of its own: the caller keeps
        them for a while.
        """
        handed = self._handed.pop(connection, {})
        return [future for futures in handed.values() for future in futures]

    def __len__(self) -> int:
        """Return the number of answers."""
        return sum(map(len, self._handed.values()))
