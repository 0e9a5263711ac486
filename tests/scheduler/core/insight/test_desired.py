"""The number of workers that the present work is worth."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight.desired import MAX_SAMPLES, Desired, aim_of, desired_workers
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.records.presence import Members

from ...builders import Board, graph


def desired(board: Board, target_s: float = 0.0) -> Desired:
    return desired_workers(board.state, target_s)


def submit(board: Board, client: int, n: int, name: str = "inc", **options: object) -> list[str]:
    """Let a client submit independent tasks of one function."""
    keys = [f"{name}-{i}" for i in range(n)]
    board.send(client, graph(*keys, function=name, **options))
    board.send(client, m.WantKeys(keys=keys))
    return keys


def learn(board: Board, client: int, worker: int, us: int, name: str = "inc") -> None:
    """Let a function be measured once."""
    board.send(client, graph(f"{name}-measured", function=name))
    board.finish(worker, f"{name}-measured", us=us)


def work(board: Board, *workers: int, seconds: float) -> None:
    """Let time pass in which workers finish nothing."""
    while seconds > 0:
        board.tick(min(seconds, 10.0))
        seconds -= 10.0
        for worker in workers:
            board.send(worker, m.Heartbeat())


def test_an_idle_cluster_desires_no_worker(board):
    assert desired(board).n_workers == 0
    board.worker("w")
    board.client()
    assert desired(board).n_workers == 0


def test_the_first_task_of_an_empty_cluster_desires_one_worker(board):
    submit(board, board.client(), 1)
    assert desired(board).n_workers == 1


def test_long_tasks_desire_a_thread_each_and_short_ones_share_it(board):
    client, worker = board.client(), board.worker("w")
    learn(board, client, worker, us=60_000_000, name="long")
    learn(board, client, worker, us=1_000, name="short")
    submit(board, client, 12, "long")
    assert desired(board).n_workers == 12
    board.send(client, m.ReleaseKeys(keys=[f"long-{i}" for i in range(12)]))
    submit(board, client, 10_000, "short")
    assert desired(board, target_s=5.0).n_workers == 2
    assert desired(board, target_s=1.0).n_workers == 10


def test_the_threads_and_resources_of_a_worker_count(board):
    client = board.client()
    worker = board.worker("w", nthreads=4, resources={"GPU": 2.0})
    learn(board, client, worker, us=60_000_000)
    submit(board, client, 12)
    assert desired(board).n_workers == 3
    board.send(client, m.ReleaseKeys(keys=[f"inc-{i}" for i in range(12)]))
    submit(board, client, 12, resources={"GPU": 1.0})
    assert 6 <= desired(board).n_workers <= 7  # two run beside each other, one of them runs now


def test_an_empty_cluster_expects_workers_like_the_last_one(board):
    client = board.client()
    worker = board.worker("w", nthreads=4)
    learn(board, client, worker, us=60_000_000)
    board.close(worker)
    submit(board, client, 12)
    assert desired(board).n_workers == 3


def test_tasks_that_no_worker_may_run_keep_one_worker_and_ask_for_no_more(board):
    client = board.client()
    submit(board, client, 1000, resources={"GPU": 1.0})
    assert desired(board).n_workers >= 1
    board.worker("w")
    assert desired(board).n_workers == 1
    assert desired(board).n_unrunnable == 1000


def test_a_function_of_unknown_duration_counts_as_long_as_it_has_been_running(board):
    client = board.client()
    worker = board.worker("w")
    submit(board, client, 100)
    assert desired(board).n_workers == 1
    work(board, worker, seconds=1.0)
    assert 15 <= desired(board).n_workers <= 25
    work(board, worker, seconds=30.0)
    assert desired(board).n_workers == 100


def test_tasks_that_were_assigned_before_their_function_was_measured_count_as_measured(board):
    client, worker = board.client(), board.worker("w")
    keys = submit(board, client, 15)
    assert board.states(*keys) == ["processing"] * 15
    board.finish(worker, keys[0], us=5_000_000)
    assert desired(board, target_s=5.0).n_workers == 14


def test_a_running_task_keeps_its_worker_however_short_it_was_expected_to_be(board):
    client = board.client()
    workers = [board.worker(name) for name in "ab"]
    learn(board, client, workers[0], us=1_000)
    submit(board, client, 2)
    work(board, *workers, seconds=60.0)
    assert desired(board).n_workers == 2


def test_functions_that_alternate_in_the_queue_are_both_met(board):
    client, worker = board.client(), board.worker("w")
    learn(board, client, worker, us=10_000_000, name="long")
    learn(board, client, worker, us=1_000, name="short")
    for i in range(200):
        board.send(client, graph(f"a-{i}", function="long"), graph(f"b-{i}", function="short"))
    board.send(client, m.WantKeys(keys=[f"{x}-{i}" for i in range(200) for x in "ab"]))
    assert 120 <= desired(board).n_workers <= 280


def test_the_data_of_the_workers_keeps_as_many_as_hold_it_with_room(board):
    client = board.client()
    worker = board.worker("w", memory_limit=1_000_000_000)
    board.send(client, graph("x"), m.WantKeys(keys=["x"]))
    board.finish(worker, "x", nbytes=100)
    assert desired(board).n_workers == 0, "a small result is not worth a worker"
    board.send(client, graph("y"), m.WantKeys(keys=["y"]))
    board.finish(worker, "y", nbytes=1_500_000_000)
    found = desired(board)
    assert (found.n_workers, found.n_for_data, found.n_for_work) == (3, 3, 0)
    board.send(client, m.ReleaseKeys(keys=["x", "y"]))
    assert desired(board).n_workers == 0


def test_workers_that_are_expected_back_are_desired():
    board = Board(expected=Members(worker_ids=("a", "b", "c")))
    board.client()
    board.worker("a", worker_id="a", last_epoch=3)
    assert desired(board).n_workers == 3


def test_many_classes_are_looked_at_a_little_each(board):
    client, worker = board.client(), board.worker("w", resources={"memory": 1.0})
    learn(board, client, worker, us=60_000_000)
    n = 2 * MAX_SAMPLES
    keys = [f"x-{i}" for i in range(n)]
    rows = [graph(key, resources={"memory": (i + 1) / n}) for i, key in enumerate(keys)]
    board.send(client, *rows, m.WantKeys(keys=keys))
    found = desired(board)
    assert found.n_runnable == n
    # Those of up to a half, a third, ... of the memory can run beside each other.
    assert n // 2 < found.n_workers <= n


def test_cancelled_entries_of_the_queue_do_not_count(board):
    client = board.client()
    worker = board.worker("w")
    learn(board, client, worker, us=60_000_000)
    keys = submit(board, client, 1000)
    board.send(client, m.ReleaseKeys(keys=keys[:-3]))
    assert desired(board).n_workers <= 4


def test_the_question_and_the_metric_state_the_same_number(board):
    aim_of(board.state).target_s = 2.0
    client, worker = board.client(), board.worker("w")
    viewer = board.connect(Role.VIEWER)
    learn(board, client, worker, us=1_000_000)
    submit(board, client, 20)
    (answer,) = board.send(viewer, m.Ask(request=1, name="desired", arguments={}))[viewer]
    assert isinstance(answer, m.Answer)
    assert answer.info["desired_workers"] == metrics(board.state)["desired_workers"] == 10
    assert answer.info["target_s"] == 2.0
    arguments = {"target_s": 1}
    (answer,) = board.send(viewer, m.Ask(request=2, name="desired", arguments=arguments))[viewer]
    assert answer.info["desired_workers"] == 20


@pytest.mark.parametrize("target_s", ["5", -1, float("nan"), 1e30, True])
def test_a_wrong_target_fails(board, target_s):
    viewer = board.connect(Role.VIEWER)
    arguments = {"target_s": target_s}
    (answer,) = board.send(viewer, m.Ask(request=1, name="desired", arguments=arguments))[viewer]
    assert isinstance(answer, m.AskFailed)
    assert "target_s=" in answer.text
