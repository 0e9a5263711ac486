"""assignment.py: the backlog of tasks with resources, and the turns of their classes."""

from __future__ import annotations

import pytest

from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.rotation import LevelTurns
from weft.protocol.wire import messages as m
from weft.scheduler.core.assignment import assignment as passes
from weft.scheduler.core.records.tasks import TaskClass

from ...builders import Board, assigned, assignment, graph

GPU = {"gpu": 1.0}
COUNTS = {QUEUES_RESOURCES: True}


def keys(n: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def learn(board: Board, client: int, worker: int, us: int) -> None:
    """Let a task of the function take this long, and be forgotten."""
    board.send(client, graph("known"))
    board.finish(worker, "known", us=us)
    board.send(client, m.ReleaseKeys(keys=["known"]))
    board.drop_rest()


def free(board: Board, worker: int) -> dict[str, float]:
    return board.state.workers[worker].free_resources


def test_a_worker_that_counts_resources_gets_a_backlog_in_time(board):
    client, worker = board.client(), board.worker(resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    out = board.send(client, graph(*keys(100), resources=GPU))
    assert len(assigned(out, worker)) == 30
    assert assignment(out, worker).function_options == [{"resources": GPU}]
    assert free(board, worker) == {"gpu": -29.0}
    assert board.state.workers[worker].n_behind == 29
    board.drop_rest()


@pytest.mark.parametrize("facts", [{}, {QUEUES_RESOURCES: False}])
def test_a_worker_of_an_earlier_version_gets_what_is_free(board, facts):
    client, worker = board.client(), board.worker(resources=GPU, facts=facts)
    learn(board, client, worker, us=1000)
    out = board.send(client, graph(*keys(5), resources=GPU))
    assert list(assigned(out, worker)) == ["k0"]
    assert free(board, worker) == {"gpu": 0.0}


def test_nothing_waits_behind_a_task_that_takes_a_resource_for_long(board):
    client, worker = board.client(), board.worker(nthreads=8, resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1_000_000)
    out = board.send(client, graph(*keys(5), resources=GPU))
    assert list(assigned(out, worker)) == ["k0"]


def test_nothing_waits_behind_a_task_of_unknown_duration(board):
    client, worker = board.client(), board.worker(nthreads=8, resources=GPU, facts=COUNTS)
    out = board.send(client, graph(*keys(5), resources=GPU))
    assert list(assigned(out, worker)) == ["k0"]
    out = board.finish(worker, "k0", us=1000)
    assert len(assigned(out, worker)) == 4
    board.drop_rest()


def test_nothing_is_assigned_behind_a_resource_that_is_not_given_back_for_a_while(board):
    client, worker = board.client(), board.worker(nthreads=8, resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    board.send(client, graph("a", resources=GPU))
    board.tick(1.0)
    out = board.send(client, graph("b c", resources=GPU, blob=None))
    assert not assigned(out, worker)
    out = board.finish(worker, "a")
    assert list(assigned(out, worker)) == ["b", "c"]
    board.drop_rest()


def test_nothing_waits_behind_a_resource_of_a_task_that_waits_for_others(board):
    client, worker = board.client(), board.worker(resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    board.send(client, graph("parent", resources=GPU))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    out = board.send(client, graph("child", resources=GPU, blob=None))
    assert not assigned(out, worker), "parent has it until others have run, perhaps child"
    other = board.worker("other", resources=GPU, facts=COUNTS)
    assert board.where("child") == other
    board.drop_rest()


def test_a_task_that_waits_without_a_resource_is_no_reason_to_hold_back_others(board):
    client, worker = board.client(), board.worker(resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    board.send(client, graph("parent"))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    out = board.send(client, graph("a b", resources=GPU, blob=None))
    assert list(assigned(out, worker)) == ["a", "b"]
    board.drop_rest()


def test_tasks_that_wait_for_a_resource_hold_no_thread(board):
    client, worker = board.client(), board.worker(nthreads=4, resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    board.send(client, graph(*keys(20), resources=GPU))
    assert board.state.workers[worker].n_busy == 1
    board.tick(1.0)  # the task that runs is much longer than the others were
    out = board.send(client, graph("x y z", blob=None))
    assert list(assigned(out, worker)) == ["x", "y", "z"]
    board.drop_rest()


def test_plenty_of_a_resource_is_as_good_as_none_asked_for():
    sent = []
    for resources in ({}, GPU):
        board = Board()
        client = board.client()
        workers = [board.worker(n, resources={"gpu": 1e6}, facts=COUNTS) for n in "ab"]
        learn(board, client, workers[0], us=10)
        out = board.send(client, graph(*keys(4000), resources=resources))
        sent.append([list(assigned(out, ws)) for ws in workers])
        board.drop_rest()
    assert sent[0] == sent[1]


def test_tasks_that_wait_for_a_resource_are_asked_back_for_an_idle_worker_that_has_it(board):
    client = board.client()
    busy = board.worker("busy", nthreads=4, resources=GPU, facts=COUNTS)
    learn(board, client, busy, us=1000)
    board.send(client, graph(*keys(9), resources=GPU))
    board.tick(1.0)
    board.worker("other")
    assert busy not in board.tick(1.0), "it has none of it"
    able = board.worker("able", resources=GPU, facts=COUNTS)
    board.tick(1.0)
    assert board.out[busy] == [m.ReturnAttempts(count=4)]
    attempts = [board.attempt(key) for key in keys(9)[5:]]
    out = board.send(busy, m.AttemptsReturned(attempts=attempts))
    assert list(assigned(out, able)) == ["k5", "k6", "k7", "k8"]
    board.drop_rest()


def test_a_large_task_behind_a_small_one_is_asked_back(board):
    client = board.client()
    busy = board.worker("busy", nthreads=4, resources={"mem": 8.0}, facts=COUNTS)
    learn(board, client, busy, us=1000)
    board.send(client, graph("small", resources={"mem": 1.0}))
    board.send(client, graph("large", resources={"mem": 8.0}, blob=None))
    assert (board.state.workers[busy].n_behind, free(board, busy)) == (1, {"mem": -1.0})
    able = board.worker("able", resources={"mem": 8.0}, facts=COUNTS)
    board.tick(1.0)
    assert board.out[busy] == [m.ReturnAttempts(count=1)]
    out = board.send(busy, m.AttemptsReturned(attempts=[board.attempt("large")]))
    assert list(assigned(out, able)) == ["large"]
    board.drop_rest()


def test_nothing_is_assigned_behind_a_resource_of_a_task_that_waits(board):
    client = board.client()
    busy = board.worker("busy", nthreads=4, resources={"mem": 8.0, "gpu": 1.0}, facts=COUNTS)
    learn(board, client, busy, us=1000)
    board.send(client, graph("input"), graph("parent", resources={"mem": 1.0}, blob=None))
    board.finish(busy, "input")
    board.send(busy, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    able = board.worker("able", resources={"mem": 8.0}, facts=COUNTS)
    out = board.send(client, graph("input -> large", resources={"mem": 8.0}, blob=None))
    assert list(assigned(out, able)) == ["large"], "its input is elsewhere"
    out = board.send(client, graph("other", resources={"mem": 8.0}, blob=None))
    assert not assigned(out, busy)
    out = board.send(client, graph("a b", resources=GPU, blob=None))
    assert list(assigned(out, busy)) == ["a", "b"], "of this nothing is held by one that waits"
    board.drop_rest()


def test_a_backlog_behind_a_resource_is_asked_back_when_a_task_keeps_it_that_waits(board):
    client = board.client()
    worker = board.worker(resources={"mem": 1.0}, facts=COUNTS)
    learn(board, client, worker, us=1000)
    mem = {"mem": 1.0}
    board.send(client, graph("parent", resources=mem), graph("next", resources=mem, blob=None))
    board.send(client, graph("next -> reader", blob=None))
    attempts = [board.attempt("reader"), board.attempt("next")]
    assert all(attempts)
    out = board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    assert out[worker] == [m.WithdrawAttempts(attempts=attempts)]
    board.send(worker, m.AttemptsWithdrawn(attempts=attempts, started=[]))
    assert board.states("next", "reader") == ["queued", "waiting"]
    out = board.send(client, graph("child", blob=None))
    assert list(assigned(out, worker)) == ["child"], "its thread is free"
    board.drop_rest()


def test_a_dropped_task_has_its_resources_until_its_worker_reports_its_end(board):
    client, worker = board.client(), board.worker(resources=GPU, facts=COUNTS)
    learn(board, client, worker, us=1000)
    board.send(client, graph("a b", resources=GPU))
    attempt = board.attempt("a")
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert free(board, worker) == {"gpu": -1.0}
    board.send(worker, m.AttemptsEnded(attempts=[attempt], ends=[]))
    assert free(board, worker) == {"gpu": 0.0}
    board.drop_rest()


def test_a_pass_visits_some_of_the_classes_and_the_next_ones_the_others(board, monkeypatch):
    monkeypatch.setattr(passes, "MAX_ASKING", 2)
    client = board.client()
    rows = [graph(f"k{i}", resources={"mem": 5.0 + i}, blob=b"p") for i in range(6)]
    board.send(client, *rows)
    board.worker(resources={"mem": 10.0})
    assert board.task("k0").worker is not None
    assert board.state.takers, "there may be one that fits beside it"
    board.tick(0.01)
    assert not board.state.takers
    board.send(client, graph("small", resources={"mem": 2.0}, blob=None))
    board.tick(0.005)
    assert board.task("small").worker is not None


def test_a_class_of_a_better_priority_is_visited_first(board, monkeypatch):
    monkeypatch.setattr(passes, "MAX_ASKING", 1)
    client = board.client()
    rows = [graph(f"k{i}", resources={"mem": 6.0 + i}, blob=b"p") for i in range(3)]
    board.send(client, *rows, graph("first", resources={"mem": 9.5}, priority=5, blob=None))
    board.worker(resources={"mem": 10.0})
    assert board.states("first", "k0") == ["processing", "queued"]


def test_an_item_that_had_its_turn_is_the_last_of_its_level():
    turns: LevelTurns[TaskClass] = LevelTurns()
    a, b, c, d = (TaskClass((name,), (), False, ()) for name in "abcd")
    for item, level in ((a, 1), (b, 0), (c, 1), (d, 1)):
        turns.put(item, level)
    assert [*turns] == [b, a, c, d]
    since = turns.n_turns
    turns.put(a, 1)
    assert [*turns] == [b, c, d, a]
    assert [*turns.waiting(since)] == [b, c, d]
    turns.put(d, 0)
    assert [*turns] == [b, d, c, a]
    assert (len(turns), turns.first_turn) == (4, 2)
    turns.validate()
    for item in (a, b, c, d, d):
        turns.remove(item)
        turns.validate()
    assert not turns
    assert a not in turns
