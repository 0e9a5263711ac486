"""The worker's core: events in, messages and actions out."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.worker.builders import INC, SLOW, Hands, assign, drop, give_back, locate
from weft.protocol.errors import RemoteProtocolError
from weft.protocol.wire.messages import (
    RETURNED,
    AttemptsEnded,
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
    DropFunctions,
    HoldersGone,
    KeysMissing,
    ReplicasAdded,
    Stop,
)
from weft.worker.core import fetching
from weft.worker.core.events import ChunkDone, ForgetFunctions, SchedulerSent, WorkerEnding

A, B, C = "tcp://a", "tcp://b", "tcp://c"


def finished(*attempts: int, result: bytes | None = None) -> AttemptsFinished:
    n = len(attempts)
    return AttemptsFinished(
        attempts=list(attempts),
        nbytes=[100] * n,
        durations_us=[10] * n,
        results=[result] * n,
        queued_us=[0] * n,
    )


# --- Running --------------------------------------------------------------------------------------


def test_a_task_without_dependencies_runs_at_once_and_is_reported(worker):
    assert worker.receive(assign("1 a", wanted=1)) == []
    task = worker.start()
    assert task is not None
    assert task.key == "a"
    assert worker.report() == [finished(1, result=b"result")]
    assert worker.awake == set()


def test_tasks_run_by_priority_then_attempt(worker):
    worker.receive(assign("1 first"))
    worker.receive(assign("5 c", "4 b", priority=7), assign("6 urgent", priority=2))
    worker.receive(assign("3 a", priority=7))
    assert worker.run_all() == ["first", "urgent", "a", "b", "c"]


def test_a_busy_slot_is_not_woken_again(worker):
    worker.receive(assign("1 a"))
    worker.receive(assign("2 b"))
    assert worker.run_all() == ["a", "b"]
    assert worker.n_runs == 1


def test_a_chain_assigned_ahead_runs_without_asking(worker):
    # a -> b -> c, and d needs a and c
    worker.receive(assign("1 a", "2 b <- a", "3 c <- b", "4 d <- a c"))
    assert worker.run_all() == ["a", "b", "c", "d"]
    assert worker.messages == [finished(1), finished(2), finished(3), finished(4)]


def test_a_dependency_may_come_later_in_the_same_message(worker):
    assert worker.receive(assign("2 b <- a", "1 a")) == []
    assert worker.run_all() == ["a", "b"]


def test_reports_extend_the_message_that_was_not_taken_yet():
    worker = Hands(2)
    worker.receive(assign("1 a"), assign("2 b"))
    worker.start(0)
    worker.start(1)
    state = worker.state
    for slot in (0, 1):
        (task,) = worker.started[slot]
        worker.store.add(task.attempt)
        state.handle(ChunkDone(slot, [task.attempt], [100], [10], [None]), 0.0)
    assert len(state.to_scheduler) == 1
    assert sorted(state.to_scheduler[0].attempts) == [1, 2]


def test_an_unknown_function_runs_alone_then_chunks_grow_to_a_millisecond(worker):
    worker.receive(assign(*[f"{i} k{i}" for i in range(1, 400)]))
    chunk = worker.state.slots[0].chunk
    assert len(chunk) == 1
    worker.start()
    worker.report(duration_us=9)
    assert len(chunk) == 100
    assert worker.run(n=3) == ["k2", "k3", "k4"]
    assert len(chunk) == 97


def test_a_chunk_leaves_a_share_for_other_idle_slots():
    worker = Hands(4)
    worker.receive(assign("1 a"))
    slot = next(iter(worker.awake))
    worker.run(slot)
    worker.receive(assign(*[f"{i} k{i}" for i in range(2, 12)]))
    assert sorted(len(slot.chunk) for slot in worker.state.slots) == [2, 2, 3, 3]


def test_reports_have_the_time_from_arrival_to_the_start_of_the_chunk(worker):
    worker.receive(assign("1 a", "2 b"))
    worker.now = 2.0
    worker.receive(assign("3 c <- x", located=[("x", 8, 10, [A])]))
    worker.now = 2.5
    worker.start()
    (first,) = worker.report()
    assert (first.attempts, first.queued_us, first.fetched_us) == ([1], [0], [])
    worker.now = 4.0
    worker.answer(A)
    worker.now = 5.0
    assert worker.run_all() == ["b", "c"]
    reports = [m for m in worker.messages if isinstance(m, AttemptsFinished)]
    assert [x for m in reports for x in m.attempts] == [1, 2, 3]
    assert [x for m in reports for x in m.queued_us] == [0, 2_500_000, 3_000_000]
    fetched = [x for m in reports for x in m.fetched_us or [0] * len(m.attempts)]
    assert fetched == [0, 0, 2_000_000]


def test_a_slow_function_gets_chunks_of_one(worker):
    worker.receive(assign("1 a", "2 b", "3 c", function=SLOW))
    worker.start()
    worker.report(duration_us=2_000_000)
    assert len(worker.state.slots[0].chunk) == 1


def test_an_idle_slot_takes_half_of_the_tasks_behind_a_long_one():
    worker = Hands(2)
    worker.receive(assign("1 a"))
    (slot,) = worker.awake
    other = 1 - slot
    worker.run(slot)
    worker.receive(assign(*[f"{i} k{i}" for i in range(2, 10)]))
    worker.start(slot)  # and it takes long
    assert len(worker.run(other, n=4)) == 4
    # Slot `other` has no more tasks, and took two of the three that wait in the other chunk.
    assert len(worker.state.slots[slot].chunk) == 1
    worker.run(other, n=2)
    worker.run(other, n=1)
    assert worker.awake == {slot}
    worker.report(slot)
    assert worker.awake == set()
    assert sum(len(m.attempts) for m in worker.messages) == 9


# --- Failures -------------------------------------------------------------------------------------


def test_a_failure_is_reported_and_its_dependents_wait_until_they_are_dropped(worker):
    worker.receive(assign("1 a", "2 b <- a"))
    worker.start()
    (sent,) = worker.report(failed=["a"])
    assert isinstance(sent, AttemptsErred)
    assert sent.attempts == [1]
    assert sent.failures[0][:2] == ["exception", "a"]
    assert worker.run_all() == []
    assert set(worker.state.by_attempt) == {2}
    worker.receive(drop(2))
    assert worker.state.by_key == {}


def test_an_attempt_that_has_failed_is_not_begun_again_under_another_key(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.report(failed=["a"])
    worker.receive(assign("1 a"), assign("1 b"))
    assert worker.run_all() == []


def test_a_failed_task_assigned_again_serves_its_waiting_dependents(worker):
    worker.receive(assign("1 a", "2 b <- a"))
    worker.start()
    worker.report(failed=["a"])
    worker.receive(assign("3 a"))
    assert worker.run_all() == ["a", "b"]


# --- Dropping -------------------------------------------------------------------------------------


def test_dropping_data_forgets_it(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(drop(1))
    assert worker.store == set()
    assert worker.state.by_key == {}


def test_dropped_tasks_do_not_run_wherever_they_are(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b", "3 c", "4 d", "5 e <- d"))
    assert len(worker.state.slots[0].chunk) == 3
    worker.start()
    worker.receive(drop(3, 5))
    worker.receive(assign("6 f"))
    worker.receive(drop(6))
    worker.report()
    assert worker.run_all() == ["d"]
    assert [m.attempts for m in worker.messages] == [[1], [3, 5], [6], [2], [4]]


def test_a_task_dropped_while_it_runs_is_not_reported_and_its_value_is_forgotten(worker):
    worker.receive(assign("1 a", "2 b"))
    worker.start()
    worker.receive(drop(1))
    assert worker.messages == []
    assert worker.report() == [AttemptsEnded(attempts=[1], ends=[RETURNED])]
    assert worker.store == set()
    assert worker.run_all() == ["b"]


def test_data_that_a_waiting_task_needs_outlives_its_drop(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b <- a x", located=[("x", 9, 10, [A])]), drop(1))
    assert worker.store == {1}
    worker.answer(A)
    assert worker.run_all() == ["b"]
    assert worker.store == {2, 9}


def test_an_old_drop_spares_the_newer_attempt(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.receive(drop(1), assign("2 a"))
    worker.report()
    worker.run_all()
    worker.receive(drop(1))
    assert worker.store == {2}
    assert [m.attempts for m in worker.messages] == [[1], [2]]


def test_a_new_attempt_takes_over_the_dependents_of_the_old_one(worker):
    worker.receive(assign("1 x", "2 a", "3 b <- a"))
    worker.start()
    worker.receive(assign("4 a"))
    worker.report()
    assert worker.run_all() == ["a", "b"]
    assert [m.attempts for m in worker.messages] == [[1], [4], [3]]


def test_the_same_attempt_twice_and_an_unknown_attempt_are_ignored(worker):
    worker.receive(assign("1 a"), assign("1 a"), drop(77))
    assert worker.run_all() == ["a"]


# --- Returning ------------------------------------------------------------------------------------


def test_the_task_that_would_run_last_is_given_back_first(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b", "3 c", "4 d", "5 e"))
    worker.start()
    assert worker.receive(give_back(2)) == [AttemptsReturned(attempts=[5, 4])]
    worker.report()
    assert worker.run_all() == ["c"]


def test_all_unstarted_tasks_are_given_back_if_more_are_asked_for(worker):
    worker.receive(assign("1 a", "2 b"))
    worker.start()
    assert worker.receive(give_back(10)) == [AttemptsReturned(attempts=[2])]
    assert worker.receive(give_back(10)) == [AttemptsReturned(attempts=[])]


def test_a_task_is_given_back_only_after_its_dependents(worker):
    # "late" would run last, but others wait for it.
    worker.receive(assign("1 x"))
    worker.start()
    worker.receive(assign("9 late", "2 y"), assign("3 d1 <- late", "4 d2 <- d1"))
    assert worker.receive(give_back(2)) == [AttemptsReturned(attempts=[4, 3])]
    assert worker.receive(give_back(9)) == [AttemptsReturned(attempts=[9, 2])]


def test_giving_back_stops_fetches_that_no_task_needs_any_more(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.receive(assign("2 b <- y", located=[("y", 8, 10, [A])]))
    assert worker.asked(A) == ["x"]
    assert worker.receive(give_back(1)) == [AttemptsReturned(attempts=[2])]
    worker.answer(A)
    assert worker.fetches == {}


# --- Fetching -------------------------------------------------------------------------------------


def test_inputs_are_fetched_in_one_batch_and_reported(worker):
    worker.receive(assign("1 a <- x y", located=[("x", 8, 10, [A]), ("y", 9, 10, [A])]))
    assert worker.asked(A) == ["x", "y"]
    assert worker.answer(A) == [ReplicasAdded(attempts=[8, 9], keys=["x", "y"])]
    assert worker.run_all() == ["a"]


def test_the_holder_with_least_in_flight_is_asked(worker):
    rows = [(f"x{i}", 10 + i, 100, [A, B, C]) for i in range(6)]
    names = " ".join(row[0] for row in rows)
    worker.receive(assign(f"1 a <- {names}", located=rows))
    assert [len(worker.asked(peer)) for peer in (A, B, C)] == [2, 2, 2]


def test_one_request_for_each_holder_at_a_time(worker):
    worker.receive(assign("1 a <- x", located=[("x", 8, 10, [A])]))
    worker.receive(assign("2 b <- y", located=[("y", 9, 10, [A])]))
    assert worker.asked(A) == ["x"]
    worker.answer(A)
    assert worker.asked(A) == ["y"]


def test_requests_are_limited_in_bytes(monkeypatch):
    monkeypatch.setattr("weft.worker.core.fetching.REQUEST_BYTES", 100)
    monkeypatch.setattr("weft.worker.core.fetching.IN_FLIGHT_BYTES", 150)
    worker = Hands()
    rows = [("big", 8, 500, [A]), ("x", 9, 60, [A]), ("y", 10, 60, [A]), ("z", 11, 60, [B])]
    worker.receive(assign("1 a <- big x y z", located=rows))
    assert worker.asked(A) == ["big"]
    assert worker.asked(B) == []
    worker.answer(A)
    assert worker.asked(A) == ["x"]
    assert worker.asked(B) == ["z"]


def test_a_missing_key_is_reported_and_waits_for_a_new_location(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    assert worker.answer(A, missing=["x"]) == [KeysMissing(keys=["x"], holder=A, attempts=[9])]
    assert worker.fetches == {}
    worker.receive(locate(("x", 12, 10, [B])))
    assert worker.answer(B) == [ReplicasAdded(attempts=[12], keys=["x"])]
    assert worker.run_all() == ["a"]


def test_another_holder_is_asked_when_one_fails(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A, B])]))
    assert worker.fail(A) == [KeysMissing(keys=["x"], holder=A, unreachable=True, attempts=[9])]
    assert worker.asked(B) == ["x"]
    worker.answer(B)
    assert worker.run_all() == ["a"]


def test_copies_queued_at_a_holder_out_of_reach_fail_with_it(worker):
    worker.receive(assign("1 a <- x", located=[("x", 8, 10, [A])]))
    worker.receive(assign("2 b <- y", located=[("y", 9, 10, [A])]))
    assert worker.fail(A) == [
        KeysMissing(keys=["x", "y"], holder=A, unreachable=True, attempts=[8, 9])
    ]
    assert worker.state.fetching.peers == {}


def test_a_request_to_a_lost_holder_is_given_up_and_made_elsewhere(worker):
    worker.receive(assign("1 a <- x y", located=[("x", 8, 10, [A, B]), ("y", 9, 10, [A])]))
    assert worker.asked(A) == ["x", "y"]
    assert worker.receive(HoldersGone(addresses=[A, C])) == []
    # Their shells may have asked for parts of its values.
    assert worker.given_up == [A, C]
    assert worker.fail(A) == [
        KeysMissing(keys=["x", "y"], holder=A, unreachable=True, attempts=[8, 9])
    ]
    assert worker.asked(B) == ["x"]


def test_copies_queued_at_a_lost_holder_are_not_asked_of_it(worker):
    with patch.object(fetching, "IN_FLIGHT_BYTES", 10):
        worker.receive(assign("1 a <- x", located=[("x", 8, 10, [A])]))
        worker.receive(assign("2 b <- y", located=[("y", 9, 10, [B])]))
        assert worker.asked(B) == []
        sent = worker.receive(HoldersGone(addresses=[B]))
    assert sent == [KeysMissing(keys=["y"], holder=B, unreachable=True, attempts=[9])]
    assert worker.given_up == [B]


def test_an_input_without_a_holder_is_reported_as_missing(worker):
    assert worker.receive(assign("1 a <- x")) == [KeysMissing(keys=["x"], holder="tcp://me")]
    worker.receive(assign("2 x"))
    assert worker.run_all() == ["x", "a"]


def test_a_missing_input_may_be_computed_here(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.fail(A)
    worker.receive(assign("12 x"))
    assert worker.run_all() == ["x", "a"]


def test_an_input_in_flight_may_be_computed_here(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.receive(assign("12 x"))
    assert worker.answer(A) == []
    assert worker.run_all() == ["x", "a"]
    assert worker.store == {1, 12}


def test_a_copy_whose_tasks_were_dropped_meanwhile_stays_until_it_is_dropped(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.receive(drop(1))
    assert worker.answer(A) == [ReplicasAdded(attempts=[9], keys=["x"])]
    assert worker.store == {9}
    worker.receive(drop(9))
    assert worker.store == set()


def test_a_copy_dropped_in_flight_is_forgotten_and_its_tasks_wait(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.receive(drop(9))
    assert worker.answer(A) == []
    assert worker.store == set()
    worker.receive(locate(("x", 10, 10, [B])))
    worker.answer(B)
    assert worker.run_all() == ["a"]


def test_a_late_copy_spares_the_same_attempt_from_elsewhere(worker):
    worker.receive(assign("1 a <- x", located=[("x", 9, 10, [A])]))
    worker.receive(drop(9), locate(("x", 9, 10, [B])))
    worker.answer(B)
    worker.answer(A)
    assert worker.store == {9}
    assert worker.run_all() == ["a"]


def test_released_data_that_is_wanted_again_is_kept_and_reported(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(assign("2 b <- a x", located=[("x", 9, 10, [A])]), drop(1))
    sent = worker.receive(assign("3 c <- a", located=[("a", 1, 10, [B])]))
    assert sent == [ReplicasAdded(attempts=[1], keys=["a"])]
    assert worker.fetches.keys() == {1}
    worker.answer(A)
    assert worker.run_all() == ["c", "b"]
    assert worker.store == {1, 2, 3, 9}


def test_a_copy_for_two_tasks_is_fetched_once(worker):
    worker.receive(assign("1 a <- x", "2 b <- x", located=[("x", 9, 10, [A])]))
    worker.receive(assign("3 c <- x", located=[("x", 9, 10, [B])]))
    assert worker.asked(B) == []
    worker.answer(A)
    assert worker.run_all() == ["a", "b", "c"]


# --- Sessions, functions, invalid messages --------------------------------------------------------


def test_a_worker_that_ends_forgets_everything_and_reports_nothing(worker):
    worker.receive(assign("1 a"))
    worker.run()
    worker.receive(
        assign("2 b <- a", "3 c <- b", "4 d <- x"),
        assign("5 e <- y", located=[("y", 9, 10, [A])]),
    )
    worker.start()
    assert worker.handle(WorkerEnding()) == []
    assert worker.state.by_key == {}
    assert worker.state.functions == {}
    assert worker.store == {1}, "the running task uses it"
    assert worker.answer(A) == []
    assert worker.report() == []
    assert worker.store == set()
    assert worker.awake == set()
    worker.receive(assign("1 a"))
    assert worker.run_all() == ["a"]


def test_dropped_functions_live_on_in_their_tasks(worker):
    worker.receive(assign("1 a"))
    function = worker.state.functions[INC]
    worker.state.handle(SchedulerSent([DropFunctions(functions=[INC, SLOW])]), 0.0)
    assert worker.state.before == [ForgetFunctions([function])]
    assert worker.run_all() == ["a"]


def too_many_located_hashes():
    message = assign("1 a <- x")
    message.located_hashes = [bytes(16)]
    return message


def no_arguments():
    message = assign("1 a")
    message.args = [None]
    return message


@pytest.mark.parametrize(
    "message",
    [
        too_many_located_hashes(),
        no_arguments(),
        assign("1 a <- a"),
        Stop(reason="not for the core"),
    ],
)
def test_a_contradictory_message_is_refused_before_anything_changes(worker, message):
    with pytest.raises(RemoteProtocolError):
        worker.state.handle(SchedulerSent([message]), 0.0)
    assert worker.state.by_key == {}
    assert worker.state.functions == {}


# --- Clients in turns -----------------------------------------------------------------------------


def test_a_client_waits_for_a_chunk_of_another_one_not_for_all_of_its_tasks(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.report(duration_us=100)
    worker.receive(assign(*(f"{i} a{i}" for i in range(2, 102))))
    small = assign("200 small")
    small.function_clients = [2]
    worker.receive(small)
    ran = worker.run_all()
    assert len(ran) == 101
    assert ran.index("small") <= 11


def test_a_chunk_is_of_one_client_so_that_its_result_waits_for_no_other(worker):
    worker.receive(assign("1 a"))
    worker.start()
    worker.report(duration_us=1)
    other = assign("5 b", "6 c")
    other.function_clients = [2]
    worker.receive(assign("2 busy"))
    worker.receive(assign("3 d", "4 e"), other)
    worker.start()
    worker.report()
    assert [task.key for task in worker.state.slots[0].chunk] == ["b", "c"]


def test_the_users_priority_goes_before_turns_of_clients(worker):
    worker.receive(assign("1 busy"))
    urgent = assign("9 urgent", priority=0)
    urgent.function_clients = [2]
    worker.receive(assign("2 a", "3 b", priority=1 << 53), urgent)
    assert worker.run_all() == ["busy", "urgent", "a", "b"]
