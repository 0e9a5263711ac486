"""How the attempts of a task ended."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core import attempts
from weft.scheduler.core.attempts import MAX_ENDS, attempt_ends

from ..builders import Board, graph


@pytest.fixture
def board() -> Board:
    return Board()


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
    assert not board.state.attempt_ends


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
    assert not board.state.attempt_ends


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
    assert [task.key for task in board.state.attempt_ends] == ["b", "c"]
