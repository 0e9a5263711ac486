"""How the attempts of a task ended."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.ends import attempt_ends as attempts
from weft.scheduler.core.ends.attempt_ends import MAX_ENDS, attempt_ends

from ...builders import Board, graph

LOST = "finished; its result was lost later"


def failed(board: Board, worker: int, key: str) -> None:
    (attempt,) = [a for a, t in board.state.workers[worker].processing.items() if t.key == key]
    failure = ["exception", key, b"", "ValueError", "no such thing", "", b""]
    board.send(worker, m.AttemptsErred(attempts=[attempt], durations_us=[1], failures=[failure]))


def test_a_task_that_finishes_at_once_has_one_attempt(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    assert attempt_ends(board.state, "a") == []
    board.finish(worker, "a")
    assert attempt_ends(board.state, "a") == [("w", "finished")]
    assert attempt_ends(board.state, "unknown") == []
    assert not attempts.ends_of(board.state)


def test_attempts_that_raise_are_kept_also_when_the_task_has_failed(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a", retries=1))
    failed(board, worker, "a")
    failed(board, worker, "a")
    assert attempt_ends(board.state, "a") == [("w", "raised ValueError: no such thing")] * 2
    (answer,) = board.send(client, m.Ask(request=1, name="attempts", arguments={"keys": ["a"]}))[
        client
    ]
    assert answer.info == {"attempts": [["a", [["w", "raised ValueError: no such thing"]] * 2]]}
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert not attempts.ends_of(board.state)


def test_the_death_of_a_worker_ends_an_attempt(board):
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", supervisor_id="sup", worker_id="w1")
    board.send(client, graph("a"))
    (attempt,) = board.state.workers[worker].processing
    board.close(worker)
    board.send(supervisor, m.WorkerExited(worker_id="w1", reason="SIGKILL", running=[attempt]))
    other = board.worker("other")
    board.finish(other, "a")
    assert attempt_ends(board.state, "a") == [
        ("w", "the worker died: SIGKILL"),
        ("other", "finished"),
    ]


def test_a_result_was_made_where_it_ran_and_not_where_a_copy_is(board):
    client = board.client()
    workers = [board.worker(name) for name in ("w", "copy", "second")]
    board.send(client, graph("a", workers=["w"], allow_other_workers=True))
    board.finish(workers[0], "a", blob=None)
    for worker in workers[1:]:
        board.send(worker, m.ReplicasAdded(attempts=[board.attempt("a")], keys=["a"]))
    for worker in workers[:2]:
        board.close(worker)
        assert attempt_ends(board.state, "a") == [("w", "finished")]
    board.close(workers[2])
    assert attempt_ends(board.state, "a") == [("w", LOST)]


def test_a_task_that_runs_again_because_its_result_was_lost_has_two_attempts(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None)
    board.close(worker)
    again = board.worker("again")
    assert attempt_ends(board.state, "a") == [("w", LOST)]
    board.finish(again, "a", blob=None)
    assert attempt_ends(board.state, "a") == [("w", LOST), ("again", "finished")]
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert not attempts.ends_of(board.state)


def test_a_worker_that_died_while_it_served_a_result_ends_that_attempt_once(board):
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", supervisor_id="sup", worker_id="w1")
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.finish(worker, "a", blob=None)
    board.close(worker)
    board.send(supervisor, m.WorkerExited(worker_id="w1", reason="SIGKILL", running=[attempt]))
    assert attempt_ends(board.state, "a") == [("w", f"{LOST}: the worker died: SIGKILL")]


def test_a_failure_that_a_worker_kept_while_its_connection_was_broken_is_listed():
    board = Board(away_s=5.0)
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.close(worker)
    for _ in range(2):
        board.come_back("w", failed={"a": attempt})
        assert attempt_ends(board.state, "a") == [("w", "exception")]


@pytest.mark.parametrize("kind", ["running", "failed"])
def test_exceptions_before_a_restart_of_the_scheduler_are_listed_without_their_worker(kind):
    board = Board(away_s=5.0)
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client(last_epoch=5)
    board.send(client, graph("a", retries=3))
    board.come_back("w", last_epoch=5, n_raised=2, **{kind: {"a": 7}})
    before = [("", "raised an exception, before the scheduler was restarted")] * 2
    own = [("w", "exception")] if kind == "failed" else []
    assert attempt_ends(board.state, "a") == before + own


def test_few_attempts_and_tasks_are_kept(board, monkeypatch):
    monkeypatch.setattr(attempts, "MAX_TASKS", 2)
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a", retries=MAX_ENDS + 5))
    for _ in range(MAX_ENDS + 5):
        failed(board, worker, "a")
    assert len(attempt_ends(board.state, "a")) == MAX_ENDS
    for key in ("b", "c"):
        board.send(client, graph(key))
        failed(board, worker, key)
    assert [task.key for task in attempts.ends_of(board.state)] == ["b", "c"]
