"""Failed tasks that the user has run again: `Client.retry` and `Future.retry`. A part of the core.

The states are pending from the operation on. The scheduler has their tasks, so it is asked to run
them again; until it has answered, messages about these keys are of the failed runs, and ignored. A
request without an answer is repeated in the next session of the same scheduler, where running a
task once more does no harm. A new scheduler has what workers have kept, which is a failure again.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import MEMORY_EXCEEDED, TIMED_OUT, data_lost
from ...protocol.wire.messages import Denied, KeysRetried, RetryKeys, Unsupported
from .submitting import close_submissions
from .tasks import FAILED, LOST, PENDING, SENT, FutureState
from .transitions import set_status
from .watching import fail, take_back

if TYPE_CHECKING:
    from .events import RetryFailed
    from .state import ClientState

#: Keys in one request.
MAX_KEYS: Final = 2048

#: Kinds of failures after which the scheduler has the task, as one that failed; of cancellations,
#: those of an input.
RETRIED_KINDS: Final = frozenset(
    {"exception", "worker-died", "data-lost", MEMORY_EXCEEDED, TIMED_OUT, "cancelled"}
)


def can_retry(state: FutureState) -> bool:
    """Return whether a state has failed and the scheduler can run its task again."""
    failure = state.failure
    if failure is None or state.phase != SENT:
        return False
    if failure[0] == "cancelled" and failure[1] == state.key:
        return False  # the scheduler has no task of it any more
    return failure[0] in RETRIED_KINDS


def on_retry(core: ClientState, operation: RetryFailed) -> None:
    """Make failed states pending, and ask the scheduler to run their tasks again.

    One whose call was submitted again has given up its place in the table: it stays as it is.
    """
    table = core.table.states
    states = [
        state
        for state in dict.fromkeys(operation.states)
        if can_retry(state) and table.get(state.key) is state
    ]
    if core.end is not None or not states:
        return
    for state in states:
        _reset(core, state)
    close_submissions(core)
    iterator = iter(states)
    while some := [*islice(iterator, MAX_KEYS)]:
        request = core.next_request()
        core.retries[request] = some
        if core.is_linked:
            _send(core, request)
        elif core.unanswered:
            for state in some:
                core.unanswered.pop(state.key, None)


def _reset(core: ClientState, state: FutureState) -> None:
    """Let a failed state wait again. Its failure goes last: readers look at the status first."""
    set_status(state, PENDING)
    state.failure = None
    take_back(core, state)


def _send(core: ClientState, request: int) -> None:
    keys = []
    for state in core.retries[request]:
        if core.table.states.get(state.key) is state and state.phase == SENT:
            keys.append(state.key)
            core.let_go.pop(state.key, None)
            core.barriers.pop(state.key, None)  # the next one is later
            core.barriers[state.key] = request
    core.to_scheduler.append(RetryKeys(request=request, keys=keys))


def in_retries(core: ClientState) -> set[FutureState]:
    """Return the states of the requests that were not answered."""
    return {state for states in core.retries.values() for state in states}


def retry_again(core: ClientState) -> None:
    """Begin a session: repeat the requests that were not answered."""
    requests = [*core.retries.values()]
    core.retries = {}
    for states in requests:
        request = core.next_request()
        core.retries[request] = states
        _send(core, request)


def on_keys_retried(core: ClientState, message: KeysRetried) -> None:
    """Note that the tasks run again; and so do failed inputs that have futures here."""
    core.retries.pop(message.request, None)
    for key in message.keys:
        state = core.table.states.get(key)
        if state is not None and state.status in FAILED and can_retry(state):
            _reset(core, state)


def on_retry_refused(core: ClientState, message: Denied | Unsupported) -> bool:
    """Fail the states of a request that the scheduler does not take; False if it is none."""
    states = core.retries.pop(message.request, None)
    for state in states or ():
        if state.status == PENDING and core.table.states.get(state.key) is state:
            text = "the scheduler does not run it again on request; submit its call again"
            fail(core, state, LOST, data_lost(state.key, text))
    return states is not None
