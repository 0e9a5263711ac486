"""Links between hosts in virtual time.

Each host has a link in each direction, all of the same bandwidth. What is on its way at the same
time shares them: a transfer goes at an equal share of the busier one of its two links.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from math import inf
from typing import Final

from .clock import VirtualClock

__all__ = ["MESSAGE_S", "Network"]

#: A message is there after this time, seconds.
MESSAGE_S: Final = 0.0002
#: What is smaller does not share the links: its time is known when it is sent.
_LEAST_SHARED: Final = 64 << 10


class _Transfer:
    __slots__ = ("due", "end", "left", "rate", "seen", "source", "target", "then")

    def __init__(self, source: int, target: int, nbytes: float, then: Callable[[], object]) -> None:
        self.source, self.target, self.then = source, target, then
        self.left = nbytes
        self.rate = 0.0
        #: when `left` was right
        self.seen = 0.0
        #: when it ends at this rate, and when it is looked at next
        self.end = self.due = inf


class Network:
    """All links."""

    def __init__(self, clock: VirtualClock, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        #: bytes that were sent
        self.nbytes = 0
        self._clock = clock
        self._out: dict[int, dict[_Transfer, None]] = {}
        self._in: dict[int, dict[_Transfer, None]] = {}

    def send(self, source: int, target: int, nbytes: int, then: Callable[[], object]) -> None:
        """Call `then` when so many bytes have come from one host to another."""
        self.nbytes += nbytes
        if nbytes < _LEAST_SHARED:
            self._clock.at(MESSAGE_S + nbytes / self.bytes_per_s, then)
            return
        transfer = _Transfer(source, target, nbytes, then)
        self._clock.at(MESSAGE_S, lambda: self._begin(transfer))

    def _begin(self, transfer: _Transfer) -> None:
        transfer.seen = self._clock.now
        self._out.setdefault(transfer.source, {})[transfer] = None
        self._in.setdefault(transfer.target, {})[transfer] = None
        self._share(transfer)

    def _share(self, changed: _Transfer) -> None:
        """Bring the rates up to date of all that share a link with one that begins or ends."""
        now = self._clock.now
        sharing = chain(self._out[changed.source], self._in[changed.target])
        for transfer in dict.fromkeys(sharing):
            n = max(len(self._out[transfer.source]), len(self._in[transfer.target]))
            rate = self.bytes_per_s / n
            if rate == transfer.rate:
                continue
            transfer.left -= (now - transfer.seen) * transfer.rate
            transfer.seen, transfer.rate = now, rate
            transfer.end = now + max(transfer.left, 0.0) / rate
            if transfer.end < transfer.due:
                self._look_at(transfer)

    def _look_at(self, transfer: _Transfer) -> None:
        transfer.due = transfer.end
        self._clock.at_time(transfer.end, lambda: self._look(transfer))

    def _look(self, transfer: _Transfer) -> None:
        if transfer not in self._in[transfer.target] or self._clock.now < transfer.due:
            return  # it has ended, or is looked at later
        if self._clock.now < transfer.end:
            self._look_at(transfer)
            return
        del self._out[transfer.source][transfer]
        del self._in[transfer.target][transfer]
        self._share(transfer)
        transfer.then()
