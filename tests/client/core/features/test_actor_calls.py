"""Calls over one connection to a worker: what is sent when, and how each call ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from weft.client.core.features import actor_calls
from weft.client.core.features.actor_calls import ActorCall, ConnectionCalls
from weft.protocol.values.actors import Actor, ActorInfo
from weft.protocol.wire.failure import actor_lost
from weft.protocol.wire.messages import ActorCalls, ActorFailures, ActorResults


def actor(name: str) -> Actor:
    hold: Any = SimpleNamespace(_state=SimpleNamespace(failure=None))
    return Actor(ActorInfo(name, "tcp://w:1", "w", f"secret of {name}", "List", frozenset()), hold)


LIST, OTHER = actor("list"), actor("other")


def made(of: Actor = LIST, nbytes: int = 1) -> ActorCall:
    return ActorCall(of, "append", b"x" * nbytes, None)


def connection(*calls: ActorCall) -> ConnectionCalls:
    """Return a connection that could not send yet."""
    calls_of_line = ConnectionCalls("h", 3)
    for call in calls:
        assert calls_of_line.add(call, can_send=False) is None
    return calls_of_line


def results(*requests: int, **fields: Any) -> ActorResults:
    return ActorResults(requests=[*requests], results=[b"%d" % n for n in requests], **fields)


def test_a_call_that_is_alone_is_sent_at_once_and_others_behind_it_wait():
    calls = connection()
    message = calls.add(made(), can_send=True)
    assert message is not None
    assert (message.holder, message.connection, message.requests) == ("h", 3, [0])
    assert calls.add(made(), can_send=True) is None
    calls.on_results(results(0))
    assert calls.add(made(), can_send=True) is None, "one waits, and must not be overtaken"
    assert [call.request for call in calls.take_next()] == [1, 2]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_call_that_a_finalizer_makes_within_another_comes_behind_it(is_alone, monkeypatch):
    """When the message is made, as the collector may do then."""
    calls = connection() if is_alone else connection(made(), made())
    nested = made()
    build = ConnectionCalls.message

    def collect(self: ConnectionCalls, batch: list[ActorCall]) -> ActorCalls:
        monkeypatch.undo()
        assert calls.add(nested, can_send=True) is None
        return build(self, batch)

    monkeypatch.setattr(ConnectionCalls, "message", collect)
    if is_alone:
        message = calls.add(made(), can_send=True)
    else:
        batch = calls.take_next()
        message = calls.message(batch)
    assert message is not None
    assert [*calls.sent] == message.requests
    assert [*calls.waiting] == [nested]


def test_a_message_has_calls_of_one_actor_in_their_order():
    calls = connection(made(), made(), made(OTHER), made())
    taken = []
    while batch := calls.take_next():
        message = calls.message(batch)
        taken.append((message.actor, message.requests))
    assert taken == [
        ("secret of list", [0, 1]),
        ("secret of other", [2]),
        ("secret of list", [3]),
    ]


def test_calls_and_bytes_beyond_the_limit_wait_until_others_are_answered(monkeypatch):
    monkeypatch.setattr(actor_calls, "MAX_SENT", 3)
    monkeypatch.setattr(actor_calls, "MAX_SENT_NBYTES", 10)
    calls = connection(*[made(nbytes=1) for _ in range(5)], made(nbytes=50), made(nbytes=1))
    calls.message(calls.take_next())
    assert [*calls.sent] == [0, 1, 2]
    assert calls.take_next() == []
    calls.on_results(results(0, 1))
    calls.message(calls.take_next())
    assert [*calls.sent] == [2, 3, 4]
    calls.on_results(results(2, 3, 4))
    calls.message(calls.take_next())  # alone it may be of any size
    assert [*calls.sent] == [5]
    assert calls.take_next() == []
    calls.on_results(results(5))
    assert [call.request for call in calls.take_next()] == [6]


def test_a_call_that_could_not_be_sent_at_once_is_sent_later_and_once():
    calls = connection()
    call = made()
    calls.add(call, can_send=True)
    calls.put_back(call)
    assert (calls.sent, list(calls.waiting)) == ({}, [call])
    assert calls.take_next() == [call]


def test_a_call_whose_message_is_beyond_a_limit_was_not_done_and_holds_up_no_other():
    calls = connection()
    call = made()
    calls.add(call, can_send=True)
    calls.fail_unsent(call, "too long")
    assert call.failure is not None
    assert call.failure[:2] == ["actor-lost", "list"]
    assert "too long" in call.failure[2]
    assert calls.add(made(), can_send=True) is not None


def test_an_answer_ends_its_call_and_no_other_and_comes_once():
    first, second = made(), made()
    calls = connection(first, second)
    calls.message(calls.take_next())
    told: list[str] = []
    second._callbacks = [lambda: told.append("second")]
    for notify in calls.on_results(results(1)):
        notify()
    assert (second.is_done, second.blob, first.is_done, told) == (True, b"1", False, ["second"])
    assert calls.on_results(results(1)) == []
    assert calls.on_results(results(77)) == []
    failure = ["exception", "list.append", "type", "text"]
    calls.on_failures(ActorFailures(requests=[0], failures=[failure]))
    assert first.failure == failure


def test_a_refusal_names_the_actor_as_its_holder_knows_it():
    call = made()
    calls = connection(call)
    calls.message(calls.take_next())
    calls.on_failures(ActorFailures(requests=[0], failures=[actor_lost("", "is gone")]))
    assert call.failure == ["actor-lost", "list", "is gone"]


def test_futures_in_a_result_are_held_by_its_call_alone():
    first, second = made(), made()
    calls = connection(first, second)
    calls.message(calls.take_next())
    calls.on_results(results(0, 1, keys=[["a", "b"], []]), hold=list)
    assert (first.kept, second.kept) == (["a", "b"], None)


def test_a_done_call_keeps_its_actor_alive_no_longer():
    call = made()
    calls = connection(call)
    calls.message(calls.take_next())
    assert call.actor is LIST
    calls.on_results(results(0))
    assert (call.actor, call.arguments) == (None, None)


def test_calls_to_an_actor_that_the_scheduler_has_lost_are_in_doubt():
    gone = actor("gone")
    lost, other = made(gone), made()
    calls = connection(lost, other)
    calls.message(calls.take_next())
    calls.message(calls.take_next())
    assert calls.fail_lost() == []
    gone._hold._state.failure = actor_lost("gone", "its worker is lost")
    calls.fail_lost()
    assert lost.failure is not None
    assert lost.failure[:2] == ["actor-in-doubt", "gone"]
    assert not other.is_done
    assert calls.on_results(results(0)) == [], "an answer that comes later changes nothing"
    assert lost.blob is None


def test_at_the_end_of_the_connection_a_call_that_was_sent_is_in_doubt_and_others_were_not_done():
    sent, waits = made(), made()
    calls = connection()
    calls.add(sent, can_send=True)
    calls.add(waits, can_send=True)
    calls.end("was not called", "the connection broke")
    assert sent.failure is not None
    assert waits.failure is not None
    assert (sent.failure[0], waits.failure[0]) == ("actor-in-doubt", "actor-lost")
    assert calls.is_over
    assert calls.take_next() == []


@given(
    st.lists(
        st.sampled_from(["add", "add now", "add other", "flush", "cut", "answer", "refuse", "end"])
    )
)
def test_each_call_is_sent_at_most_once_in_order_and_ends_once(steps):
    calls = connection()
    all_calls: list[ActorCall] = []
    sent: list[int] = []
    ended: list[int] = []

    def note(message: ActorCalls | None) -> None:
        sent.extend(message.requests if message is not None else [])

    for step in steps:
        if step.startswith("add") and not calls.is_over:
            call = made(OTHER if step == "add other" else LIST)
            all_calls.append(call)
            message = calls.add(call, can_send=step == "add now")
            call._callbacks = [lambda n=call.request: ended.append(n)]  # type: ignore[misc]
            note(message)
        elif step == "flush" and (batch := calls.take_next()):
            note(calls.message(batch))
        elif step == "cut" and (batch := calls.take_next()):
            calls.message(batch)  # too long for one frame
            for call in batch:
                note(calls.message([call]))
        elif step == "answer" and calls.sent:
            for notify in calls.on_results(results(*[*calls.sent][-2:])):
                notify()
        elif step == "refuse" and calls.sent:
            failures = [actor_lost("", "is gone")]
            refused = ActorFailures(requests=[*calls.sent][:1], failures=failures)
            for notify in calls.on_failures(refused):
                notify()
        elif step == "end" and not calls.is_over:
            for notify in calls.end("was not called", "may have been called"):
                notify()
        assert sent == sorted(set(sent))
        assert sorted(ended) == [call.request for call in all_calls if call.is_done]
    for call in all_calls:
        is_open = call.request in calls.sent or call in calls.waiting
        assert call.is_done != is_open
        if call.failure is not None and call.failure[0] == "actor-in-doubt":
            assert call.request in sent
