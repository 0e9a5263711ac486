"""Operations of clients on coordination objects: done at once, or when their turn has come.

    Operate(request, operation, kind, name, ...) -> Operated(request, ...)

A call that cannot be done yet waits in a lane of its object, in order, until it is served, until
its time limit, or until its client withdraws it or is gone. Each change of an object serves the
calls whose turn has come with it.

**Away.** A call that is given something (a lease, values) is not served while its client has no
connection, since that one may be dead: those behind it go first. It has its place again when the
client is back within its lease. At the end of the lease, and when a client leaves, what it was
given and has not acknowledged is given back.

**Once.** A client sends a call again in each session until it has the answer. The answer is kept
until the client acknowledges it, so a call that is read twice is done once. A later scheduler knows
nothing of it, and does it: what only the old one held is gone, too. The answer of an operation that
only reads is not kept, since it may be large, and reading again does no harm. A client that does
not acknowledge is refused further calls.

**Recovery.** Until the barrier, calls whose outcome depends on what others hold or have set are put
off: those may not have come back yet. They state anew what they hold, and what they have set.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.columns import MAX_KEY_CHARS
from ....protocol.wire.messages.coordination import (
    CYCLE,
    NOT_RECORDED,
    NOTE,
    OWN_TOPIC,
    RESTATE,
    RESUME,
    TOO_LARGE,
    TOPIC,
    WITHDRAW,
)
from ..journal.jobs import when_written
from ..records.tasks import SchedulerTask
from ..upkeep.running_limits import note_lock_wait
from . import cycles
from .arguments import bad, check_timeout, closed
from .kinds import KINDS
from .marks import send_superseded, without_superseded
from .records import (
    AWAY,
    Call,
    ClientCalls,
    ObjectKind,
    ObjectOperation,
    ObjectRecord,
    OperationRefused,
    Reply,
    forget,
    objects_of,
)
from .topics import topics_of
from .values import drop, take

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: The most objects of one scheduler, calls of one client that wait, and answers kept for it. All
#: calls that wait may be answered at once, and are acknowledged by the next one.
MAX_OBJECTS: Final = 100_000
MAX_WAITING: Final = 100_000
MAX_ANSWERED: Final = MAX_WAITING


def on_operate(state: SchedulerState, client: ClientHandle, message: m.Operate) -> None:
    """Do an operation of a client, or let it wait."""
    objects = objects_of(state)
    calls = objects.calls.get(client)
    if calls is None:
        calls = objects.calls[client] = ClientCalls()
    for request in message.acknowledged:
        _forget_answer(state, calls, request)
    if message.operation == NOTE:
        return
    if message.operation == RESUME:
        _resume(state, client, calls, message)
        return
    request = message.request
    if request in calls.answered:
        call, reply = calls.answered[request]
        if not call.is_recording:
            _send(state, call, without_superseded(state, reply))
        return
    if request in calls.waiting:
        return  # it was sent again, and is answered in its turn
    call = Call(
        client, request, message.kind, message.name, message.operation, dict(message.arguments)
    )
    if message.operation == WITHDRAW:
        withdrawn = message.arguments.get("request")
        if type(withdrawn) is int and withdrawn != request:
            _withdraw(state, calls, withdrawn)
        _send(state, call, Reply())  # not kept: to withdraw it twice does no harm
        return
    if len(calls.answered) >= MAX_ANSWERED:
        text = f"{MAX_ANSWERED} answers to this client are not acknowledged, which is the limit"
        _send(state, call, _refused(bad(text)))
        return
    try:
        operation = _operation_of(call)
        check_timeout(call)
        if len(calls.waiting) >= MAX_WAITING:
            raise bad(f"{MAX_WAITING} operations of this client wait already, which is the limit")
        if operation.has_value:
            if len(message.values) != 1:
                raise bad(f"{message.operation} of a {message.kind} carries one value")
            call.value = take(state, message.values[0], message.keys)
        if operation.takes_keys:
            call.keys = message.keys
        if operation.is_deferred and state.awaits_peers:
            calls.waiting[request] = call
            objects.deferred[call] = None
            if call.timeout:  # a call that does not wait for others waits for the recovery
                call.deadline = state.call_after(call.timeout, _on_late, call)
            return
        _begin(state, call, operation)
    except OperationRefused as refusal:
        _answer(state, call, _refused(refusal))


def _refused(refusal: OperationRefused) -> Reply:
    return Reply(problem=refusal.problem, text=refusal.text)


def _operation_of(call: Call) -> ObjectOperation:
    kind = KINDS.get(call.kind)
    if kind is None:
        raise bad(f"this scheduler has no objects of kind {call.kind[:40]!r}")
    if not 1 <= len(call.name) <= MAX_KEY_CHARS:
        raise bad(f"the name of a {call.kind} has 1 to {MAX_KEY_CHARS} characters")
    operation = kind.operations.get(call.operation)
    if operation is None:
        raise bad(f"a {call.kind} has no operation {call.operation[:40]!r}")
    return operation


def _begin(state: SchedulerState, call: Call, operation: ObjectOperation) -> None:
    """Attempt a call; let it wait if its turn has not come.

    Raises:
        OperationRefused: it is refused.
    """
    objects = objects_of(state)
    kind = KINDS[call.kind]
    record = objects.records.get((call.kind, call.name))
    if record is None:
        if len(objects.records) >= MAX_OBJECTS:
            text = f"there are {MAX_OBJECTS} locks, queues and others, which is the limit"
            raise OperationRefused(TOO_LARGE, text)
        is_own = call.kind == TOPIC and call.name == OWN_TOPIC
        record = topics_of(state).own if is_own else kind.make(call)
        objects.records[call.kind, call.name] = record
    record.users[call.client] = None
    objects.calls[call.client].records[record] = None
    try:
        if record.is_closed and not operation.may_be_closed:
            raise closed(record)
        if operation.check is not None:
            operation.check(record, call)
        reply = None
        is_first = kind.serve is not None or operation.lane not in record.lanes
        if is_first and not (operation.gives and call.client.peer is None):
            reply = operation.attempt(state, record, call)
        if reply is None:
            reply = _wait(state, record, call, operation)
        if reply is not None:
            _answer(state, call, reply)
    finally:
        serve(state, record)


def _wait(
    state: SchedulerState, record: ObjectRecord, call: Call, operation: ObjectOperation
) -> Reply | None:
    """Let a call wait; return the reply if it must not."""
    timeout = call.timeout
    if timeout == 0:
        return operation.late
    if timeout is None and operation.check_wait is not None:
        operation.check_wait(record, call)
    call.record = record
    call.lane = AWAY if operation.gives and call.client.peer is None else operation.lane
    record.lanes.setdefault(call.lane, OrderedDict())[call] = None
    objects_of(state).last_place += 1
    call.place = objects_of(state).last_place
    _note_wait(state, call)
    objects_of(state).calls[call.client].waiting[call.request] = call
    if timeout is not None and call.deadline is None:
        call.deadline = state.call_after(timeout, _on_late, call)
    return None


def _note_wait(state: SchedulerState, call: Call) -> None:
    """Note which thread or task waits; look for a cycle later if it waits for what others hold."""
    call.since = state.awake_s
    if not call.owner:
        return
    node = cycles.node_of(state, call.client, call.owner)
    call.waiter = cycles.waiter_of(node)
    objects_of(state).waits[call.waiter] = call
    if isinstance(node, SchedulerTask) and call.blocks:
        note_lock_wait(state, node, is_over=False)
    if call.timeout is None and KINDS[call.kind].blockers is not None:
        cycles.suspect(state, node, call, lambda text: _fail_wait(state, call, text))


def _fail_wait(state: SchedulerState, call: Call, text: str) -> None:
    """End a wait that would have no end."""
    record = call.record
    assert record is not None, "it waits"
    _leave_lane(state, call)
    _answer(state, call, Reply(problem=CYCLE, text=text))
    serve(state, record)


def serve(state: SchedulerState, record: ObjectRecord) -> None:
    """Answer the calls whose turn has come; forget the object if it is idle then."""
    kind = KINDS[record.kind]
    if record.is_closed:
        for call in [call for lane in record.lanes.values() for call in lane]:
            _leave_lane(state, call)
            _answer(state, call, _refused(closed(record)))
    elif kind.serve is not None:
        for call, reply in kind.serve(state, record):
            _leave_lane(state, call)
            _answer(state, call, reply)
    else:
        was_served = bool(record.lanes)
        while was_served:
            was_served = False
            for name in [name for name in record.lanes if name != AWAY]:
                was_served = _serve_lane(state, record, name, kind) or was_served
    is_idle = not record.users if record.is_closed else kind.is_idle(record)
    if is_idle and not record.lanes:
        forget(state, record)
    elif kind.pause_s is not None and record.due is None:
        pause_s = kind.pause_s(state, record)
        if pause_s > 0.0:
            record.due = state.call_after(pause_s, _on_turn, record)


def _serve_lane(state: SchedulerState, record: ObjectRecord, lane: str, kind: ObjectKind) -> bool:
    """Answer the first calls of a lane as far as their turn has come; return whether it had."""
    was_served = False
    while lane in record.lanes:
        call = next(iter(record.lanes[lane]))
        try:
            reply = kind.operations[call.operation].attempt(state, record, call)
        except OperationRefused as refusal:
            reply = _refused(refusal)
        if reply is None:
            break
        was_served = True
        _leave_lane(state, call)
        _answer(state, call, reply)
    return was_served


def _on_turn(state: SchedulerState, record: ObjectRecord) -> None:
    record.due = None
    if objects_of(state).records.get((record.kind, record.name)) is record:
        serve(state, record)


def _take_out(call: Call) -> ObjectRecord:
    """Take a call out of its lane; return the object."""
    record = call.record
    assert record is not None
    lane = record.lanes[call.lane]
    del lane[call]
    if not lane:
        del record.lanes[call.lane]
    return record


def _leave_lane(state: SchedulerState, call: Call) -> None:
    _take_out(call)
    call.record = None
    if call.waiter is not None:
        if objects_of(state).waits.get(call.waiter) is call:
            del objects_of(state).waits[call.waiter]
            node = cycles.node_of(state, call.client, call.owner)
            if isinstance(node, SchedulerTask):
                note_lock_wait(state, node, is_over=True)
        call.waiter = None


def _on_late(state: SchedulerState, call: Call) -> None:
    """The time limit of a call that waits is over."""
    record = call.record
    late = KINDS[call.kind].operations[call.operation].late
    if record is None:
        del objects_of(state).deferred[call]
        _answer(state, call, late)
        return
    _leave_lane(state, call)
    _answer(state, call, late)
    serve(state, record)  # those behind it may be smaller


def _answer(state: SchedulerState, call: Call, reply: Reply) -> None:
    """End a call, and keep its answer until it is acknowledged."""
    calls = objects_of(state).calls[call.client]
    calls.waiting.pop(call.request, None)
    state.deadlines.cancel(call.deadline)
    call.deadline = None
    if call.value is not None:
        drop(state, call.value)
        call.value = None
    kind = KINDS.get(call.kind)
    operation = None if kind is None else kind.operations.get(call.operation)
    if operation is not None and operation.is_read:
        _send(state, call, reply)
    elif call.request:
        if operation is None or operation.undo is None:
            call.arguments = {}  # they may be large, and nobody reads them any more
        calls.answered[call.request] = (call, reply)
        if call.is_recording:
            when_written(state, partial(_on_recorded, call))
        else:
            _send(state, call, reply)
    else:
        for value in reply.values:
            drop(state, value)


def _on_recorded(call: Call, state: SchedulerState, error: str) -> None:
    """Answer a call when the journal has recorded what it has done, or could not."""
    call.is_recording = False
    calls = objects_of(state).calls.get(call.client)
    if calls is None or call.request not in calls.answered:
        return  # its client is gone
    _, reply = calls.answered[call.request]
    if error:
        text = f"{call.operation} of {call.kind} {call.name!r} is not recorded: {error}"
        reply = Reply(problem=NOT_RECORDED, text=text)
        calls.answered[call.request] = (call, reply)
        record = objects_of(state).records.get((call.kind, call.name))
        if record is not None:
            serve(state, record)  # a value was taken back, so there is room
    _send(state, call, without_superseded(state, reply))


def _send(state: SchedulerState, call: Call, reply: Reply) -> None:
    has_keys = any(value.keys for value in reply.values)
    state.send_client(
        call.client,
        m.Operated(
            request=call.request,
            info=dict(reply.info),
            values=[value.blob for value in reply.values],
            keys=[value.keys for value in reply.values] if has_keys else [],
            problem=reply.problem,
            text=reply.text,
        ),
    )


def _forget_answer(state: SchedulerState, calls: ClientCalls, request: int) -> None:
    answered = calls.answered.pop(request, None)
    if answered is not None:
        for value in answered[1].values:
            drop(state, value)


def _resume(
    state: SchedulerState, client: ClientHandle, calls: ClientCalls, message: m.Operate
) -> None:
    """Forget the answers that the client had; send it which of its settings do not hold."""
    pending = message.arguments.get("pending")
    kept = dict.fromkeys(n for n in pending if type(n) is int) if type(pending) is list else {}
    for request in [request for request in calls.answered if request not in kept]:
        _forget_answer(state, calls, request)
    send_superseded(state, client, message.arguments.get("set"))


def _withdraw(state: SchedulerState, calls: ClientCalls, request: int) -> None:
    """End a call that the client does not wait for any more, and undo what it has got."""
    call = calls.waiting.get(request)
    if call is not None:
        waited_for = _end_wait(state, call)
        if waited_for is not None:
            serve(state, waited_for)
        return
    answered = calls.answered.get(request)
    if answered is None:
        return
    record = _undo(state, *answered)
    if record is not None:
        serve(state, record)
    _forget_answer(state, calls, request)


def _undo(state: SchedulerState, call: Call, reply: Reply) -> ObjectRecord | None:
    """Give back what an answer has given; return the object that has it again."""
    record = objects_of(state).records.get((call.kind, call.name))
    if record is None or record.is_closed or reply.problem:
        return None
    undo = KINDS[call.kind].operations[call.operation].undo
    if undo is None:
        return None
    undo(state, record, call, reply)
    return record


def _end_wait(state: SchedulerState, call: Call) -> ObjectRecord | None:
    """End a call that waits, without an answer; return the object whose lane it was in."""
    record = call.record
    del objects_of(state).calls[call.client].waiting[call.request]
    objects_of(state).deferred.pop(call, None)
    state.deadlines.cancel(call.deadline)
    if call.value is not None:
        drop(state, call.value)
        call.value = None
    if record is not None:
        _leave_lane(state, call)
    return record


def on_client_away(state: SchedulerState, client: ClientHandle) -> None:
    """The connection of a client has ended: it is given nothing until it is back."""
    calls = objects_of(state).calls.get(client)
    if calls is None:
        return
    left: dict[ObjectRecord, None] = {}
    for call in calls.waiting.values():
        if call.record is not None and KINDS[call.kind].operations[call.operation].gives:
            left[_take_out(call)] = None
            call.lane = AWAY
            call.record.lanes.setdefault(AWAY, OrderedDict())[call] = None
    for record in left:
        serve(state, record)  # those behind it may be smaller


def on_client_back(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    """A client has a connection again: its calls have their places in the lanes again."""
    all_calls = objects_of(state).calls
    if last_epoch not in (0, state.epoch):
        all_calls.setdefault(client, ClientCalls()).is_of_earlier = True
    calls = all_calls.get(client)
    if calls is None:
        return
    grown: dict[tuple[ObjectRecord, str], list[Call]] = {}
    for call in calls.waiting.values():
        if call.record is not None and call.lane == AWAY:
            record = _take_out(call)
            call.lane = KINDS[call.kind].operations[call.operation].lane
            grown.setdefault((record, call.lane), []).append(call)
    for (record, lane), back in grown.items():
        ordered = sorted([*record.lanes.get(lane, ()), *back], key=attrgetter("place"))
        record.lanes[lane] = OrderedDict.fromkeys(ordered)
    for record, _ in grown:
        serve(state, record)


def on_client_expired(state: SchedulerState, client: ClientHandle) -> None:
    """A client is gone for good: release what it holds, and end its calls."""
    objects = objects_of(state)
    calls = objects.calls.get(client)
    if calls is None:
        return
    for call in list(calls.waiting.values()):
        _end_wait(state, call)
    for request in reversed(list(calls.answered)):  # the last value first: it came behind
        _undo(state, *calls.answered[request])
        _forget_answer(state, calls, request)
    records = list(calls.records)
    del objects.calls[client]
    for record in records:
        if objects.records.get((record.kind, record.name)) is not record:
            continue
        del record.users[client]
        KINDS[record.kind].drop(record, client)
        serve(state, record)


def on_assignment_begun(state: SchedulerState) -> None:
    """Do the calls that were put off: what was set comes first, then all as they came."""
    deferred, objects_of(state).deferred = objects_of(state).deferred, {}
    for call in sorted(deferred, key=lambda call: call.operation != RESTATE):
        calls = objects_of(state).calls[call.client]
        if calls.waiting.get(call.request) is not call:
            continue
        del calls.waiting[call.request]
        try:
            _begin(state, call, _operation_of(call))
        except OperationRefused as refusal:
            _answer(state, call, _refused(refusal))
