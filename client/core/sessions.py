"""The start and the loss of the connection, and the end of a client. A part of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import Failure
from ...protocol.wire.messages import SubmitTasks
from .events import ClientClosing, ClientTick, Connected, Disconnected, GaveUp, Unsendable, Warn
from .fetching import ask_later_ones, repeat_through_scheduler
from .foreign_keys import settle_all_loans, settle_late_loans
from .operations import go_on_after_loans
from .reconciling import ask, look_at_answers, submit_again
from .releasing import set_barrier
from .submitting import discard_submissions
from .tasks import CANCELLED, ERROR, GONE, LOST, PENDING, Status
from .transitions import move
from .watching import fail, touch

if TYPE_CHECKING:
    from .feature import Handler
    from .state import ClientState


def on_connected(core: ClientState, event: Connected) -> None:
    """Go on with the same scheduler, or submit again to a new one."""
    assert not core.is_linked
    # The network changed: holders that could not be reached are tried again.
    core.unreachable.clear()
    core.fetch_later.clear()
    n_submitted = -1
    is_new = event.epoch != core.epoch
    for begun in core.features.begun:
        begun(core, is_new)
    if not is_new:
        ask(core)
    else:
        n_submitted = submit_again(core, is_first=not core.epoch)
        core.epoch = event.epoch
    for asked in core.features.asked:
        asked(core, event, n_submitted)


def on_disconnected(core: ClientState, _event: Disconnected) -> None:
    """Drop the state of the session."""
    for lost in core.features.lost:
        lost(core)
    core.is_linked = False
    core.unanswered = None
    core.to_scheduler.clear()
    discard_submissions(core)
    core.temporary = {}
    repeat_through_scheduler(core)
    # Nothing that was sent in this session will be answered in the next.
    core.barriers.clear()
    core.let_go = {}
    core.confirmations = [(watcher, 0) for watcher, _ in core.confirmations]


def on_unsendable(core: ClientState, event: Unsendable) -> None:
    """Fail the tasks, or the request, of a message that the protocol forbids."""
    message, reason = event.message, event.reason
    unsendable = core.features.unsendable.get(type(message))
    if isinstance(message, SubmitTasks):
        for key in message.keys:
            state = core.table.states.get(key)
            if state is not None and state.status == PENDING:
                if state.phase != GONE:
                    move(core, state, GONE)
                fail(core, state, ERROR, ["not-sent", key, reason])
    elif unsendable is not None:
        unsendable(core, message, reason)
    else:
        core.after.append(Warn(f"a message could not be sent: {reason}"))


def on_gave_up(core: ClientState, event: GaveUp) -> None:
    """End, because there will be no connection."""
    _end(core, LOST, ["connection-lost", "", event.reason])


def on_closed(core: ClientState, _event: ClientClosing) -> None:
    """End, because the user closed the client."""
    _end(core, CANCELLED, ["client-closed", ""])


def _end(core: ClientState, status: Status, failure: Failure) -> None:
    core.is_linked = False
    core.end = failure
    core.unanswered = None
    core.to_scheduler.clear()
    for state in core.table.snapshot():
        if state.failure is None and not state.has_data:
            fail(core, state, status, [failure[0], state.key, *failure[2:]])
    for watcher, _ in core.confirmations:
        touch(core, watcher, None)
    core.confirmations.clear()
    core.retries = {}
    for ended in core.features.ended:
        ended(core)
    settle_all_loans(core)
    go_on_after_loans(core)


def on_tick(core: ClientState, _event: ClientTick) -> None:
    """Check that releases were read, and that answers came in time; repeat delayed requests."""
    if core.is_linked:
        if core.unacknowledged and not core.checked:
            core.checked, core.unacknowledged = core.unacknowledged, {}
            core.check = set_barrier(core)
        if core.fetch_later:
            ask_later_ones(core)
    look_at_answers(core)
    for ticked in core.features.ticked:
        ticked(core)
    if core.waiting and settle_late_loans(core):
        go_on_after_loans(core)


SESSIONS: Final[dict[type, Handler]] = {
    Connected: on_connected,
    Disconnected: on_disconnected,
    GaveUp: on_gave_up,
    ClientClosing: on_closed,
    Unsendable: on_unsendable,
    ClientTick: on_tick,
}
