"""The start and the loss of the connection, and the end of a client. A part of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.wire.failure import Failure
from ...protocol.wire.messages import Ask, AskFailed, SubmitTasks
from ...protocol.wire.messages.questions import BAD_ARGUMENT
from .borrowing import settle_all_loans, settle_late_loans
from .events import ClientClosing, ClientTick, Connected, Disconnected, GaveUp, Unsendable, Warn
from .fetching import ask_later_ones, requeue_relayed
from .operations import go_on_after_loans, set_barrier
from .reconciling import ask, look_at_answers
from .submitting import discard_submissions
from .tasks import CANCELLED, ERROR, GONE, HELD, LOST, PENDING, SENT, Status
from .transitions import move
from .watching import fail, fail_questions, take_answer, touch

if TYPE_CHECKING:
    from .state import ClientState


def on_connected(core: ClientState, _event: Connected, now: float) -> None:
    """Ask for all wanted keys; everything else waits for the answers."""
    assert not core.is_linked
    # The network changed: holders that could not be reached are tried again.
    core.unreachable.clear()
    core.fetch_later.clear()
    core.unacknowledged = core.checked | core.unacknowledged
    core.checked = {}
    keys: list[str] = []
    for state in core.table.snapshot():
        # Only what is submitted in this session shows that the scheduler has a function.
        function = state.function
        if function is not None:
            function.n_wanted = 0
            state.function = None
        if state.phase != SENT or state.failure is not None:
            continue
        if state.spec is not None and state.key in core.unacknowledged:
            # The scheduler's task of this name may be one that was released: an earlier task, or
            # an earlier failure of the same one.
            move(core, state, HELD)
        else:
            keys.append(state.key)
    ask(core, keys, now)


def on_disconnected(core: ClientState, _event: Disconnected, _now: float) -> None:
    """Drop the state of the session."""
    if core.is_linked:  # those that were sent: this is their effect
        for watcher, _ in core.shutdowns.values():
            touch(core, watcher, None)
        core.shutdowns.clear()
    if core.is_linked:
        fail_questions(core)
    core.is_linked = False
    core.unanswered = None
    core.to_scheduler.clear()
    discard_submissions(core)
    requeue_relayed(core)
    # Nothing that was sent in this session will be answered in the next.
    core.barriers.clear()
    core.let_go = {}
    core.confirmations = [(watcher, 0) for watcher, _ in core.confirmations]


def on_unsendable(core: ClientState, event: Unsendable, _now: float) -> None:
    """Fail the tasks, or the question, of a message that the protocol forbids."""
    if isinstance(event.message, SubmitTasks):
        for key in event.message.keys:
            state = core.table.states.get(key)
            if state is not None and state.status == PENDING:
                if state.phase != GONE:
                    move(core, state, GONE)
                fail(core, state, ERROR, ["not-sent", key, event.reason])
    elif isinstance(event.message, Ask):
        text = f"it could not be sent: {event.reason}"
        failed = AskFailed(request=event.message.request, kind=BAD_ARGUMENT, text=text)
        take_answer(core, failed)
    else:
        core.after.append(Warn(f"a message could not be sent: {event.reason}"))


def on_gave_up(core: ClientState, event: GaveUp, _now: float) -> None:
    """End, because there will be no connection."""
    _end(core, LOST, ["connection-lost", "", event.reason])


def on_closed(core: ClientState, _event: ClientClosing, _now: float) -> None:
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
    waiting = [*core.cluster_watchers, *core.confirmations]
    asking = [question.watcher for question in core.questions.values()]
    asking += [watcher for watcher, _ in core.shutdowns.values()]
    for watcher in [*(w for w, _ in waiting), *asking]:
        touch(core, watcher, None)
    core.shutdowns.clear()
    core.cluster_watchers.clear()
    core.questions.clear()
    core.confirmations.clear()
    settle_all_loans(core)
    go_on_after_loans(core)


def on_tick(core: ClientState, _event: ClientTick, now: float) -> None:
    """Check that releases were read, and that answers came in time; repeat delayed requests."""
    if core.is_linked:
        if core.unacknowledged and not core.checked:
            core.checked, core.unacknowledged = core.unacknowledged, {}
            core.check = set_barrier(core)
        if core.fetch_later:
            ask_later_ones(core)
    look_at_answers(core, now)
    if core.waiting and settle_late_loans(core, now):
        go_on_after_loans(core)
