"""Tasks whose value a client puts at the worker."""

from __future__ import annotations

import pytest

from tests.worker.builders import INC, Hands, assign, drop, give_back
from weft.protocol.wire.messages import (
    PUT_FUNCTION,
    AttemptsEnded,
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
    InventoryEnd,
    InventoryFunctions,
    KeysMissing,
)
from weft.worker.core.events import Leave, SchedulerLost, SessionOpened
from weft.worker.core.features import puts
from weft.worker.core.features.puts import EarlyValues, ValueExpired, ValuePut, ValueRefused

FAILURE = ["not-sent", "d", "it is too large"]


def awaiting(*lines):
    message = assign(*lines, function=PUT_FUNCTION)
    message.function_blobs = [b""]
    message.args = [b""] * len(lines)
    return message


@pytest.fixture
def worker():
    worker = Hands()
    worker.handle(SessionOpened(is_first=True))
    return worker


def take(worker, attempt, key="d"):
    """Let a value arrive."""
    worker.store.add(attempt)
    return worker.handle(ValuePut(key, attempt, 100))


def finished(attempt, duration_us=0):
    return AttemptsFinished(
        attempts=[attempt],
        nbytes=[100],
        durations_us=[duration_us],
        results=[None],
        queued_us=[0],
    )


def test_a_call_behind_the_value_starts_when_it_is_there(worker):
    assert worker.receive(awaiting("1 d"), assign("2 c <- d")) == []
    assert worker.run_all() == []
    worker.now = 0.5
    assert take(worker, 1) == [finished(1, 500_000)]
    assert worker.run_all() == ["c"]


def test_no_slot_runs_the_task_itself(worker):
    worker.receive(awaiting("1 d"), assign("2 a"))
    assert worker.run_all() == ["a"]
    assert worker.state.by_key["d"].state == "waiting"


def test_rows_of_several_clients_are_all_awaited(worker):
    message = awaiting("1 d", "2 e")
    message.functions *= 2
    message.function_blobs = [b"", None]
    message.function_clients = [0, 1]
    message.function_of = [0, 1]
    worker.receive(message)
    assert take(worker, 2, "e") == [finished(2)]
    assert take(worker, 1) == [finished(1)]


def test_a_value_may_come_before_its_assignment(worker):
    assert take(worker, 5) == []
    assert worker.receive(assign("4 a")) == []
    assert worker.receive(awaiting("5 d")) == [finished(5)]
    assert worker.state.record(EarlyValues) == {}


def test_a_value_may_come_before_its_assignment_comes_with_the_session(worker):
    worker.handle(SchedulerLost())
    take(worker, 5)
    worker.handle(SessionOpened(is_first=False))
    assert worker.receive(awaiting("5 d")) == [finished(5)]


@pytest.mark.parametrize("key", ["d", "another"])
def test_a_value_without_a_use_is_forgotten(worker, key):
    worker.receive(awaiting("5 d"))
    worker.receive(drop(5))
    assert take(worker, 5, key) == []
    assert worker.store == set()


def test_a_value_of_another_key_does_not_count(worker):
    worker.receive(awaiting("5 d"))
    assert take(worker, 5, "another") == []
    assert worker.store == set()
    assert take(worker, 5) == [finished(5)]


def test_an_early_value_is_forgotten_when_a_later_attempt_comes(worker):
    take(worker, 5)
    worker.receive(assign("6 a"))
    assert worker.store == set()
    assert worker.state.record(EarlyValues) == {}


def test_a_value_that_waits_for_too_long_is_forgotten_and_its_task_given_back(worker):
    take(worker, 5)
    worker.handle(ValueExpired(5))
    assert worker.store == set()
    returned, *_ = worker.receive(awaiting("5 d"), assign("6 c <- d"))
    assert returned == AttemptsReturned(attempts=[5])
    assert worker.receive(drop(6)) == [AttemptsEnded(attempts=[6])]
    assert not worker.state.by_key


def test_a_value_that_is_in_use_does_not_expire(worker):
    take(worker, 5)
    worker.receive(awaiting("5 d"))
    worker.handle(ValueExpired(5))
    assert worker.store == {5}


def test_few_early_values_are_kept(worker):
    n = puts.MAX_EARLY + 3
    for attempt in range(1, n + 1):
        take(worker, attempt, f"d{attempt}")
    assert worker.store == set(range(4, n + 1))


@pytest.mark.parametrize("is_early", [True, False])
def test_a_refused_value_fails_its_task(worker, is_early):
    failed = AttemptsErred(attempts=[5], durations_us=[0], failures=[FAILURE], queued_us=[0])
    if is_early:
        worker.handle(ValueRefused("d", 5, FAILURE))
        message, *_ = worker.receive(awaiting("5 d"), assign("6 c <- d"))
        assert message == failed
    else:
        worker.receive(awaiting("5 d"), assign("6 c <- d"))
        assert worker.handle(ValueRefused("d", 5, FAILURE)) == [failed]
    worker.receive(drop(6))
    assert not worker.state.by_key


def test_a_value_that_comes_twice_counts_once(worker):
    worker.receive(awaiting("5 d"))
    take(worker, 5)
    assert take(worker, 5) == []
    assert worker.store == {5}


def test_awaited_tasks_are_not_given_back_except_by_a_worker_that_leaves(worker):
    worker.receive(awaiting("1 d"), assign("2 c <- d"))
    assert worker.receive(give_back(9)) == [AttemptsReturned(attempts=[2])]
    worker.handle(Leave("retired"))
    assert worker.receive(give_back(9)) == [AttemptsReturned(attempts=[1])]


def test_a_new_session_lists_values_that_came_and_no_task_that_awaits_one(worker):
    worker.receive(awaiting("1 d", "2 e"), assign("3 c <- e"))
    worker.handle(SchedulerLost())
    take(worker, 1)
    messages = worker.handle(SessionOpened(is_first=False))
    kept, unfinished, functions, end, missing = messages
    assert functions == InventoryFunctions(functions=[PUT_FUNCTION, INC])
    assert end == InventoryEnd(n_rows=2)
    assert missing == KeysMissing(keys=["e"], holder="tcp://me")
    assert (kept.keys, unfinished.keys) == (["d"], ["c"])
    assert take(worker, 2, "e") == []
    assert worker.store == {1}
