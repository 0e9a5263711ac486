"""Decides which large results to fetch from which worker, and when. A part of the core.

Results that stay with workers are fetched directly, in batches for each holder, with a limit on the
bytes under way: a gather of more than memory can hold in buffers must not request all at once. A
holder that cannot be reached is asked through the scheduler. A key that its holder does not have is
reported, and fetched again when the scheduler has sent its new place. After `MAX_ROUNDS` of that
the data counts as lost, so that nothing waits for ever. A holder that is out of reach may just have
died, which the scheduler notices a little later: after `FAST_ROUNDS` it is asked only once per
tick.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import Failure, data_lost
from ...protocol.wire.messages import FetchKeys, ReportMissing, WantKeys
from ...protocol.wire.payload import Blob
from .events import FetchFrom, ResultsFetched, ResultsNotFetched
from .tasks import FINISHED, LOST, PENDING, FutureState
from .transitions import set_status
from .watching import THROUGH_SCHEDULER, fail, wake

if TYPE_CHECKING:
    from .feature import Handler
    from .state import ClientState

MAX_NBYTES_IN_FLIGHT: Final = 256 << 20
MAX_BATCH_NBYTES: Final = 32 << 20
MAX_BATCH_KEYS: Final = 1024
MAX_REQUESTS_PER_HOLDER: Final = 2
#: Rounds without a pause; then there is one per tick, for longer than it takes to notice that a
#: machine is gone.
FAST_ROUNDS: Final = 5
MAX_ROUNDS: Final = 45

#: Number of holders whose reasons are remembered, for the text of errors.
MAX_REASONS: Final = 1000


class FetchUnderWay:
    """A request under way."""

    __slots__ = ("holder", "nbytes", "states")

    def __init__(self, holder: str, states: list[FutureState], nbytes: int) -> None:
        self.holder = holder
        self.states = states
        self.nbytes = nbytes


def turn_from(core: ClientState, states: dict[FutureState, None]) -> None:
    """Give up the requests at holders for these states, which the scheduler reports as lost.

    A worker that the scheduler counts as lost may be suspended, or its machine may be gone: then
    its connection stays open and is silent. Answers that come nevertheless are ignored. Requests
    through the scheduler stay, because it answers each.
    """
    if not any(state in core.fetching for state in states):
        return
    for holder, queue in list(core.fetch_queues.items()):
        if holder != THROUGH_SCHEDULER:
            for state in [state for state in queue if state in states]:
                del queue[state]
                del core.fetching[state]
            if not queue:
                del core.fetch_queues[holder]
    for number, fetch in list(core.fetches.items()):
        if fetch.holder != THROUGH_SCHEDULER:
            left = [state for state in fetch.states if state not in states]
            for state in fetch.states if len(left) < len(fetch.states) else ():
                if state in states:
                    del core.fetching[state]
            fetch.states = left
            if not left:
                _end(core, number)


def issue(core: ClientState) -> None:
    """Start as many requests as the limits allow."""
    for holder in list(core.fetch_queues):
        if holder == THROUGH_SCHEDULER and not core.is_linked:
            continue
        queue = core.fetch_queues[holder]
        while queue and core.n_fetches.get(holder, 0) < MAX_REQUESTS_PER_HOLDER:
            # A result larger than the limit goes alone.
            if core.nbytes_in_flight >= MAX_NBYTES_IN_FLIGHT:
                return
            _start(core, holder, queue)
        if not queue:
            del core.fetch_queues[holder]


def _start(core: ClientState, holder: str, queue: dict[FutureState, None]) -> None:
    states: list[FutureState] = []
    nbytes = 0
    room = min(MAX_BATCH_NBYTES, MAX_NBYTES_IN_FLIGHT - core.nbytes_in_flight)
    for state in list(itertools.islice(queue, MAX_BATCH_KEYS)):
        if not _lacks_data(state):
            del queue[state]
            del core.fetching[state]
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
    request = core.next_request()
    core.fetches[request] = FetchUnderWay(holder, states, nbytes)
    core.n_fetches[holder] = core.n_fetches.get(holder, 0) + 1
    core.nbytes_in_flight += nbytes
    keys = [state.key for state in states]
    if holder == THROUGH_SCHEDULER:
        core.to_scheduler.append(FetchKeys(request=request, keys=keys))
    else:
        core.after.append(FetchFrom(holder, request, keys))


def _lacks_data(state: FutureState) -> bool:
    """Return whether data is still of use: it may have come in another way, with its last end."""
    return state.failure is None and state.n_references > 0 and not state.has_data


def take(core: ClientState, request: int, keys: list[str], blobs: list[Blob | None]) -> None:
    """Store the data that came for a request, if it is known; the rest of its keys are missing."""
    fetch = _end(core, request)
    if fetch is None:
        return
    found = dict(zip(keys, blobs, strict=True))
    missing: list[FutureState] = []
    for state in fetch.states:
        blob = found.get(state.key)
        if blob is None:
            missing.append(state)
            continue
        core.fetch_rounds.pop(state, None)
        if state.failure is None:
            if not state.has_data:
                state.blob = blob
            state.location = None
            set_status(state, FINISHED)
            wake(core, state)
    if missing:
        _on_missing(core, fetch.holder, missing)


def _on_missing(core: ClientState, holder: str, states: list[FutureState]) -> None:
    """Report the keys that a holder did not have. They are pending until the scheduler answers."""
    keys: list[str] = []
    by_scheduler = holder == THROUGH_SCHEDULER
    for state in states:
        location, state.location = state.location, None
        if not _lacks_data(state):
            core.fetch_rounds.pop(state, None)
            continue
        set_status(state, PENDING)
        if by_scheduler and state in core.fetch_later:
            continue  # it was requested ahead of the next tick, when a worker died
        rounds = core.fetch_rounds[state] = core.fetch_rounds.get(state, 0) + 1
        if rounds >= MAX_ROUNDS:
            del core.fetch_rounds[state]
            address = location[0] if location is not None else ""
            fail(core, state, LOST, _why(core, state.key, address, rounds, by_scheduler))
        elif (by_scheduler and rounds >= FAST_ROUNDS) or not core.is_linked:
            core.fetch_later[state] = None
        else:
            keys.append(state.key)
    if keys and by_scheduler:
        # The scheduler could not fetch it either: its answer names the holder, or reports that it
        # is being computed again.
        core.to_scheduler.append(WantKeys(keys=keys))
    elif keys:
        core.to_scheduler.append(ReportMissing(keys=keys, holder=holder))


def _why(core: ClientState, key: str, address: str, rounds: int, by_scheduler: bool) -> Failure:
    """Make the failure of a result that neither its holder nor the scheduler could give."""
    reason = core.unreachable_reasons.get(address)
    if by_scheduler and reason is not None:
        return ["unreachable", key, reason, address]
    return data_lost(key, f"it was requested {rounds} times, and its holder never had it")


def on_fetched(core: ClientState, event: ResultsFetched) -> None:
    """Store the data that came from a holder."""
    take(core, event.request, event.keys, event.blobs)


def on_not_fetched(core: ClientState, event: ResultsNotFetched) -> None:
    """Request through the scheduler the keys that a holder could not give."""
    fetch = _end(core, event.request)
    if fetch is None:
        return
    core.unreachable[fetch.holder] = None
    reasons = core.unreachable_reasons
    if fetch.holder not in reasons and len(reasons) >= MAX_REASONS:
        reasons.clear()
    reasons[fetch.holder] = event.reason
    ask_through_scheduler(core, [*fetch.states, *core.fetch_queues.pop(fetch.holder, {})])


def ask_through_scheduler(core: ClientState, states: list[FutureState]) -> None:
    """Queue states for the scheduler to answer."""
    new = dict.fromkeys(states)
    if new:
        core.fetching.update(new)
        core.fetch_queues.setdefault(THROUGH_SCHEDULER, {}).update(new)


def ask_later_ones(core: ClientState) -> None:
    """Ask for the new places of keys that were not found before this tick; try holders again."""
    states, core.fetch_later = core.fetch_later, {}
    core.unreachable.clear()
    keys = [state.key for state in states if _lacks_data(state)]
    if keys:
        core.to_scheduler.append(WantKeys(keys=keys))


def repeat_through_scheduler(core: ClientState) -> None:
    """Repeat, in the next session, the requests that went through the scheduler."""
    for request in [n for n, f in core.fetches.items() if f.holder == THROUGH_SCHEDULER]:
        fetch = _end(core, request)
        assert fetch is not None
        ask_through_scheduler(core, fetch.states)


def _end(core: ClientState, request: int) -> FetchUnderWay | None:
    fetch = core.fetches.pop(request, None)
    if fetch is None:
        return None
    core.nbytes_in_flight -= fetch.nbytes
    n = core.n_fetches[fetch.holder] - 1
    if n:
        core.n_fetches[fetch.holder] = n
    else:
        del core.n_fetches[fetch.holder]
    for state in fetch.states:
        core.fetching.pop(state, None)
    return fetch


FETCHING: Final[dict[type, Handler]] = {
    ResultsFetched: on_fetched,
    ResultsNotFetched: on_not_fetched,
}
