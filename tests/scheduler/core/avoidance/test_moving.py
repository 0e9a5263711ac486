"""moving.py: tasks that ask for another worker, or are to try another one."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.avoidance.moving import MAX_LEFT, N_AT_ONCE
from weft.scheduler.core.recovery.barrier import QUIET_S

from ...builders import Board, assignment, graph


def reschedule(board: Board, peer: int, key: str) -> None:
    board.send(
        peer,
        m.AttemptsErred(
            attempts=[board.attempt(key)],
            durations_us=[1000],
            failures=[["reschedule", key, "too warm"]],
        ),
    )


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
    assert len(board.task("a").group.task_class.avoided) <= MAX_LEFT


def test_a_task_avoids_the_last_workers_on_which_it_asked_for_another(board):
    client = board.client()
    for i in range(MAX_LEFT + 2):
        board.worker(f"w{i}")
    board.send(client, graph("a"))
    asked = []
    for _ in range(MAX_LEFT + 1):
        while board.states("a") == ["no_worker"]:
            board.tick(0.5)
        asked.append(board.task("a").worker.worker_id)
        reschedule(board, board.where("a"), "a")
    assert len({*asked}) == MAX_LEFT + 1
    assert board.task("a").group.task_class.avoided.left == tuple(asked[-MAX_LEFT:])


def test_a_worker_that_is_asked_twice_is_avoided_as_one(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    reschedule(board, worker, "a")
    reschedule(board, worker, "a")
    assert board.task("a").group.task_class.avoided.left == ("id of w",)


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
