"""Calls of locks, queues and others in the client's core: sessions, acknowledgements, leases."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, Listener
from weft.client.core.events import (
    ClientClosing,
    ClientTick,
    Disconnected,
    Operations,
    Unsendable,
    Warn,
)
from weft.client.core.features.coordination import (
    NO_ANSWER,
    AnswerTaken,
    CallAbandoned,
    ObjectCall,
    calls_of,
)
from weft.protocol.wire.messages import (
    Denied,
    Operate,
    Operated,
    Resubmitted,
    SubmitTasks,
    Unsupported,
)
from weft.protocol.wire.messages import coordination as h

GRANTED = {"granted": True}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    assert bench.connect(1) == []
    return bench


@pytest.fixture
def watcher() -> Listener:
    return Listener(wants_data=False)


def acquire(watcher, lease="1", **more):
    arguments = {"lease": lease, "owner": "t", "timeout": 5.0, **more}
    return ObjectCall(watcher, h.LOCK, "x", "acquire", arguments)


def release(watcher, lease="1"):
    return ObjectCall(watcher, h.LOCK, "x", "release", {"lease": lease})


def get(watcher):
    return ObjectCall(watcher, h.QUEUE, "q", "get", {"number": 1})


def answered(bench, call, *, take=True, **answer):
    """Let a call be answered; return what its watcher was notified of."""
    (notify,) = bench.acted_on(Operated(request=call.request, **answer))
    if take:
        assert bench.do(AnswerTaken(call)) == []
    (item,) = notify.items
    return item


def test_a_call_is_sent_behind_the_submissions_before_it(bench, watcher):
    submitted, sent = bench.do(bench.task("a"), get(watcher))
    assert isinstance(submitted, SubmitTasks)
    assert (sent.kind, sent.name, sent.operation, sent.request) == (h.QUEUE, "q", "get", 1)


def test_an_answer_is_acknowledged_with_the_next_call(bench, watcher):
    first, second = acquire(watcher), get(watcher)
    bench.do(first)
    assert answered(bench, first, info=GRANTED).info == GRANTED
    (sent,) = bench.do(second)
    assert sent.acknowledged == [first.request]
    (sent,) = bench.do(get(watcher))
    assert sent.acknowledged == []


def test_the_value_of_a_queue_is_acknowledged_at_once_for_a_dead_client_gives_its_back(
    bench, watcher
):
    call = get(watcher)
    bench.do(call)
    answered(bench, call, take=False, values=[b"1"])
    (note,) = bench.do(AnswerTaken(call))
    assert note == Operate(request=0, operation=h.NOTE, acknowledged=[call.request])


def test_a_session_begins_by_saying_that_no_call_is_left_without_an_answer(bench, watcher):
    call = get(watcher)
    bench.do(call)
    answered(bench, call, values=[b"1"], take=False)
    bench.handle(Disconnected())
    assert bench.do(AnswerTaken(call)) == []
    resume, _ = bench.connect(1)
    assert resume == Operate(request=0, operation=h.RESUME, arguments={"pending": []})


def test_an_answer_with_futures_is_acknowledged_as_soon_as_these_are_wanted(bench, watcher):
    call = get(watcher)
    bench.do(call)
    answered(bench, call, take=False, values=[b"1"], keys=[["a"]])
    (note,) = bench.do(AnswerTaken(call, has_futures=True))
    assert note == Operate(request=0, operation=h.NOTE, acknowledged=[call.request])


def test_a_session_begins_with_what_is_not_answered_and_the_leases(bench, watcher):
    held, waiting, untaken = acquire(watcher), acquire(watcher, "2"), get(watcher)
    bench.do(held, waiting, untaken)
    answered(bench, held, info=GRANTED)
    answered(bench, untaken, take=False, values=[b"1"])
    bench.handle(Disconnected())
    resume, restated, again, _ = bench.connect(1)
    assert resume == Operate(
        request=0,
        operation=h.RESUME,
        arguments={"pending": [waiting.request, untaken.request]},
    )
    assert restated.operation == "restate"
    assert restated.arguments == {"lease": "1", "owner": "t"}
    assert (again.request, again.operation) == (waiting.request, "acquire")


def test_leases_are_stated_to_a_new_scheduler_before_the_client_is_complete(bench, watcher):
    held = acquire(watcher)
    bench.do(held)
    answered(bench, held, info=GRANTED)
    bench.handle(Disconnected())
    messages = bench.connect(2)
    assert [x.operation for x in messages[:-1]] == [h.RESUME, "restate"]
    assert isinstance(messages[-1], Resubmitted)


def test_a_lease_that_was_lost_is_reported_once_and_fails_its_release(bench, watcher):
    held = acquire(watcher)
    bench.do(held)
    answered(bench, held, info=GRANTED)
    bench.handle(Disconnected())
    _, restated, _ = bench.connect(1)
    lost = Operated(request=restated.request, problem=h.HOLD_LOST, text="given away")
    assert bench.hear(lost) == ([], [Warn("given away")])
    call = release(watcher)
    messages, (notify,) = bench.handle(Operations([call]))
    assert messages == []
    assert [(x.problem, x.text) for x in notify.items] == [(h.HOLD_LOST, "given away")]


def test_a_released_lease_is_not_stated_again(bench, watcher):
    held, over = acquire(watcher), release(watcher)
    bench.do(held)
    answered(bench, held, info=GRANTED)
    bench.do(over)
    bench.handle(Disconnected())
    _, again = bench.connect(2)[:2]
    assert (again.operation, again.request) == ("release", over.request)
    # The new scheduler knows nothing of the lease.
    assert answered(bench, over, problem=h.NOT_HELD, text="?").problem == ""


def test_a_release_of_a_lease_that_ended_meanwhile_fails(bench, watcher):
    held, over = acquire(watcher), release(watcher)
    bench.do(held)
    answered(bench, held, info=GRANTED)
    bench.handle(Disconnected())
    bench.do(over)
    bench.connect(1)
    answer = answered(bench, over, problem=h.NOT_HELD, text="?")
    assert (answer.problem, "away from the scheduler" in answer.text) == (h.HOLD_LOST, True)


def test_a_lease_of_some_of_several_locks_states_those_that_it_has(bench, watcher):
    arguments = {"lease": "1", "owner": "t", "names": ["a", "b", "c"], "number": 2}
    call = ObjectCall(watcher, h.MULTILOCK, "all", "acquire", arguments)
    bench.do(call)
    answered(bench, call, info={"granted": True, "names": ["b", "c"]})
    bench.handle(Disconnected())
    _, restated, _ = bench.connect(1)
    assert restated.arguments == {"lease": "1", "owner": "t", "names": ["b", "c"]}


def test_an_abandoned_call_is_withdrawn_and_so_is_what_it_has_got(bench, watcher):
    waiting, got = acquire(watcher), acquire(watcher, "2")
    bench.do(waiting, got)
    answered(bench, got, take=False, info=GRANTED)
    sent = bench.do(CallAbandoned(waiting), CallAbandoned(got))
    assert [(x.operation, x.arguments) for x in sent] == [
        (h.WITHDRAW, {"request": waiting.request}),
        (h.WITHDRAW, {"request": got.request}),
    ]
    # The answer that crossed it is not for a caller any more.
    assert bench.hear(Operated(request=waiting.request, info=GRANTED)) == ([], [])
    assert calls_of(bench.core).leases == {}
    bench.handle(Disconnected())
    resume, *again, _ = bench.connect(1)
    pending = [*[x.request for x in sent], waiting.request, got.request]
    assert resume.arguments == {"pending": pending}
    assert [x.operation for x in again] == [h.WITHDRAW] * 2


def test_an_abandoned_call_that_was_answered_and_taken_changes_nothing(bench, watcher):
    call = acquire(watcher)
    bench.do(call)
    answered(bench, call, info=GRANTED)
    assert bench.do(CallAbandoned(call)) == []
    assert [*calls_of(bench.core).leases] == ["1"]


def test_an_abandoned_release_is_done_all_the_same(bench, watcher):
    held, over = acquire(watcher), release(watcher)
    bench.do(held)
    answered(bench, held, info=GRANTED)
    bench.handle(Disconnected())
    assert bench.do(over, CallAbandoned(over)) == []
    _, sent, _ = bench.connect(1)
    assert (sent.operation, sent.request) == ("release", over.request)
    assert bench.hear(Operated(request=over.request)) == ([], [])


@pytest.mark.parametrize("kind", [Denied, Unsupported])
def test_a_call_that_the_scheduler_does_not_take_is_refused(bench, watcher, kind):
    call = get(watcher)
    bench.do(call)
    message = (
        Denied(request=call.request, needed="client", level="view")
        if kind is Denied
        else Unsupported(unknown_code=115, request=call.request)
    )
    (notify,) = bench.acted_on(message)
    assert notify.items == [message]


def test_a_call_that_cannot_be_sent_fails(bench, watcher):
    call = get(watcher)
    (message,) = bench.do(call)
    (notify,) = bench.acted(Unsendable(message, "too long"))
    assert [x.problem for x in notify.items] == [h.TOO_LARGE]


def test_all_calls_end_with_the_client(bench, watcher):
    bench.do(get(watcher))
    notified = bench.acted(ClientClosing())
    assert [x.items for x in notified] == [[None]]
    (notify,) = bench.acted(Operations([acquire(watcher)]))
    assert notify.items == [None]


def test_calls_without_a_connection_wait_for_one(watcher):
    bench = Bench()
    call = get(watcher)
    assert bench.do(call) == []
    sent = [x for x in bench.connect(1).of(Operate) if x.request]
    assert [x.operation for x in sent] == ["get"]


# --- Time limits while the scheduler is away ------------------------------------------------------


def notified(bench):
    """Let the core look at its deadlines; return what watchers were notified of."""
    messages, actions = bench.handle(ClientTick())
    assert messages == []
    return [x.problem for action in actions for x in action.items]


def test_a_wait_ends_in_time_while_the_scheduler_is_away_and_is_withdrawn_later(bench, watcher):
    call, other = acquire(watcher), acquire(watcher, "2")
    call.due = bench.now + 4
    bench.do(call, other)
    bench.handle(Disconnected())
    assert notified(bench) == []
    assert notified(bench) == [NO_ANSWER]
    assert notified(bench) == []
    resume, *again, _ = bench.connect(1)
    # The scheduler may have granted it, and keeps the answer until it takes that back.
    assert call.request in resume.arguments["pending"]
    assert [(x.operation, x.arguments.get("request")) for x in again] == [
        ("acquire", None),
        (h.WITHDRAW, call.request),
    ]


def test_a_wait_that_was_sent_again_ends_when_its_caller_has_waited_long_enough(bench, watcher):
    call, in_time = acquire(watcher), acquire(watcher, "2")
    call.due = in_time.due = bench.now + 6
    bench.do(call, in_time)
    bench.handle(Disconnected())
    bench.connect(1)
    answered(bench, in_time, info=GRANTED)
    messages, (notify,) = bench.handle(ClientTick())
    assert [x.arguments for x in messages] == [{"request": call.request}]
    assert [x.problem for x in notify.items] == [NO_ANSWER]


def test_the_scheduler_counts_the_time_of_a_call_that_was_sent_once(bench, watcher):
    call = acquire(watcher)
    call.due = bench.now
    bench.do(call)
    assert [notified(bench) for _ in range(5)] == [[]] * 5
