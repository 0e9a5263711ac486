"""retrying.py: failed tasks that run again on request, after a pause, or on another worker."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.requests.retrying import MAX_AVOIDED, N_AT_ONCE, pause_s

from ...builders import Board, assignment, graph, sent_keys


def retry(*keys: str) -> m.RetryKeys:
    return m.RetryKeys(request=5, keys=[*keys])


def reschedule(board: Board, peer: int, key: str) -> None:
    board.send(
        peer,
        m.AttemptsErred(
            attempts=[board.attempt(key)],
            durations_us=[1000],
            failures=[["reschedule", key, "too warm"]],
        ),
    )


# -- on request -----------------------------------------------------------------------------------
def test_a_failed_task_runs_again_with_its_failed_inputs(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "a -> b", "other"))
    board.raise_(worker, "a")
    assert board.states("a", "b") == ["erred", "erred"]
    out = board.send(client, retry("b"))
    # The client has a future of the input as well, and so is sent that it is pending.
    assert out[client] == [
        m.KeysRetried(request=5, keys=["a"]),
        m.KeysPending(keys=["b", "a"]),
    ]
    board.finish(worker, "other")
    board.finish(worker, "a")
    assert sent_keys(board.finish(worker, "b"), client, m.ResultsReady) == ["b"]
    assert board.rest() == ["DropAttempts", "AssignTasks"]


def test_a_failed_input_behind_one_that_was_released_runs_again_as_well(board):
    """As the part of a persisted collection does, which a sum reads by way of partial sums."""
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "a -> b", "b -> c"))
    board.send(client, m.ReleaseKeys(keys=["b"]))
    board.raise_(worker, "a")
    board.send(client, retry("a"))
    board.raise_(worker, "a")
    assert board.states("a", "b", "c") == ["erred", "released", "erred"]
    out = board.send(client, retry("c"))
    assert sent_keys(out, client, m.KeysPending) == ["c", "a"]
    assert board.states("a", "b", "c") == ["processing"] * 3
    assert board.rest() == ["DropAttempts", "AssignTasks", "KeysRetried"]


def test_a_retried_task_has_all_its_retries_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1))
    board.raise_(worker, "a")
    board.raise_(worker, "a")
    assert board.states("a") == ["erred"]
    board.send(client, retry("a"))
    board.raise_(worker, "a")
    assert board.states("a") == ["processing"]


def test_tasks_that_have_not_failed_are_left_as_they_are(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("done", "running"))
    board.finish(worker, "done")
    attempt = board.attempt("running")
    out = board.send(client, retry("done", "running", "nowhere"))
    assert sent_keys(out, client, m.KeysInMemory) == ["done"]
    assert sent_keys(out, client, m.KeysPending) == ["running"]
    assert sent_keys(out, client, m.KeysUnknown) == ["nowhere"]
    assert board.attempt("running") == attempt
    assert board.rest() == ["KeysRetried"]


def test_a_task_whose_input_was_cancelled_runs_again_with_it(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "a -> b"))
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert board.states("a", "b") == ["released", "erred"]
    board.send(client, retry("b"))
    board.send(worker, m.AttemptsEnded(attempts=[1]))
    assert "erred" not in board.states("a", "b")


def test_another_client_keeps_the_failure_that_it_has_seen(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a", "a -> b"))
    board.send(bob, m.WantKeys(keys=["a"]))
    board.raise_(worker, "a")
    assert bob not in board.send(alice, retry("b"))


def test_an_input_that_only_another_client_wants_is_not_reported(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(bob, graph("a"))
    board.send(alice, graph(":a -> b", blob=None))
    board.raise_(worker, "a")
    out = board.send(alice, retry("b"))
    assert out[alice] == [m.KeysRetried(request=5, keys=[]), m.KeysPending(keys=["b"])]
    assert board.rest() == ["DropAttempts", "AssignTasks"]


def test_a_client_wants_what_it_retries(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.raise_(worker, "a")
    board.send(bob, retry("a"))
    board.send(alice, m.ReleaseKeys(keys=["a"]))
    assert sent_keys(board.finish(worker, "a"), bob, m.ResultsReady) == ["a"]


def test_a_lost_result_that_its_client_had_is_reported_when_its_worker_is_back(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    attempt = board.attempt("a")
    board.close(worker)
    assert board.states("a") == ["released"]
    assert sent_keys(board.send(client, retry("a")), client, m.KeysPending) == ["a"]
    board.come_back(kept={"a": attempt})
    assert sent_keys(board.out, client, m.KeysInMemory) == ["a"]
    assert board.rest() == ["KeysRetried", "Reconciled"]


# -- after a pause --------------------------------------------------------------------------------
PAUSES = (1.0, 2.0, 5.0, 0.0)


@pytest.mark.parametrize(("n", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (10**9, 5.0)])
def test_pauses_grow_up_to_the_longest_one(n, seconds):
    assert pause_s(PAUSES, "key", n) == seconds


def test_jitter_shortens_each_pause_by_another_share():
    pauses = [pause_s((1.0, 1.0, 1.0, 0.5), f"key-{i}", 1) for i in range(100)]
    assert len(set(pauses)) == 100
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.3
    assert pause_s((0.0, 2.0, 5.0, 0.5), "key", 3) == 0.0


def test_a_task_that_raised_waits_before_its_retry_and_others_run_meanwhile(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=2, pauses=[1.0, 2.0, 60.0, 0.0]))
    board.raise_(worker, "a")
    assert board.states("a") == ["no_worker"]
    board.send(client, graph("b"))
    assert board.states("b") == ["processing"]
    board.finish(worker, "b")
    board.tick(0.9)
    assert board.states("a") == ["no_worker"]
    assert not sent_keys(board.out, client, m.KeysUnrunnable)
    board.tick(0.2)
    assert board.states("a") == ["processing"]
    board.raise_(worker, "a")
    board.tick(1.9)
    assert board.states("a") == ["no_worker"]
    board.tick(0.2)
    board.raise_(worker, "a")
    assert board.states("a") == ["erred"]
    assert not board.state.paused


def test_a_worker_that_joins_does_not_end_a_pause(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1, pauses=[5.0, 2.0, 60.0, 0.0]))
    board.raise_(worker, "a")
    board.worker("late")
    assert board.states("a") == ["no_worker"]
    board.tick(6.0)
    assert board.states("a") == ["processing"]


def test_a_task_waits_for_a_worker_after_a_pause_without_any(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1, pauses=[5.0, 2.0, 60.0, 0.0]))
    board.raise_(worker, "a")
    board.send(worker, m.Bye(reason=""))
    out = board.tick(20.0)
    assert sent_keys(out, client, m.KeysUnrunnable) == ["a"]
    assert board.states("a") == ["no_worker"]
    board.worker("late")
    assert board.states("a") == ["processing"]


def test_a_paused_task_can_be_cancelled(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1, pauses=[5.0, 2.0, 60.0, 0.0]))
    board.raise_(worker, "a")
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert board.states("a") == ["-"]
    assert not board.state.paused
    board.tick(6.0)


# -- on another worker ----------------------------------------------------------------------------
def test_a_task_that_asks_for_another_worker_gets_one(board):
    client = board.client()
    workers = [board.worker("v"), board.worker("w")]
    board.send(client, graph("a"))
    first = board.where("a")
    assert first is not None
    reschedule(board, first, "a")
    (other,) = [peer for peer in workers if peer != first]
    assert board.where("a") == other
    assert not board.state.n_exceptions
    board.finish(other, "a")
    assert len(board.state.classes) == 2  # the one that avoids a worker goes with its task
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert len(board.state.classes) == 1


def test_a_task_runs_where_it_was_if_there_is_no_other_worker(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    for _ in range(N_AT_ONCE):
        reschedule(board, worker, "a")
        assert board.states("a") == ["processing"]
    # From now on it pauses, so that it does not keep the scheduler busy.
    for _ in range(20):
        reschedule(board, worker, "a")
        assert board.states("a") == ["no_worker"]
        while board.states("a") == ["no_worker"]:
            board.send(worker, m.Heartbeat())
            board.tick(1.0)
    assert len(board.task("a").group.task_class.avoided) <= MAX_AVOIDED


def test_a_task_avoids_the_last_workers_on_which_it_asked_for_another(board):
    client = board.client()
    for i in range(MAX_AVOIDED + 2):
        board.worker(f"w{i}")
    board.send(client, graph("a"))
    asked = []
    for _ in range(MAX_AVOIDED + 1):
        while board.states("a") == ["no_worker"]:
            board.tick(0.5)
        asked.append(board.task("a").worker.worker_id)
        reschedule(board, board.where("a"), "a")
    assert len({*asked}) == MAX_AVOIDED + 1
    assert board.task("a").group.task_class.avoided == tuple(asked[-MAX_AVOIDED:])


def test_a_worker_that_is_asked_twice_is_avoided_as_one(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    reschedule(board, worker, "a")
    reschedule(board, worker, "a")
    assert board.task("a").group.task_class.avoided == ("id of w",)


def test_a_task_that_asks_for_another_worker_keeps_its_options(board):
    client, worker = board.client(), board.worker("w")
    options = {"retries": 1, "pauses": [5.0, 2.0, 60.0, 0.0], "timeout_us": 7_000_000}
    board.send(client, graph("a", **options))
    other = board.worker("other")
    reschedule(board, worker, "a")
    assert assignment(board.out, other).timeouts_us == [7_000_000]
    board.raise_(other, "a")
    assert board.states("a") == ["no_worker"]  # it pauses
    board.tick(5.1)
    board.raise_(board.where("a"), "a")
    assert board.states("a") == ["erred"]
    assert board.rest() == ["DropAttempts"]


def test_a_task_without_recipe_that_asks_for_another_worker_is_asked_of_its_client(board):
    """No other worker can run it: its function and arguments are at that one and its client."""
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client(last_epoch=5)
    board.send(client, m.WantKeys(keys=["a"]))
    worker = board.come_back(last_epoch=5, running={"a": 3})
    board.worker("other")
    board.tick(QUIET_S)
    assert (board.where("a"), board.attempt("a")) == (worker, 3)
    reschedule(board, worker, "a")
    (message,) = board.tick(3.0)[client]
    assert message == m.KeysUnknown(keys=["a"])


def test_restrictions_hold_for_a_task_that_asks_for_another_worker(board):
    client = board.client()
    v, w = board.worker("v"), board.worker("w")
    board.worker("x")
    board.send(client, graph("a", workers=["v", "w"]))
    first = board.where("a")
    reschedule(board, first, "a")
    second = board.where("a")
    assert {first, second} == {v, w}
    reschedule(board, second, "a")
    assert board.where("a") in (v, w)
    board.close(v)
    board.close(w)
    assert board.states("a") == ["no_worker"]


def test_a_class_that_avoids_a_worker_takes_it_when_the_others_leave(board):
    client = board.client()
    v = board.worker("v")
    board.send(client, graph("a"))
    reschedule(board, v, "a")
    w = board.worker("w")
    reschedule(board, v, "a")
    assert board.where("a") == w
    board.close(w)
    assert board.where("a") == v
