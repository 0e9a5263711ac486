"""Which large results to fetch from whom, and when. A part of the core.

Results that stay with workers are fetched directly, in batches for each holder, with a limit on the
bytes under way: a gather of more than memory can hold in buffers must not ask for all at once. A
holder that cannot be reached is asked through the scheduler. A key that its holder does not have is
reported, and fetched again when the scheduler says where it is now. After `MAX_ROUNDS` of that the
data counts as lost: nothing waits for ever. A holder that is out of reach may just have died, which
the scheduler learns a little later: after `FAST_ROUNDS` it is asked again once a tick only.
"""

from __future__ import annotations

import itertools
from typing import Final

from ...protocol.wire.failure import data_lost
from ...protocol.wire.message import Message
from ...protocol.wire.messages import FetchKeys, ReportMissing, WantKeys
from ...protocol.wire.payload import Blob
from .events import Action, FetchFrom
from .tasks import FutureState

MAX_NBYTES_IN_FLIGHT: Final = 256 << 20
MAX_BATCH_NBYTES: Final = 32 << 20
MAX_BATCH_KEYS: Final = 1024
MAX_REQUESTS_PER_HOLDER: Final = 2
#: So often without a pause; then once a tick, for longer than it takes to notice that a machine
#: is gone.
FAST_ROUNDS: Final = 5
MAX_ROUNDS: Final = 45

#: So many holders' reasons are remembered, for the text of errors.
_MAX_REASONS: Final = 1000

#: Stands for the scheduler where a holder's address is expected.
THROUGH_SCHEDULER: Final = ""


class _Request:
    __slots__ = ("holder", "nbytes", "states")

    def __init__(self, holder: str, states: list[FutureState], nbytes: int) -> None:
        self.holder = holder
        self.states = states
        self.nbytes = nbytes


class Fetches:
    """All fetches of one client. The caller drains `actions`, `messages` and `failed`."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.messages: list[Message] = []
        #: States whose holder did not have them, since the last `take_missing`.
        self._missing: list[FutureState] = []
        #: States to be failed, by now without hope.
        self.failed: list[tuple[FutureState, list[object]]] = []
        #: {holder: states to ask it for}; no empty ones.
        self._queues: dict[str, dict[FutureState, None]] = {}
        #: {request: what it asks for}.
        self._requests: dict[int, _Request] = {}
        #: {holder: number of requests under way}; no zeros.
        self._n_requests: dict[str, int] = {}
        #: Sum of the requests' nbytes.
        self._nbytes_in_flight = 0
        #: All and only states in a queue or a request, with the rounds that failed so far;
        #: and those that failed and wait for a new location.
        self._rounds: dict[FutureState, int] = {}
        #: States in a queue or a request.
        self._busy: dict[FutureState, None] = {}
        #: {holder: None} that could not be reached directly; tried again after a reconnect.
        self._unreachable: dict[str, None] = {}
        #: {holder: why it could not be reached the last time}; at most `_MAX_REASONS`.
        self._reasons: dict[str, str] = {}
        #: {state: None} that neither holder nor scheduler could give; asked about at the next tick.
        self._later: dict[FutureState, None] = {}
        self._last_request = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def next_request(self) -> int:
        """Return a request number that no other request has."""
        self._last_request += 1
        return self._last_request

    def add(self, state: FutureState) -> None:
        """Fetch the data of a finished state, unless that is under way."""
        if state in self._busy:
            return
        assert state.location is not None
        holder = state.location[0]
        if holder in self._unreachable:
            holder = THROUGH_SCHEDULER
        self._busy[state] = None
        self._queues.setdefault(holder, {})[state] = None

    def turn_from(self, states: dict[FutureState, None]) -> None:
        """Expect nothing more of the holders that were asked for these: they lost them.

        A worker that the scheduler took for lost may be suspended, or its machine gone: then its
        connection stays open and is silent. What comes of it all the same is ignored. Requests
        through the scheduler stay: it answers each.
        """
        if not any(state in self._busy for state in states):
            return
        for holder, queue in list(self._queues.items()):
            if holder != THROUGH_SCHEDULER:
                for state in [state for state in queue if state in states]:
                    del queue[state]
                    del self._busy[state]
                if not queue:
                    del self._queues[holder]
        for number, request in list(self._requests.items()):
            if request.holder != THROUGH_SCHEDULER:
                left = [state for state in request.states if state not in states]
                for state in request.states if len(left) < len(request.states) else ():
                    if state in states:
                        del self._busy[state]
                request.states = left
                if not left:
                    self._end(number)

    def issue(self, *, is_linked: bool) -> None:
        """Start as many requests as the limits allow."""
        for holder in list(self._queues):
            if holder == THROUGH_SCHEDULER and not is_linked:
                continue
            queue = self._queues[holder]
            while queue and self._n_requests.get(holder, 0) < MAX_REQUESTS_PER_HOLDER:
                # One larger than the limit goes alone.
                if self._nbytes_in_flight >= MAX_NBYTES_IN_FLIGHT:
                    return
                self._start(holder, queue)
            if not queue:
                del self._queues[holder]

    def _start(self, holder: str, queue: dict[FutureState, None]) -> None:
        states: list[FutureState] = []
        nbytes = 0
        room = min(MAX_BATCH_NBYTES, MAX_NBYTES_IN_FLIGHT - self._nbytes_in_flight)
        for state in list(itertools.islice(queue, MAX_BATCH_KEYS)):
            if state.n_references <= 0:  # nobody wants it any more
                del queue[state]
                del self._busy[state]
                continue
            n = state.location[1] if state.location is not None else 0
            if states and nbytes + n > room:
                break
            states.append(state)
            nbytes += n
        if not states:
            return
        for state in states:
            del queue[state]
        request = self.next_request()
        self._requests[request] = _Request(holder, states, nbytes)
        self._n_requests[holder] = self._n_requests.get(holder, 0) + 1
        self._nbytes_in_flight += nbytes
        keys = [state.key for state in states]
        if holder == THROUGH_SCHEDULER:
            self.messages.append(FetchKeys(request=request, keys=keys))
        else:
            self.actions.append(FetchFrom(holder, request, keys))

    def finish(
        self, request: int, keys: list[str], blobs: list[Blob | None]
    ) -> list[FutureState] | None:
        """Store what came; return the states that have data now, None for an unknown request.

        States that were asked for and did not come are reported missing and await a new location.
        """
        done = self._end(request)
        if done is None:
            return None
        found = dict(zip(keys, blobs, strict=True))
        arrived: list[FutureState] = []
        missing: list[FutureState] = []
        for state in done.states:
            blob = found.get(state.key)
            if blob is None:
                missing.append(state)
                continue
            self._rounds.pop(state, None)
            if state.failure is None and not state.has_data:
                state.blob = blob
            arrived.append(state)
        if missing:
            self._on_missing(done.holder, missing)
        return arrived

    def _on_missing(self, holder: str, states: list[FutureState]) -> None:
        keys: list[str] = []
        self._missing += states
        for state in states:
            if state.failure is not None or state.n_references <= 0:
                self._rounds.pop(state, None)
                continue
            if holder == THROUGH_SCHEDULER and state in self._later:
                continue  # it was news that let us ask before the next tick: of a worker that died
            rounds = self._rounds[state] = self._rounds.get(state, 0) + 1
            if holder == THROUGH_SCHEDULER and FAST_ROUNDS <= rounds < MAX_ROUNDS:
                self._later[state] = None
                continue
            if rounds >= MAX_ROUNDS:
                del self._rounds[state]
                self.failed.append((state, self._why(state, holder, rounds)))
                continue
            keys.append(state.key)
        if not keys:
            return
        if holder == THROUGH_SCHEDULER:
            # The scheduler could not get at it either: its answer says where it is, or that it
            # is being computed again.
            self.messages.append(WantKeys(keys=keys))
        else:
            self.messages.append(ReportMissing(keys=keys, holder=holder))

    def _why(self, state: FutureState, asked: str, rounds: int) -> list[object]:
        """Make the failure of a result that nobody could give."""
        holder = state.location[0] if state.location is not None else ""
        reason = self._reasons.get(holder)
        if asked == THROUGH_SCHEDULER and reason is not None:
            return ["unreachable", state.key, reason, holder]
        text = f"it was asked for {rounds} times and was never where it should be"
        return data_lost(state.key, text)

    def take_missing(self) -> list[FutureState]:
        """Return the states that were asked for in vain."""
        missing, self._missing = self._missing, []
        return missing

    def fail(self, request: int, reason: str) -> None:
        """Ask through the scheduler for what a holder could not give."""
        done = self._end(request)
        if done is None:
            return
        self._unreachable[done.holder] = None
        if done.holder not in self._reasons and len(self._reasons) >= _MAX_REASONS:
            self._reasons.clear()
        self._reasons[done.holder] = reason
        moved = [*done.states, *self._queues.pop(done.holder, {})]
        queue = self._queues.setdefault(THROUGH_SCHEDULER, {})
        for state in moved:
            self._busy[state] = None
            queue[state] = None

    def on_tick(self) -> None:
        """Ask again for what nobody could give a while ago, and for its holders' sake directly."""
        if not self._later:
            return
        states, self._later = self._later, {}
        self._unreachable.clear()
        keys = [s.key for s in states if s.failure is None and s.n_references > 0]
        if keys:
            self.messages.append(WantKeys(keys=keys))

    def on_disconnected(self) -> None:
        """Ask again, later, for what was asked through the scheduler."""
        self.messages.clear()
        self._later.clear()  # asked about with all else when there is a connection again
        for request in [n for n, r in self._requests.items() if r.holder == THROUGH_SCHEDULER]:
            done = self._end(request)
            assert done is not None
            queue = self._queues.setdefault(THROUGH_SCHEDULER, {})
            for state in done.states:
                self._busy[state] = None
                queue[state] = None

    def on_connected(self) -> None:
        """Give holders that could not be reached another chance: the network changed."""
        self._unreachable.clear()

    def _end(self, request: int) -> _Request | None:
        done = self._requests.pop(request, None)
        if done is None:
            return None
        self._nbytes_in_flight -= done.nbytes
        n = self._n_requests[done.holder] - 1
        if n:
            self._n_requests[done.holder] = n
        else:
            del self._n_requests[done.holder]
        for state in done.states:
            self._busy.pop(state, None)
        return done

    def validate(self) -> None:
        """Assert the invariants."""
        in_requests = [state for r in self._requests.values() for state in r.states]
        in_queues = [state for queue in self._queues.values() for state in queue]
        assert all(self._queues.values())
        assert self._nbytes_in_flight == sum(r.nbytes for r in self._requests.values())
        counts: dict[str, int] = {}
        for request in self._requests.values():
            counts[request.holder] = counts.get(request.holder, 0) + 1
        assert counts == self._n_requests
        assert max(counts.values(), default=0) <= MAX_REQUESTS_PER_HOLDER
        assert len(self._reasons) <= _MAX_REASONS
        assert len(in_requests) + len(in_queues) == len(self._busy)
        assert {*map(id, in_requests), *map(id, in_queues)} == {*map(id, self._busy)}
