"""Calls of locks, queues and other coordination objects, and the leases that this client has.

A part of the core. A call is sent in each session, with the same number, until it is answered, and
the scheduler does it once (`scheduler/core/coordination/operating.py`). A session begins with the
calls that are not answered, then the leases, which the scheduler may have given up, or may not
know.

An answer that gives something (a lease, a value of a queue) is acknowledged when its caller has
taken it (`AnswerTaken`); if the caller was interrupted, it is given back (`CallAbandoned`). Values
of a queue are acknowledged soon, because the scheduler puts back what a client that died has not
acknowledged.

Time limits are counted by the scheduler. Here they are looked at while it is away, and after it,
because a call that is sent again has its whole time there once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.messages import Denied, Operate, Operated, Unsupported
from ....protocol.wire.messages.coordination import (
    HOLD_LOST,
    LATE,
    NOT_HELD,
    NOTE,
    QUEUE,
    RESTATE,
    RESUME,
    SUPERSEDED,
    TOO_LARGE,
    WITHDRAW,
)
from ....protocol.wire.payload import Blob
from ..events import Warn
from ..feature import ClientFeature
from ..submitting import close_submissions
from ..tasks import Watcher
from ..watching import touch
from .remembered import (
    REMEMBERED_INVARIANTS,
    Remembered,
    note_answer,
    note_restart,
    note_stated,
    note_superseded,
    note_taken,
    numbers_there,
    remembered_of,
    state_again,
)

if TYPE_CHECKING:
    from ..state import ClientState

#: The problem of a call whose time was over while the scheduler could not answer. It is withdrawn.
NO_ANSWER: Final = "no-answer"

#: Operations whose answer gives something.
_GIVING: Final = frozenset({"acquire", "get", "drain"})


# --- Operations of users --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ObjectCall:
    """Notify `watcher` of the answer: `Operated`, `Denied`, `Unsupported`; None at the end."""

    watcher: Watcher | None
    kind: str
    name: str
    operation: str
    arguments: dict[str, Any]
    values: list[Blob | None] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    #: the number of the message; 0 until the core has read of it
    request: int = 0
    #: number of sessions in which it was sent
    n_sent: int = 0
    #: it was late, and the scheduler has been started again since this client came
    is_after_restart: bool = False
    #: number of values of a queue that its answer gave
    n_given: int = 0
    #: when its caller has waited long enough, by the clock of the events; None = never
    due: float | None = None
    #: it waits for what a client has set, which may be lost with the scheduler
    awaits_set: bool = False
    #: the scheduler's epoch when it released a lease that the client had; -1 = it does not
    released_epoch: int = -1

    def message(self, request: int, acknowledged: list[int] | None = None) -> Operate:
        """Return the message of that number, which acknowledges answers to others."""
        return Operate(
            request=request,
            operation=self.operation,
            kind=self.kind,
            name=self.name,
            arguments=self.arguments,
            values=self.values,
            keys=self.keys,
            acknowledged=acknowledged or [],
        )


@dataclass(slots=True)
class AnswerTaken:
    """The caller has what the answer gave."""

    call: ObjectCall
    #: the scheduler keeps futures until it reads of this
    has_futures: bool = False


@dataclass(slots=True)
class CallAbandoned:
    """The caller waits no more: withdraw the call, or give back what its answer gave."""

    call: ObjectCall


# --- The record -----------------------------------------------------------------------------------


class ObjectCalls:
    """The calls and leases of a client."""

    def __init__(self) -> None:
        self.is_used = False  #: there was a call
        #: the scheduler is not the first one of this client
        self.is_after_restart = False
        #: {request: call} that are not answered, in order
        self.pending: dict[int, ObjectCall] = {}
        #: {request: call} whose answer gave something that the caller has not taken yet
        self.untaken: dict[int, ObjectCall] = {}
        #: {text of the lease: the call that states it in a new session} of those of locks and
        #: semaphores that were granted and not released
        self.leases: dict[str, ObjectCall] = {}
        #: {request: text of the lease} that were stated in this session and are not confirmed
        self.restating: dict[int, str] = {}
        #: {request: call} with a time limit that were sent again in this session
        self.resent: dict[int, ObjectCall] = {}
        #: {text of the lease: why it was lost}, until it is released
        self.lost: dict[str, str] = {}
        #: requests of this session whose answers the scheduler may forget
        self.to_acknowledge: list[int] = []


def calls_of(core: ClientState) -> ObjectCalls:
    """Return the calls and leases."""
    return core.record(ObjectCalls)


# --- Functions ------------------------------------------------------------------------------------


def call_object(core: ClientState, call: ObjectCall) -> None:
    """Send a call, now or when there is a connection."""
    close_submissions(core)  # whose futures may be in its value
    if core.end is not None:
        _notify(core, call, None)
        return
    calls = calls_of(core)
    calls.is_used = True
    call.request = core.next_request()
    if call.operation == "release":
        lease = call.arguments.get("lease", "")
        if calls.leases.pop(lease, None) is not None:
            call.released_epoch = core.epoch
        reason = calls.lost.pop(lease, None)
        if reason is not None:
            _notify(core, call, Operated(request=call.request, problem=HOLD_LOST, text=reason))
            return
    calls.pending[call.request] = call
    if core.is_linked:
        _send(core, call)


def _notify(core: ClientState, call: ObjectCall, answer: object) -> None:
    if call.watcher is not None:
        touch(core, call.watcher, answer)


def _send(core: ClientState, call: ObjectCall) -> None:
    call.n_sent += 1
    core.to_scheduler.append(call.message(call.request, _take_acknowledged(core)))


def _take_acknowledged(core: ClientState) -> list[int]:
    calls = calls_of(core)
    numbers, calls.to_acknowledge = calls.to_acknowledge, []
    return numbers


def on_operated(core: ClientState, message: Operated) -> None:
    """Notify the caller of its answer; note what it has got."""
    calls = calls_of(core)
    request = message.request
    if SUPERSEDED in message.info:
        note_superseded(core, message)
    if note_stated(core, request, message.text if message.problem else ""):
        calls.to_acknowledge.append(request)
        return
    lease = calls.restating.pop(request, None)
    if lease is not None:
        calls.to_acknowledge.append(request)
        if message.problem and lease in calls.leases:
            del calls.leases[lease]
            calls.lost[lease] = message.text
            core.after.append(Warn(message.text))
        return
    call = calls.pending.pop(request, None)
    if call is None:
        return  # it was withdrawn: the scheduler takes back what it has given
    if not message.problem:
        note_answer(core, call, message)
    call.is_after_restart = message.problem == LATE and calls.is_after_restart
    if message.problem == NOT_HELD and call.released_epoch >= 0:
        message = _answer_of_release(core, call)
    if call.operation in _GIVING and call.watcher is not None and not message.problem:
        calls.untaken[request] = call
        if message.info.get("granted") is True:
            arguments = dict(call.arguments)
            arguments.pop("timeout", None)
            if "names" in arguments:
                arguments["names"] = message.info.get("names")
                arguments.pop("number", None)
            restated = ObjectCall(None, call.kind, call.name, RESTATE, arguments)
            calls.leases[arguments["lease"]] = restated
    else:
        calls.to_acknowledge.append(request)
    _notify(core, call, message)


def _answer_of_release(core: ClientState, call: ObjectCall) -> Operated:
    """Return the answer to a release of a lease that the scheduler does not have any more."""
    if call.n_sent > 1 or call.released_epoch != core.epoch:
        # It was done before its answer was lost, or the scheduler is another one.
        return Operated(request=call.request)
    text = (
        f"{call.kind} {call.name!r} was not held any more when it was released, because this "
        "client was away from the scheduler for longer than its lease"
    )
    return Operated(request=call.request, problem=HOLD_LOST, text=text)


def _on_refused(core: ClientState, message: Denied | Unsupported) -> bool:
    """Notify the caller of a call that the scheduler does not take; False if it is none."""
    calls = calls_of(core)
    call = calls.pending.pop(message.request, None)
    if call is not None:
        _notify(core, call, message)
        return True
    text = "the scheduler does not take it from this client"
    if note_stated(core, message.request, text):
        return True
    return calls.restating.pop(message.request, None) is not None


def _on_unsendable(core: ClientState, message: Operate, reason: str) -> None:
    """Fail a call that the protocol forbids."""
    call = calls_of(core).pending.pop(message.request, None)
    text = f"it could not be sent: {reason}"
    if call is None:
        note_stated(core, message.request, text)
    else:
        _notify(core, call, Operated(request=message.request, problem=TOO_LARGE, text=text))


def on_taken(core: ClientState, operation: AnswerTaken) -> None:
    """Acknowledge an answer with the next call, or soon if the scheduler keeps values for it."""
    calls = calls_of(core)
    request = operation.call.request
    if calls.untaken.pop(request, None) is None:
        return
    calls.to_acknowledge.append(request)
    if operation.call.kind == QUEUE:
        note_taken(core, operation.call)
    if core.is_linked and (operation.has_futures or operation.call.kind == QUEUE):
        core.to_scheduler.append(
            Operate(request=0, operation=NOTE, acknowledged=_take_acknowledged(core))
        )


def on_abandoned(core: ClientState, operation: CallAbandoned) -> None:
    """Withdraw a call, or give back what its answer gave."""
    calls, call = calls_of(core), operation.call
    if call.operation == "release":
        call.watcher = None  # it is done all the same: the caller does not have the lease any more
        return
    was_pending = calls.pending.pop(call.request, None) is not None
    if not was_pending and calls.untaken.pop(call.request, None) is None:
        return
    calls.leases.pop(call.arguments.get("lease", ""), None)
    _withdraw(core, call)


def _withdraw(core: ClientState, call: ObjectCall) -> None:
    if core.end is None:
        call_object(core, ObjectCall(None, "", "", WITHDRAW, {"request": call.request}))


def _on_ticked(core: ClientState) -> None:
    """End the calls that have waited long enough for a scheduler that was, or is, away."""
    calls = calls_of(core)
    late = [
        call
        for call in (calls.resent if core.is_linked else calls.pending).values()
        if call.due is not None and call.due <= core.now
    ]
    for call in late:
        calls.resent.pop(call.request, None)
        if calls.pending.pop(call.request, None) is not None:
            _withdraw(core, call)
            _notify(core, call, Operated(request=call.request, problem=NO_ANSWER))


def _on_linked(core: ClientState, is_restarted: bool) -> None:
    """Begin a session: send the leases that this client has, and the calls without answer.

    To a scheduler that was started again, also what it has set.
    """
    calls = calls_of(core)
    calls.restating = {}
    calls.to_acknowledge = []
    calls.is_after_restart = calls.is_after_restart or is_restarted
    if not calls.is_used:
        return
    # A withdrawn call was perhaps answered, and must be known until it is given back.
    withdrawn = [c.arguments["request"] for c in calls.pending.values() if not c.kind]
    pending = [*calls.pending, *calls.untaken, *withdrawn]
    if is_restarted:
        note_restart(core, calls)
    arguments: dict[str, Any] = {"pending": pending}
    numbers = numbers_there(core)
    if numbers:
        arguments["set"] = numbers
    core.to_scheduler.append(Operate(request=0, operation=RESUME, arguments=arguments))
    for name, lease in calls.leases.items():
        request = core.next_request()
        calls.restating[request] = name
        core.to_scheduler.append(lease.message(request))
    state_again(core)
    calls.resent = {n: call for n, call in calls.pending.items() if call.due is not None}
    for call in calls.pending.values():
        _send(core, call)


def _on_ended(core: ClientState) -> None:
    """End all calls: there will be no connection any more."""
    calls = calls_of(core)
    for call in calls.pending.values():
        _notify(core, call, None)
    calls.pending.clear()
    calls.resent.clear()
    calls.untaken.clear()
    calls.restating.clear()
    calls.leases.clear()
    calls.to_acknowledge = []
    remembered_of(core).clear()


def _requests(core: ClientState) -> list[int]:
    calls = calls_of(core)
    stating = remembered_of(core).stating
    return [*calls.pending, *calls.untaken, *calls.restating, *stating]


FEATURE: Final = ClientFeature(
    name="coordination",
    records=(ObjectCalls, Remembered),
    handlers={
        ObjectCall: call_object,
        AnswerTaken: on_taken,
        CallAbandoned: on_abandoned,
        Operated: on_operated,
    },
    unsendable={Operate: _on_unsendable},
    invariants=REMEMBERED_INVARIANTS,
    requests=(_requests,),
    linked=(_on_linked,),
    ended=(_on_ended,),
    ticked=(_on_ticked,),
    refused=(_on_refused,),
)
