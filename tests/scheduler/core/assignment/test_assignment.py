"""assignment.py: shares, backlog, ahead, back."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.assignment.asking_back import SILENCE_S
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

from ...builders import Board, assigned, assignment, dropped, graph, learn


def keys(n: int, prefix: str = "k") -> str:
    return " ".join(f"{prefix}{i}" for i in range(n))


def test_workers_get_contiguous_equal_shares(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = board.send(client, graph(keys(6)))
    assert list(assigned(out, one)) == ["k0", "k1", "k2"]
    assert list(assigned(out, two)) == ["k3", "k4", "k5"]


def test_backlog_is_measured_in_time_not_in_tasks(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=10)
    out = board.send(client, graph(keys(5000)))
    assert len(assigned(out, worker)) == 3000  # 30 ms of 10 us

    slow = Board()
    client, worker = slow.client(), slow.worker()
    learn(slow, client, worker, us=1_000_000)
    out = slow.send(client, graph(keys(100)))
    assert len(assigned(out, worker)) == 1  # nothing waits behind a long task


def test_a_finished_task_makes_room_for_waiting_ones(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=1_000_000)
    board.send(client, graph(keys(4)))
    assert board.states("k2", "k3") == ["queued", "queued"]
    out = board.finish(worker, "k0", us=1_000_000)
    assert list(assigned(out, worker)) == ["k1"]
    assert board.rest() == ["ResultsReady"]


def test_a_chain_is_assigned_ahead_to_the_worker_of_its_first_task(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = board.send(client, graph("a -> b", "b -> c"))
    assert list(assigned(out, one)) == ["a", "b", "c"]
    assert assignment(out, one).dependencies == [[], ["a"], ["b"]]
    assert two not in out
    assert board.state.counters.tasks_assigned_ahead == 2


def test_a_task_whose_inputs_run_on_two_workers_is_not_assigned_ahead(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b", "a b -> c"))
    assert (board.where("a"), board.where("b")) == (one, two)
    assert board.states("c") == ["waiting"]


def test_the_rest_of_a_join_goes_ahead_when_only_one_worker_is_left_to_wait_for(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b", "a b -> c"))
    out = board.finish(one, "a", nbytes=123)
    message = assignment(out, two)
    assert message.keys == ["c"]
    assert (message.located_keys, message.located_nbytes) == (["a"], [123])
    assert message.located_attempts == [board.attempt("a")]
    assert message.located_holders == [["tcp://one"]]
    assert board.rest() == ["ResultsReady"]


def test_an_input_that_is_there_is_not_located(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    out = board.send(client, graph(":a -> b", blob=None))
    assert assignment(out, worker).dependencies == [["a"]]
    assert assignment(out, worker).located_keys == []


def test_a_released_result_is_only_an_input(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x"))  # keeps the worker's backlog from filling
    board.send(client, graph("a -> b", function="f", resources={"r": 1.0}))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    other = board.worker("other", resources={"r": 1.0})
    assert board.where("a") == other
    out = board.finish(other, "a")
    assert assignment(out, other).wanted == [1]
    assert worker not in out


def test_scarce_resources_allow_no_backlog(board):
    client = board.client()
    worker = board.worker(resources={"gpu": 2.0})
    out = board.send(client, graph(keys(5), resources={"gpu": 1.0}))
    assert len(assigned(out, worker)) == 2
    assert board.state.workers[worker].free_resources == {"gpu": 0.0}
    out = board.finish(worker, "k0")
    assert list(assigned(out, worker)) == ["k2"]
    assert board.rest() == ["ResultsReady"]


def test_two_classes_that_share_a_resource_do_not_both_take_the_last_of_it(board):
    client = board.client()
    worker = board.worker(resources={"gpu": 1.0, "mem": 1.0})
    out = board.send(
        client,
        graph("a", resources={"gpu": 1.0}),
        graph("b", resources={"gpu": 1.0, "mem": 1.0}),
    )
    assert list(assigned(out, worker)) == ["a"]
    assert board.states("b") == ["queued"]
    assert list(assigned(board.finish(worker, "a"), worker)) == ["b"]
    assert board.rest() == ["ResultsReady"]


def test_fractions_of_a_resource_add_up(board):
    client = board.client()
    worker = board.worker(nthreads=16, resources={"mem": 1.0})
    for _ in range(3):
        board.send(client, graph(keys(10), resources={"mem": 0.1}))
        assert board.state.workers[worker].free_resources == {"mem": 0.0}
        board.finish(worker, *keys(10).split())
        board.send(client, m.ReleaseKeys(keys=keys(10).split()))
    out = board.send(client, graph("all", resources={"mem": 1.0}))
    assert list(assigned(out, worker)) == ["all"]


def test_a_third_of_a_resource_fits_three_times(board):
    client = board.client()
    worker = board.worker(nthreads=4, resources={"mem": 1.0})
    out = board.send(client, graph(keys(4), resources={"mem": 1 / 3}))
    assert len(assigned(out, worker)) == 3


def test_unstarted_work_is_asked_back_for_an_idle_worker_and_given_to_it(board):
    client, busy = board.client(), board.worker("busy")
    board.send(client, graph(keys(8)))
    idle = board.worker("idle")
    assert board.out[busy] == [m.ReturnAttempts(count=3)]
    assert busy not in board.tick(1.0)  # not while an answer is due
    attempts = [board.attempt(key) for key in ("k5", "k6", "k7")]
    out = board.send(busy, m.AttemptsReturned(attempts=attempts))
    # All of them: the one that gave them back has been stuck for a second.
    assert list(assigned(out, idle)) == ["k5", "k6", "k7"]
    assert not {*assigned(out, idle).values()} & {*attempts}
    assert board.state.counters.tasks_returned == 3


def test_tasks_behind_a_returned_task_are_taken_back_too(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x", "a -> b", "b -> c"))
    attempts = {key: board.attempt(key) for key in "abc"}
    out = board.send(worker, m.AttemptsReturned(attempts=[attempts["a"]]))
    assert sorted(dropped(out, worker)) == [attempts["b"], attempts["c"]]
    assert board.states("a", "b", "c") == ["processing"] * 3
    assert all(board.attempt(key) > attempt for key, attempt in attempts.items())
    assert board.rest() == ["AssignTasks"]


def test_a_return_of_an_unknown_attempt_is_stale(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    assert board.send(worker, m.AttemptsReturned(attempts=[1, 99])) == {}
    assert board.state.counters.reports_stale == 2


def test_a_queued_task_of_higher_priority_goes_first(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=1_000_000)
    board.send(client, graph(keys(3)))
    board.send(client, graph("urgent", priority=5))
    out = board.finish(worker, "k0", us=1_000_000)
    assert list(assigned(out, worker)) == ["urgent"]
    assert board.rest() == ["ResultsReady"]


# -- threads that are busy with unneeded tasks, or for a long time --------------------------------
def test_a_dropped_attempt_holds_its_thread_until_the_worker_reports_its_end(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("long"))
    attempt, where = board.attempt("long"), board.where("long")
    other = two if where == one else one
    board.tick(1.0)
    out = board.send(client, m.ReleaseKeys(keys=["long"]))
    assert dropped(out, where) == [attempt]
    out = board.send(client, graph(keys(3)))
    assert len(assigned(out, other)) == 3
    assert board.state.workers[where] not in board.state.idle
    board.send(where, m.AttemptsEnded(attempts=[attempt]))
    assert board.state.workers[where] in board.state.idle
    assert board.rest() == ["DropFunctions"]


def test_resources_of_a_dropped_attempt_are_held_until_it_ended(board):
    client, worker = board.client(), board.worker(nthreads=2, resources={"GPU": 1.0})
    board.send(client, graph("first", resources={"GPU": 1.0}))
    attempt = board.attempt("first")
    board.send(client, m.CancelKeys(keys=["first"], force=False, reason=""))
    board.send(client, graph("second", resources={"GPU": 1.0}))
    assert board.states("second") == ["queued"]
    out = board.send(worker, m.AttemptsEnded(attempts=[attempt]))
    assert list(assigned(out, worker)) == ["second"]


def test_a_report_that_crosses_the_drop_frees_the_thread_too(board):
    client, worker = board.client(), board.worker(resources={"GPU": 1.0})
    board.send(client, graph("first", resources={"GPU": 1.0}))
    attempt = board.attempt("first")
    board.send(client, m.ReleaseKeys(keys=["first"]))
    report = m.AttemptsFinished(attempts=[attempt], nbytes=[1], durations_us=[1], results=[None])
    out = board.send(worker, report)
    assert dropped(out, worker) == [attempt]  # its data
    out = board.send(client, graph("second", resources={"GPU": 1.0}))
    assert list(assigned(out, worker)) == ["second"]


def test_nothing_is_put_behind_a_task_that_has_run_for_long_while_others_are_free(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("long"))
    stuck = board.where("long")
    free = two if stuck == one else one
    board.tick(1.0)
    out = board.send(client, graph(keys(7)))
    assert len(assigned(out, free)) == 7


def test_a_worker_whose_thread_is_held_by_a_dropped_task_is_no_fresher_for_a_new_one(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]))
    board.finish(one, "a", blob=None)
    board.send(client, graph("long", workers=["one"]))
    board.send(client, m.ReleaseKeys(keys=["long"]))
    board.tick(1.0)
    board.send(client, graph("other", workers=["one"]))
    board.send(client, graph(":a -> b", blob=None))
    board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True))
    # There is no other place for b. The rest waits until the thread is free, or all would go there.
    assert board.where("b") == one
    assert board.states("other") == ["queued"]


def test_a_stuck_worker_is_asked_for_all_its_unstarted_tasks(board):
    client, busy = board.client(), board.worker("busy")
    board.send(client, graph(keys(8)))
    board.tick(1.0)
    board.worker("idle")
    assert board.out[busy] == [m.ReturnAttempts(count=8)]


def test_a_worker_is_asked_for_work_at_the_time_when_it_may_be_asked(board):
    client, busy = board.client(), board.worker("busy")
    board.send(client, graph(keys(8)))
    board.worker("idle")
    for pause in (0.04, 0.08, 0.16):  # longer after each answer that brings nothing
        assert board.out[busy] == [m.ReturnAttempts(count=(8 if pause > 0.04 else 3))]
        asked_at = board.now
        board.tick(0.01)
        assert board.send(busy, m.AttemptsReturned(attempts=[])) == {}
        assert board.state.next_deadline == pytest.approx(asked_at + pause)
        board.tick(board.state.next_deadline - board.now)


def test_work_that_is_done_soon_is_asked_back_when_it_takes_longer(board):
    client, busy = board.client(), board.worker("busy")
    board.tick()
    learn(board, client, busy, us=1000)
    board.send(client, graph(keys(3)))
    board.worker("idle")
    assert busy not in board.out
    assert board.state.next_deadline == pytest.approx(board.now + SILENCE_S)
    out = board.tick(board.state.next_deadline - board.now)
    assert out[busy] == [m.ReturnAttempts(count=1)]


def test_a_task_that_raised_holds_no_thread(board):
    client, worker = board.client(), board.worker(resources={"GPU": 1.0})
    board.send(client, graph("bad", resources={"GPU": 1.0}))
    failure = ["exception", "bad", b"", "E", "text", ""]
    attempt = board.attempt("bad")
    board.send(worker, m.AttemptsErred(attempts=[attempt], durations_us=[1], failures=[failure]))
    assert board.states("bad") == ["erred"]
    assert board.state.workers[worker].zombies == {}
    out = board.send(client, graph("next", resources={"GPU": 1.0}))
    assert list(assigned(out, worker)) == ["next"]


def test_a_scheduler_numbers_its_attempts_above_those_of_the_one_before_it():
    """A worker that comes back may still be executing tasks of the last scheduler."""
    start_ns, seconds = 1_700_000_000_000_000_000, 60
    first, second = Board(), Board()
    first.state = SchedulerState(start_ns, features=FEATURES)
    second.state = SchedulerState(start_ns + seconds * 10**9, features=FEATURES)
    attempts = []
    for board in (first, second):
        client = board.client()
        board.worker("one")
        board.send(client, graph("a"))
        attempts.append(board.attempt("a"))
    assert attempts[1] - attempts[0] >= seconds * 1_000_000


# -- clients in turns ----------------------------------------------------------------------------
def test_a_small_call_does_not_wait_for_another_clients_million(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    learn(board, alice, worker, us=10)
    out = board.send(alice, graph(keys(9000)))
    first = list(assigned(out, worker))
    board.tick(1.0)  # another generation: by priority alone it would be the last
    board.finish(worker, first[0], us=10)
    out = board.send(bob, graph("small second third", blob=None))
    assert list(assigned(out, worker)) == ["small"]  # although the worker is full
    assert assigned(board.send(bob, graph("fourth", blob=None)), worker) == {}
    out = board.finish(worker, *first[1:100], us=10)
    assert list(assigned(out, worker))[:3] == ["second", "third", "fourth"]
    assert board.rest() == ["ResultsReady"]


def test_newcomers_go_to_full_workers_in_turns_and_not_to_stuck_ones(board):
    alice = board.client("alice")
    one, two = board.worker("one"), board.worker("two")
    learn(board, alice, one, us=10)
    out = board.send(alice, graph(keys(9000)))
    first = {ws: next(iter(assigned(out, ws))) for ws in (one, two)}
    takers = []
    for name in ("bob", "carol"):
        out = board.send(board.client(name), graph(f"from-{name}", blob=None))
        takers += [ws for ws in (one, two) if f"from-{name}" in assigned(out, ws)]
    assert sorted(takers) == [one, two]
    board.tick(10.0)
    board.finish(two, first[two], us=10)
    for name in ("dave", "eve"):
        out = board.send(board.client(name), graph(f"from-{name}", blob=None))
        assert f"from-{name}" in assigned(out, two)


def test_newcomers_fill_a_worker_little_beyond_its_backlog(board):
    clients = [board.client(name) for name in ("alice", "bob")]
    worker = board.worker()
    learn(board, clients[0], worker, us=10_000)
    for i in range(40):
        board.send(clients[i % 2], graph(f"a{i}"))
    (handle,) = board.state.workers.values()
    assert len(handle.processing) == 4  # 30 ms of backlog, and one newcomer


def test_a_class_whose_best_task_is_cancelled_takes_its_lower_place(board):
    client = board.client()
    worker = board.worker()
    learn(board, client, worker, us=1_000_000)
    board.send(client, graph("busy"))
    board.send(client, graph("low", blob=None, workers=["w"]))
    board.send(client, graph("best", blob=None, workers=["w"], priority=10))
    board.send(client, graph("middle", blob=None, priority=5))
    board.send(client, m.ReleaseKeys(keys=["best"]))
    assert list(assigned(board.finish(worker, "busy", us=1_000_000), worker)) == ["middle"]
    assert board.rest() == ["ResultsReady"]


def test_rows_name_the_client_for_which_they_run(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker(nthreads=4)
    board.send(alice, graph("a1"))
    out = board.send(bob, graph("b1", blob=None))
    assert assignment(out, worker).function_clients == [2]
    board.close(worker)
    again = board.worker("again", nthreads=4)
    message = assignment(board.out, again)
    assert {
        key: message.function_clients[i]
        for key, i in zip(message.keys, message.function_of, strict=True)
    } == {
        "a1": 1,
        "b1": 2,
    }
    assert message.functions[0] == message.functions[1]
    assert message.function_blobs == [b"pickle", None]


def test_classes_take_turns_and_the_best_user_priority_goes_first(board):
    client = board.client()
    worker = board.worker("w")
    learn(board, client, worker, us=1_000_000)
    board.send(client, graph("busy"))
    board.send(client, graph(keys(4, "any"), blob=None))
    board.send(client, graph(keys(4, "only"), blob=None, workers=["w"]))
    board.send(client, graph("urgent", blob=None, workers=["w"], priority=5))
    ran = []
    key = "busy"
    for _ in range(9):
        out = board.finish(worker, key, us=1_000_000)
        (key,) = assigned(out, worker)
        ran.append(key)
    assert ran[0] == "urgent"
    assert [key[:4] for key in ran[1:5]] in (
        ["any0", "only", "any1", "only"],
        ["only", "any0", "only", "any1"],
    )
    board.drop_rest()


def test_classes_with_resources_take_turns_for_what_is_free(board):
    client = board.client()
    worker = board.worker(resources={"mem": 10.0})
    for i in range(3):
        row = graph(f"large{i} next{i}", resources={"mem": 6.0 + i}, blob=None if i else b"p")
        board.send(client, row)
    assert board.task("large0").worker is not None
    ran = []
    key = "large0"
    for _ in range(5):
        (key,) = assigned(board.finish(worker, key), worker)
        ran.append(key)
    assert ran == ["next0", "large1", "large2", "next1", "next2"]
    out = board.send(client, graph("small", resources={"mem": 2.0}, blob=None))
    assert list(assigned(out, worker)) == ["small"]
    board.drop_rest()


def test_a_class_finds_what_others_left_of_a_worker_that_was_no_taker(board):
    client = board.client()
    worker = board.worker(resources={"mem": 10.0, "gpu": 1.0})
    board.send(client, graph("a b", resources={"mem": 8.0}))
    board.tick(0.01)
    assert not board.state.takers, "2 are left, and the only class asks for 8"
    out = board.send(client, graph("c", resources={"mem": 2.0}, blob=None))
    assert list(assigned(out, worker)) == ["c"]
    out = board.send(client, graph("d", resources={"gpu": 1.0}, blob=None))
    assert list(assigned(out, worker)) == ["d"]


# -- few messages for short tasks -----------------------------------------------------------------
def test_short_tasks_go_to_few_workers_in_shares_that_are_worth_a_message(board):
    client = board.client()
    workers = [board.worker(f"w{i}") for i in range(100)]
    learn(board, client, workers[0], us=10)
    out = board.send(client, graph(keys(1000)))
    sizes = [len(assigned(out, ws)) for ws in workers if ws in out]
    assert sum(sizes) == 1000
    assert 10 <= len([n for n in sizes if n]) <= 30
    out = board.send(client, graph(keys(100, "long"), function="long"))
    assert all(len(assigned(out, ws)) == 1 for ws in workers[50:]), "their time is not known"
    board.drop_rest()


def test_a_worker_is_refilled_in_one_message_when_half_of_its_work_is_done(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=1000)
    running = list(assigned(board.send(client, graph(keys(100))), worker))
    assert len(running) == 30
    sizes = []
    for _ in range(40):
        out = board.finish(worker, running.pop(0), us=1000)
        new = list(assigned(out, worker))
        running += new
        sizes.append(len(new))
    assert [n for n in sizes if n] == [16, 16]
    assert min(n for n in sizes if n) > 10
    board.drop_rest()


def test_the_last_tasks_go_to_all_workers_with_room(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    learn(board, client, one, us=10)
    out = board.send(client, graph(keys(4000)))
    first = list(assigned(out, one))
    assert len(first) == len(assigned(out, two)) == 2000  # more than half of what each may hold
    board.send(client, graph(keys(2000, "l")))
    out = board.finish(one, *first[:1500], us=10)
    assert len(assigned(out, one)) == len(assigned(out, two)) == 1000
    assert board.rest() == ["ResultsReady"]


def test_any_room_is_used_while_several_clients_wait(board):
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    learn(board, alice, worker, us=1000)
    (*first, _) = list(assigned(board.send(alice, graph(keys(100))), worker))[:4]
    board.send(bob, graph(keys(100, "b")))
    out = board.finish(worker, *first, us=1000)
    assert len(assigned(out, worker)) == 2, "a task of bob went there at once"
    assert board.rest() == ["ResultsReady"]


def test_an_urgent_task_does_not_wait_until_half_of_the_work_is_done(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=1000)
    (*first, _) = list(assigned(board.send(client, graph(keys(100))), worker))[:3]
    board.send(client, graph("first urgent", priority=5))
    assert board.states("first", "urgent") == ["processing", "queued"]
    out = board.finish(worker, *first, us=1000)
    assert list(assigned(out, worker)) == ["urgent"]
    assert board.rest() == ["ResultsReady"]


@pytest.mark.parametrize("others", [[], ["free"]])
def test_a_chain_that_was_assigned_ahead_is_not_asked_back_for_its_own_sake(board, others):
    client, busy = board.client(), board.worker("busy")
    chain = [f":c{i} -> c{i + 1}" for i in range(12)]
    board.send(client, graph("c0", *others, *chain))
    assert len(board.state.workers[busy].processing) == 13 + len(others)
    board.worker("idle")
    out = board.tick(1.0)
    assert board.state.workers[busy].return_asked == bool(others), out


def test_a_task_most_of_whose_inputs_are_elsewhere_waits_for_its_last_input(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a b", workers=["one"]), graph("c d", workers=["two"]))
    board.finish(one, "a", "b", blob=None)
    board.send(client, graph(":a :b :c -> mostly-one", blob=None))
    board.send(client, graph(":a :c :d -> mostly-two", blob=None))
    assert board.states("mostly-one", "mostly-two") == ["waiting", "processing"]
    board.finish(two, "c", blob=None)
    assert board.where("mostly-one") == one


def test_a_very_short_task_goes_ahead_although_its_inputs_are_elsewhere(board):
    client, one, _ = board.client(), board.worker("one"), board.worker("two")
    learn(board, client, one, us=10)
    board.send(client, graph("a b", workers=["one"]), graph("c", workers=["two"]))
    board.finish(one, "a", "b", us=10, blob=None)
    board.send(client, graph(":a :b :c -> d", blob=None))
    assert board.states("d") == ["processing"]
