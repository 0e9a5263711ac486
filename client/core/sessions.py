"""The start and the loss of the connection, and the end of a client. A part of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.failure import Failure
from ...protocol.wire.messages import (
    Ask,
    AskFailed,
    Operate,
    Put,
    Recovered,
    Recovering,
    SubmitTasks,
)
from ...protocol.wire.messages.questions import BAD_ARGUMENT
from ...protocol.wording import counted
from .borrowing import settle_all_loans, settle_late_loans
from .events import ClientClosing, ClientTick, Connected, Disconnected, GaveUp, Unsendable, Warn
from .features.callers import forget_callers
from .features.coordination import end_late_calls, end_object_calls, on_call_unsendable
from .features.plugins import state_plugins
from .features.puts import forget_session, on_put_unsendable, send_failed
from .fetching import ask_later_ones, requeue_relayed
from .operations import go_on_after_loans
from .reconciling import ask, look_at_answers, submit_again
from .releasing import set_barrier
from .submitting import discard_submissions
from .tasks import CANCELLED, ERROR, GONE, LOST, PENDING, Status
from .transitions import move
from .watching import fail, fail_questions, take_answer, touch

if TYPE_CHECKING:
    from .state import ClientState

#: Ticks within which a scheduler that recovers reports so.
PATIENCE_TICKS: Final = 4


class Comeback:
    """The return of a scheduler, which the user is to read of."""

    __slots__ = ("is_recovering", "n_submitted", "n_ticks", "outage_s")

    def __init__(self, outage_s: float, n_submitted: int) -> None:
        self.outage_s = outage_s
        #: Keys that were submitted again, or wanted; -1 = the scheduler is the same one.
        self.n_submitted = n_submitted
        #: The scheduler will report what it has found.
        self.is_recovering = False
        self.n_ticks = 0


def on_connected(core: ClientState, event: Connected, now: float) -> None:
    """Go on with the same scheduler, or submit again to a new one."""
    assert not core.is_linked
    # The network changed: holders that could not be reached are tried again.
    core.unreachable.clear()
    core.fetch_later.clear()
    n_submitted = -1
    is_new = event.epoch != core.epoch
    state_plugins(core, is_new=is_new)
    if not is_new:
        ask(core, now)
    else:
        n_submitted = submit_again(core, is_first=not core.epoch)
        core.epoch = event.epoch
    if event.reported_outage_s:
        core.comeback = Comeback(event.reported_outage_s, n_submitted)
        if n_submitted < 0:
            report_comeback(core, "")


def on_recovering(core: ClientState, _message: Recovering) -> None:
    """Wait with the report: the scheduler will send what it has found."""
    if core.comeback is not None:
        core.comeback.is_recovering = True


def on_recovered(core: ClientState, message: Recovered) -> None:
    """Report to the user what the scheduler has found."""
    lost = f", {counted(message.n_lost, 'key')} unknown to all" if message.n_lost else ""
    n_others = max(message.n_clients - 1, 0)
    others = f" and {counted(n_others, 'other client')}" if n_others else ""
    report_comeback(
        core,
        f"; {counted(message.n_workers, 'worker')}{others} joined it, and workers had kept "
        f"{counted(message.n_kept, 'result')} and "
        f"{counted(message.n_adopted, 'unfinished task')}{lost}",
    )


def report_comeback(core: ClientState, found: str) -> None:
    """Report the return of the scheduler to the user, once."""
    comeback, core.comeback = core.comeback, None
    if comeback is None:
        return
    outage_s = comeback.outage_s
    text = "the scheduler is back after " + (
        f"{outage_s:.0f} s" if outage_s >= 1 else "less than 1 s"
    )
    n_pending = n_here = 0
    for state in core.table.snapshot():
        n_pending += state.status == PENDING
        n_here += state.has_data
    if comeback.n_submitted < 0:
        text += f"; {counted(n_pending, 'future')} pending"
    else:
        text += (
            f", and has been started again: {counted(n_here, 'result')} kept here, "
            f"{counted(comeback.n_submitted, 'task')} submitted again{found}"
        )
    core.after.append(Warn(text))


def on_disconnected(core: ClientState, _event: Disconnected, _now: float) -> None:
    """Drop the state of the session."""
    if core.is_linked:  # those that were sent: this is their effect
        for watcher, _ in core.shutdowns.values():
            touch(core, watcher, None)
        core.shutdowns.clear()
    if core.is_linked:
        fail_questions(core)
    core.is_linked = False
    core.n_workers = core.nthreads = 0  # not known: the next session begins with them
    core.unanswered = None
    core.comeback = None
    core.to_scheduler.clear()
    discard_submissions(core)
    core.temporary = {}
    requeue_relayed(core)
    forget_session(core)
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
    elif isinstance(event.message, Put):
        on_put_unsendable(core, event.message, event.reason)
    elif isinstance(event.message, Operate):
        on_call_unsendable(core, event.message, event.reason)
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
    core.retries = {}
    core.cluster_watchers.clear()
    core.questions.clear()
    core.confirmations.clear()
    end_object_calls(core)
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
    if core.puts.failed or core.puts.unreachable:
        send_failed(core, now)
    look_at_answers(core, now)
    end_late_calls(core, now)
    if core.callers:
        forget_callers(core)
    comeback = core.comeback
    if comeback is not None and not comeback.is_recovering:
        comeback.n_ticks += 1
        if comeback.n_ticks > PATIENCE_TICKS:  # it does not recover: it had no peers before
            report_comeback(core, "")
    if core.waiting and settle_late_loans(core, now):
        go_on_after_loans(core)
