"""A task with `after=` runs when others have ended so; if they cannot any more it is cancelled."""

from __future__ import annotations

import itertools

import pytest

from weft.protocol.death_facts import DeathFacts
from weft.protocol.wire import messages as m
from weft.protocol.wire.failure import data_lost, worker_died
from weft.protocol.wire.options import ENDS
from weft.scheduler.core.conditions.records import Watched, conditions_of, watched_of
from weft.scheduler.core.records.presence import Members

from ...builders import Board, graph, sent_keys

CANCEL = {"force": False, "reason": "by the user"}


def after(**states: str) -> dict[str, list[list[str]]]:
    """Return the option for keys that stand as texts behind the states in which they are to end."""
    return {"conditions": [[how, key] for how, keys in states.items() for key in keys.split()]}


def end(board: Board, client: int, worker: int, key: str, how: str) -> None:
    """Let a task that a worker runs end so."""
    if how == "done":
        board.finish(worker, key)
    elif how == "failed":
        board.raise_(worker, key)
    elif how == "cancelled":
        board.send(client, m.CancelKeys(keys=[key], **CANCEL))
    else:
        failures = [data_lost(key, "its data is gone")]
        attempts = [board.attempt(key)]
        board.send(worker, m.AttemptsErred(attempts=attempts, durations_us=[1], failures=failures))


CASES = [*itertools.product(ENDS[:-1], ENDS)]


@pytest.mark.parametrize(("how", "wanted"), CASES, ids=map("-".join, CASES))
def test_each_end_meets_its_own_state_and_ended(board, how, wanted):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(**{wanted: "a"})))
    assert board.states("a", "b") == ["processing", "waiting"]
    end(board, client, worker, "a", how)
    if wanted in (how, "ended"):
        assert board.states("b") == ["processing"]
    else:
        assert board.states("b") == ["-"]
        (cancelled,) = board.out.of(client, m.KeysCancelled)[-1:]
        assert cancelled.keys == ["b"]
        assert f"to run when a is {wanted}" in cancelled.reason
    assert not watched_of(board.state).waiters
    board.drop_rest()


@pytest.mark.parametrize("how", ["done", "failed"])
def test_ends_before_the_submission_count(board, how):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    end(board, client, worker, "a", how)
    out = board.send(client, graph("b", **after(**{how: "a"})))
    assert [type(x) for x in out[worker]] == [m.AssignTasks]
    assert board.states("b") == ["processing"]


def test_a_key_that_nobody_knows_cancels_with_that_reason(board):
    client = board.client()
    board.worker()
    out = board.send(client, graph("b", **after(done="a")))
    (cancelled,) = out.of(client, m.KeysCancelled)
    assert cancelled.reason == "it was to run when a is done, and that is not known (any more)"
    assert board.states("b") == ["-"]
    board.send(client, graph("c", **after(ended="a")))
    assert board.states("c") == ["processing"]


def test_all_conditions_and_inputs_are_needed(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("a", "b", "c"))
    board.send(client, graph(":c -> d", **after(done="a", ended="b")))
    board.finish(worker, "a", "c")
    assert board.states("d") == ["waiting"]
    out = board.raise_(worker, "b")
    assert sent_keys(out, client, m.KeysErred) == ["b"]
    assert board.states("d") == ["processing"]
    assert board.rest() == ["AssignTasks"]


def test_inputs_are_made_while_conditions_are_open(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "i"))
    board.send(client, graph(":i -> b", **after(done="a")))
    board.send(client, m.ReleaseKeys(keys=["i"]))
    board.finish(worker, "i")
    assert board.states("i", "b") == ["memory", "waiting"]
    board.finish(worker, "a")
    assert board.states("b") == ["processing"]


def test_a_watched_task_runs_on_when_its_future_is_gone(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(done="a")))
    out = board.send(client, m.ReleaseKeys(keys=["a"]))
    assert out == {}
    assert board.states("a") == ["processing"]
    board.finish(worker, "a")
    assert board.states("a", "b") == ["-", "processing"]  # its result is not kept


def test_a_watched_task_is_dropped_with_the_last_that_waits_for_it(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", "c", **after(done="a")))
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    attempt = board.attempt("a")
    out = board.send(client, m.ReleaseKeys(keys=["c"]))
    assert out[worker][0] == m.DropAttempts(attempts=[attempt])
    assert board.states("a", "b", "c") == ["-", "-", "-"]
    assert Watched not in board.state.busy


def test_another_client_that_wants_a_watched_task_keeps_it_from_being_cancelled(board):
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    board.send(alice, graph("b", **after(cancelled="a")))
    out = board.send(alice, m.CancelKeys(keys=["a"], **CANCEL))
    assert sent_keys(out, alice, m.KeysCancelled) == ["a"]
    assert board.states("a", "b") == ["processing", "waiting"]
    out = board.send(bob, m.CancelKeys(keys=["a"], **CANCEL))
    assert sent_keys(out, bob, m.KeysCancelled) == ["a"]
    assert board.states("a") == ["-"]
    board.drop_rest()
    assert board.where("b") == worker or board.states("b") == ["queued"]


def test_conditions_chain_within_one_pass(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(done="a")))
    board.send(client, graph("c", **after(cancelled="b")))
    board.send(client, graph("d", **after(done="c")))
    out = board.raise_(worker, "a")
    assert sent_keys(out, client, m.KeysErred) == ["a"]
    assert sent_keys(out, client, m.KeysCancelled) == ["b"]
    assert board.states("c", "d") == ["processing", "waiting"]
    assert board.rest() == ["AssignTasks"]


def test_readers_of_a_cancelled_task_fail_with_the_reason(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(failed="a")))
    board.send(client, graph(":b -> c"))
    out = board.finish(worker, "a")
    (erred,) = out.of(client, m.KeysErred)
    assert erred.keys == ["c"]
    assert erred.failures[0][:2] == ["cancelled", "b"]
    assert erred.failures[0][2].startswith("it was to run when a is failed, and that is done")
    assert sent_keys(out, client, m.KeysCancelled) == ["b"]
    board.drop_rest()


def test_a_task_that_is_retried_has_its_conditions_behind_it(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", retries=1, **after(done="a")))
    board.finish(worker, "a")
    board.raise_(worker, "b")
    assert board.states("b") == ["processing"]
    board.raise_(worker, "b")
    out = board.send(client, m.RetryKeys(request=1, keys=["b"]))
    assert board.states("b") == ["processing"]
    assert worker in out
    board.drop_rest()


def test_a_deferred_task_gets_the_class_of_its_options(board):
    client = board.client()
    worker, gpu = board.worker("cpu"), board.worker("gpu", resources={"GPU": 1})
    board.send(client, graph("a", workers=["cpu"]))
    board.send(client, graph("b", resources={"GPU": 1}, **after(done="a")))
    assert board.task("b").group.task_class.is_deferred
    board.finish(worker, "a")
    assert board.where("b") == gpu


def test_a_deaths_failure_is_one_of_the_task(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(failed="a")))
    failure = worker_died("a", 4, "w", "killed", DeathFacts())
    attempts = [board.attempt("a")]
    board.send(worker, m.AttemptsErred(attempts=attempts, durations_us=[1], failures=[failure]))
    assert board.states("b") == ["processing"]


def test_a_task_that_a_worker_ran_before_needs_no_conditions():
    board = Board(away_s=5.0)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(done="a")))
    board.finish(worker, "a")
    attempt = board.attempt("b")
    board.close(worker)
    board.come_back(running={"b": attempt}, last_epoch=board.state.epoch)
    assert board.states("b") == ["processing"]
    assert not conditions_of(board.state)[board.task("b")].unmet


@pytest.mark.parametrize("kind", ["running", "assigned"])
@pytest.mark.parametrize("is_known", [False, True])
def test_an_attempt_goes_on_at_the_next_scheduler_whatever_its_conditions(is_known, kind):
    """Those of its first client were met, or it had none, and this client does not know that.

    One that was assigned may begin before its worker could be told to drop it.
    """
    board = Board(expected=Members(("id of w",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=5)
    rows = [graph("a"), graph("b", **after(done="a"))]
    if is_known:
        board.send(client, *rows)
    worker = board.come_back(last_epoch=5, **{kind: {"b": 7}})
    if not is_known:
        board.send(client, *rows)
    assert board.states("b") == ["processing"]
    assert board.attempt("b") == 7
    board.finish(worker, "b")
    assert board.states("b") == ["memory"]
    board.drop_rest()


def test_a_result_that_comes_back_is_kept_whatever_its_conditions():
    """Its first client had others, and what reads it is there as well."""
    board = Board(expected=Members(("id of w", "id of v"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=5)
    rows = [graph("a"), graph("b", **after(cancelled="a")), graph(":b -> c")]
    board.send(client, *rows, m.Resubmitted())
    board.come_back("v", kept={"a": 7}, last_epoch=5)
    board.come_back("w", kept={"b": 8, "c": 9}, last_epoch=5)
    board.tick(0.6)
    assert not board.state.awaits_peers
    assert board.states("a", "b", "c") == ["memory", "memory", "memory"]
    assert not board.task("b").group.task_class.is_deferred
    assert board.out.of(client, m.KeysCancelled) == []
    board.drop_rest()


def test_conditions_are_judged_when_the_workers_are_back():
    board = Board(expected=Members(("id of w",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=5)
    board.send(client, graph("a"), graph("b", **after(cancelled="a")), m.Resubmitted())
    board.come_back(kept={"a": 7}, last_epoch=5)
    board.tick(0.6)
    assert board.states("a", "b") == ["memory", "-"]
    board.drop_rest()


def test_a_result_that_a_client_has_counts_when_the_workers_are_back():
    board = Board(expected=Members(("id of w",), ("alice",)))
    client = board.client("alice", last_epoch=5)
    rows = [graph("a", delivered=True), graph("b", **after(failed="a"))]
    board.send(client, *rows, m.Resubmitted())
    assert board.states("a", "b") == ["released", "waiting"]
    board.come_back(last_epoch=5)
    board.tick(0.6)
    assert board.states("b") == ["-"]
    board.drop_rest()


def test_a_task_that_failed_without_its_input_gets_the_conditions_of_the_next_submission(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "x"))
    board.send(client, graph(":gone -> b", **after(ended="a")))
    assert board.states("b") == ["erred"]
    board.send(client, graph("gone"), graph(":gone -> b", **after(ended="x")))
    board.finish(worker, "gone")
    assert board.states("b") == ["waiting"]
    board.finish(worker, "x")
    assert board.states("b") == ["processing"]


def test_a_task_that_waits_for_itself_is_cancelled():
    board = Board(expected=None)
    client = board.client()
    board.send(client, graph("a"))
    board.send(client, graph("b", **after(done="a")))
    out = board.send(client, graph("b", **after(done="b")))  # b is known: it keeps its conditions
    assert sent_keys(out, client, m.KeysPending) == ["b"]
    assert list(conditions_of(board.state)[board.task("b")].unmet) == ["a"]


def test_a_result_that_its_client_has_counts_and_is_not_made_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", delivered=True))
    board.send(client, graph("b", **after(done="a")))
    assert board.states("a", "b") == ["released", "processing"]
    assert board.where("b") == worker
