"""The queues of copies at their holders: one request per holder at a time, and limited bytes.

Owns the queues and the bytes in flight. It handles copies, not tasks, and changes no copy's state:
`copies` decides what the answer to a request means for tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from .tasks import WorkerTask

#: Largest sum of (expected) sizes of one request; a single larger value goes alone. Small enough
#: for the first tasks to start while the rest is on its way.
REQUEST_BYTES = 64 << 20
#: Largest sum over all requests, before another one is begun.
IN_FLIGHT_BYTES = 256 << 20
#: The same, as parts of the memory limit: what arrives is in memory at once.
_REQUEST_PART = 1 / 16
_IN_FLIGHT_PART = 1 / 8
#: Most keys of one request.
REQUEST_KEYS = 4096


@dataclass(slots=True, eq=False)
class Peer:
    """Another worker that holds copies that tasks here need."""

    address: str
    #: Copies in state "fetch" that this peer will be asked for, oldest first.
    queue: dict[WorkerTask, None] = field(default_factory=dict)
    #: Its only outstanding request.
    request: Request | None = None
    #: Sum of nbytes over the queue and the request.
    nbytes: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """The copies that a peer has been asked for."""

    number: int
    peer: Peer
    #: {key: the copy, in state "flight"}; None = it was dropped meanwhile.
    copies: dict[str, WorkerTask | None] = field(default_factory=dict)
    #: {key: attempt under which the shell stores it}
    attempts: dict[str, int] = field(default_factory=dict)
    #: Sum of the sizes expected when it was begun; counted in Peer.nbytes and Fetching.nbytes.
    nbytes: int = 0


class Fetching:
    """All copies in state "fetch" or "flight"."""

    def __init__(self) -> None:
        #: {address: peer}. All and only those with a queue or a request.
        self.peers: dict[str, Peer] = {}
        #: {number: request}. Each is the request of its peer.
        self.requests: dict[int, Request] = {}
        #: Sum of nbytes over `requests`.
        self.nbytes = 0
        #: No request is begun, because memory is short.
        self.is_held_back = False
        #: Of this worker, bytes.
        self.memory_limit = inf
        #: Peers with a queue and no request, longest waiting first.
        self.waiting: dict[Peer, None] = {}
        #: No number is used for two requests, not even after `SchedulerLost`.
        self._last_request = 0

    def add(self, copy: WorkerTask) -> None:
        """Queue a copy, which has a holder, at the holder that has the fewest bytes to send."""
        best: Peer | None = None
        for address in copy.holders:
            peer = self.peers.get(address)
            if peer is None:
                best = self.peers[address] = Peer(address)
                break
            if best is None or peer.nbytes < best.nbytes:
                best = peer
        assert best is not None
        copy.peer = best
        best.queue[copy] = None
        best.nbytes += copy.nbytes
        if best.request is None:
            self.waiting[best] = None

    def remove(self, copy: WorkerTask) -> None:
        """Take out a copy that no task needs any more, or that is to be asked for elsewhere.

        A copy that is in flight may still come; no task waits for it then.
        """
        peer = copy.peer
        assert peer is not None
        copy.peer = None
        if copy in peer.queue:
            del peer.queue[copy]
            peer.nbytes -= copy.nbytes
            self._clean(peer)
        else:
            assert peer.request is not None
            peer.request.copies[copy.key] = None

    def start(self) -> list[Request]:
        """Begin a request to every peer that may be asked, with copies out of its queue."""
        begun: list[Request] = []
        if self.is_held_back:
            return begun
        request_nbytes = min(REQUEST_BYTES, _REQUEST_PART * self.memory_limit)
        most_nbytes = min(IN_FLIGHT_BYTES, _IN_FLIGHT_PART * self.memory_limit)
        while self.waiting and (not self.requests or self.nbytes < most_nbytes):
            peer = next(iter(self.waiting))
            del self.waiting[peer]
            self._last_request += 1
            request = Request(self._last_request, peer)
            for copy in peer.queue:
                nbytes = request.nbytes + copy.nbytes
                n = len(request.copies)
                if n and (nbytes > request_nbytes or n == REQUEST_KEYS):
                    break
                request.copies[copy.key] = copy
                request.attempts[copy.key] = copy.attempt
                request.nbytes = nbytes
            for asked in request.copies.values():
                assert asked is not None
                del peer.queue[asked]
            peer.request = self.requests[request.number] = request
            self.nbytes += request.nbytes
            begun.append(request)
        return begun

    def end(self, number: int) -> Request | None:
        """End a request; its copies are in no container of this class any more."""
        request = self.requests.pop(number, None)
        if request is not None:
            for copy in request.copies.values():
                if copy is not None:
                    copy.peer = None
            peer = request.peer
            peer.request = None
            peer.nbytes -= request.nbytes
            self.nbytes -= request.nbytes
            if peer.queue:
                self.waiting[peer] = None
            self._clean(peer)
        return request

    def give_up(self, address: str) -> list[WorkerTask]:
        """Return the copies that were queued at a holder out of reach; they are in no queue now."""
        peer = self.peers.get(address)
        if peer is None:
            return []
        copies = list(peer.queue)
        for copy in copies:
            copy.peer = None
            peer.nbytes -= copy.nbytes
        peer.queue.clear()
        self._clean(peer)
        return copies

    def _clean(self, peer: Peer) -> None:
        if not peer.queue:
            self.waiting.pop(peer, None)
            if peer.request is None:
                assert peer.nbytes == 0
                del self.peers[peer.address]
