"""retrying.py: failed tasks that run again on request, or after a pause."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.requests.retrying import pause_s

from ...builders import graph, sent_keys


def retry(*keys: str) -> m.RetryKeys:
    return m.RetryKeys(request=5, keys=[*keys])


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
