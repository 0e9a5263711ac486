"""Failed states that run again on request."""

from __future__ import annotations

import pytest

from weft.client.core.events import Disconnected, Notify, RetryFailed, Watch
from weft.client.core.retrying import can_retry
from weft.protocol.wire.messages import (
    Denied,
    KeysCancelled,
    KeysErred,
    KeysRetried,
    KeysUnknown,
    ReleaseKeys,
    RetryKeys,
    WantKeys,
)

from .core_kit import Listener, barrier_of, ready


def erred(*keys: str, kind: str = "exception") -> KeysErred:
    return KeysErred(
        keys=[*keys], failure_of=[0] * len(keys), failures=[[kind, keys[0], "ValueError"]]
    )


@pytest.fixture
def failed(bench):
    task = bench.task("a")
    bench.do(task)
    bench.hear(erred("a"))
    return task.state


def test_a_retried_state_is_pending_until_its_new_result(bench, failed):
    watcher = Listener(wants_data=True)
    (message,) = bench.do(RetryFailed([failed, failed]), Watch(watcher, [failed]))
    assert message == RetryKeys(request=message.request, keys=["a"])
    assert failed.status == "pending"
    # The failure of the earlier run may still come, for another reason.
    bench.hear(erred("a"))
    assert failed.status == "pending"
    assert bench.hear(KeysRetried(request=message.request, keys=[]), ready(["a"])) == (
        [],
        [Notify(watcher, [failed])],
    )
    assert failed.status == "finished"
    assert not bench.core.retries


def test_a_task_that_was_submitted_after_its_input_had_failed_can_be_retried(bench, failed):
    other = bench.task("b", "a")
    bench.do(other)
    bench.hear(erred("b"))
    (message,) = bench.do(RetryFailed([other.state]))
    assert message == RetryKeys(request=message.request, keys=["b"])
    bench.hear(KeysRetried(request=message.request, keys=["a"]))
    assert (failed.status, other.state.status) == ("pending", "pending")


def test_inputs_that_the_scheduler_names_are_pending(bench):
    one, two = bench.task("a"), bench.task("b", "a")
    bench.do(one, two)
    bench.hear(erred("a", "b"))
    (message,) = bench.do(RetryFailed([two.state]))
    assert one.state.status == "error"
    bench.hear(KeysRetried(request=message.request, keys=["a"]))
    assert (one.state.status, two.state.status) == ("pending", "pending")
    bench.hear(ready(["a", "b"]))
    assert (one.state.status, two.state.status) == ("finished", "finished")


def test_a_failure_that_is_retried_with_its_reader_in_the_same_event_is_told_to_nobody(bench):
    one, two = bench.task("a"), bench.task("b", "a")
    first, both = Listener(wants_data=True), Listener(wants_data=True)
    bench.do(one, two, Watch(first, [one.state]), Watch(both, [one.state, two.state]))
    bench.hear(erred("b"))
    (message,) = bench.do(RetryFailed([two.state]))
    _, actions = bench.hear(erred("a"), KeysRetried(request=message.request, keys=["a"]))
    assert not actions
    assert one.state.status == "pending"
    _, actions = bench.hear(ready(["a"]))
    assert actions == [Notify(first, [one.state]), Notify(both, [one.state])]


def test_a_failure_that_is_retried_in_the_event_that_watches_it_is_told_to_nobody(bench, failed):
    watcher = Listener(wants_data=True)
    (message,) = bench.do(Watch(watcher, [failed]), RetryFailed([failed]))
    assert message == RetryKeys(request=message.request, keys=["a"])
    _, actions = bench.hear(KeysRetried(request=message.request, keys=[]), ready(["a"]))
    assert actions == [Notify(watcher, [failed])]


def test_a_request_without_answer_is_repeated_in_the_next_session(bench, failed):
    (first,) = bench.do(RetryFailed([failed]))
    bench.handle(Disconnected())
    messages = bench.connect()
    (again,) = messages.of(RetryKeys)
    assert again.keys == ["a"]
    assert again.request > first.request
    assert not messages.of(WantKeys)
    bench.hear(erred("a"))
    assert failed.status == "pending"
    bench.hear(KeysRetried(request=again.request, keys=[]), ready(["a"]))
    assert failed.status == "finished"


def test_a_request_between_two_sessions_is_sent_in_the_next_one(bench, failed):
    bench.handle(Disconnected())
    assert bench.do(RetryFailed([failed])) == []
    (message,) = bench.connect()
    assert isinstance(message, RetryKeys)


def test_a_new_scheduler_is_asked_for_the_state(bench, failed):
    bench.do(RetryFailed([failed]))
    bench.handle(Disconnected())
    messages = bench.connect(epoch=2)
    assert [x.keys for x in messages.of(WantKeys)] == [["a"]]
    assert not bench.core.retries
    bench.hear(KeysUnknown(keys=["a"]))
    assert failed.failure[0] == "data-lost"


def test_a_scheduler_that_does_not_know_how_fails_the_state(bench, failed):
    (message,) = bench.do(RetryFailed([failed]))
    bench.hear(Denied(request=message.request, needed="client", level="worker"))
    assert failed.failure[0] == "data-lost"


def test_states_that_were_released_meanwhile_are_not_retried(bench, failed):
    message, release = bench.do(RetryFailed([failed]), failed)
    assert isinstance(message, RetryKeys)
    assert release == ReleaseKeys(keys=["a"])
    bench.handle(Disconnected())
    sent = bench.connect()
    assert [m.keys for m in sent.of(RetryKeys)] in ([], [[]])
    assert [m.keys for m in sent.of(ReleaseKeys)] == [["a"]]
    assert barrier_of(sent)


@pytest.mark.parametrize("kind", ["key-conflict", "not-permitted"])
def test_failures_that_are_not_those_of_the_task_stay(bench, kind):
    task = bench.task("a")
    bench.do(task)
    bench.hear(erred("a", kind=kind))
    assert bench.do(RetryFailed([task.state])) == []
    assert task.state.status == "error"


def test_a_task_that_was_itself_cancelled_is_not_retried(bench):
    """The scheduler has dropped it, and would report that it does not know it."""
    task = bench.task("a")
    bench.do(task)
    bench.hear(KeysCancelled(keys=["a"], reason="why"))
    assert bench.do(RetryFailed([task.state])) == []
    assert task.state.status == "cancelled"


def test_a_failed_task_that_was_cancelled_since_is_not_retried(bench, failed):
    """It was withdrawn before it had failed, and ran again for another client meanwhile."""
    bench.hear(KeysCancelled(keys=["a"], reason="why"))
    assert not can_retry(failed)
    assert bench.do(RetryFailed([failed])) == []
    assert failed.failure == ["exception", "a", "ValueError"]
    # All that the scheduler could say of a reader is that it does not know the input.
    reader = bench.task("b", "a")
    assert bench.do(reader) == []
    assert reader.state.failure == failed.failure
    assert bench.do(failed) == []


def test_a_failed_state_whose_call_is_submitted_again_stays_so(bench, failed):
    """A thread submits, so the table has the new state; the operations of both come later."""
    bench.table.attach(["a"])
    assert bench.do(RetryFailed([failed])) == []
    assert failed.failure == ["exception", "a", "ValueError"]


def test_a_task_that_was_cancelled_before_its_retry_was_read_is_cancelled(bench, failed):
    (message,) = bench.do(RetryFailed([failed]))
    # Others may want the task, so the scheduler may have run it again when it reads the retry.
    assert bench.hear(KeysCancelled(keys=["a"], reason="why"))[0] == [ReleaseKeys(keys=["a"])]
    assert failed.failure == ["cancelled", "a", "why"]
    bench.hear(KeysRetried(request=message.request, keys=[]), KeysUnknown(keys=["a"]))
    assert failed.failure == ["cancelled", "a", "why"]
    assert not can_retry(failed)
