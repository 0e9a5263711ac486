"""Which large answers of the data port go out, which wait, and which another worker gives. Pure.

This is about readers on other hosts: those of the same host share no link, and clients pass nothing
on. A link that many answers share brings all of them late. So copies of the same value go out one
after the other, and a reader that has got its copy gives it to others: half of those that wait are
passed on to it. It does the same. So a value that n workers read at once is there after about
log2(n) copies, not n, and neither the scheduler nor a reader knows of it before. Answers of
different values go out together, `MAX_SENT` at most.

A large answer is over when its reader has acknowledged it. A reader may be slow, or suspended. So
an answer counts only for the time that a slow link takes, and no request waits for longer than
`MAX_WAIT_S`: nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Final

#: Answers of at least this size are large.
LARGE_BYTES: Final = 4 << 20
#: The bandwidth is measured by answers of at least this size: others show the latency.
MEASURED_BYTES: Final = 1 << 20
#: Large answers that go out at the same time.
MAX_SENT: Final = 16
#: A large answer counts for so long, and for the time that its bytes take on a slow link.
LEAST_SENT_S: Final = 1.0
SLOW_BYTES_PER_S: Final = 50_000_000
#: A request is answered after this time, however many others are.
MAX_WAIT_S: Final = 10.0


@dataclass(slots=True, eq=False)
class LargeRequest:
    """A request for values that are large together."""

    reader: Hashable  #: the connection on which it came
    request: int
    keys: tuple[str, ...]
    nbytes: int
    #: the data port of the reader, which passes on what it gets
    address: str
    #: when it came
    since: float
    #: when it counts no more, once it is answered
    until: float = inf


class Sending:
    """The large requests of a data port that are being answered, or wait for that."""

    def __init__(self) -> None:
        #: {request: None} whose answers go out
        self.sent: dict[LargeRequest, None] = {}
        #: {request: None} that wait, oldest first
        self.waiting: dict[LargeRequest, None] = {}

    def ask(self, asked: LargeRequest, now: float) -> bool:
        """Take a request; return whether it is to be answered now. Else `next` returns it later."""
        if self._may_go(asked, now):
            self._begin(asked, now)
            return True
        self.waiting[asked] = None
        return False

    def next(self, now: float) -> list[LargeRequest]:
        """Return the waiting requests that are to be answered now."""
        self.sent = {asked: None for asked in self.sent if asked.until > now}
        chosen = []
        for asked in list(self.waiting):
            if self._may_go(asked, now):
                del self.waiting[asked]
                self._begin(asked, now)
                chosen.append(asked)
        return chosen

    def taken(self, reader: Hashable, request: int) -> list[tuple[LargeRequest, str]]:
        """Note that a reader has its answer; return what it is to answer in turn, and where."""
        passed: list[tuple[LargeRequest, str]] = []
        for sent in [one for one in self.sent if one.reader == reader and one.request == request]:
            del self.sent[sent]
            same = [asked for asked in self.waiting if asked.keys == sent.keys]
            n_kept = len(same) - len(same) // 2
            passed += [(asked, sent.address) for asked in same[n_kept:]]
        for asked, _ in passed:
            del self.waiting[asked]
        return passed

    def closed(self, reader: Hashable) -> None:
        """Forget a connection that has ended."""
        for table in (self.sent, self.waiting):
            for asked in [one for one in table if one.reader == reader]:
                del table[asked]

    def next_look(self) -> float:
        """Return when `next` is to be called at the latest."""
        if not self.waiting:
            return inf
        oldest = next(iter(self.waiting)).since + MAX_WAIT_S
        return min(oldest, *(asked.until for asked in self.sent)) if self.sent else oldest

    def _may_go(self, asked: LargeRequest, now: float) -> bool:
        if now - asked.since >= MAX_WAIT_S:
            return True
        if len(self.sent) >= MAX_SENT:
            return False
        return all(one.keys != asked.keys for one in self.sent)

    def _begin(self, asked: LargeRequest, now: float) -> None:
        asked.until = now + LEAST_SENT_S + asked.nbytes / SLOW_BYTES_PER_S
        self.sent[asked] = None
