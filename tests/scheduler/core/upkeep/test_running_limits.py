"""running_limits.py: no more tasks of a user run at a time than may."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, graph
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.insight.metrics import count_unrunnable
from weft.scheduler.core.upkeep import running_limits
from weft.scheduler.core.upkeep.running_limits import note_lock_wait, running_limits_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of


@pytest.fixture
def board() -> Board:
    """A board on which two tasks of a user may run at a time."""
    board = Board()
    user_limits_of(board.state).max_running = 2
    return board


def assigned(board: Board, worker: int) -> list[str]:
    """Return the keys that the last event has assigned to a worker."""
    return [key for message in board.out.of(worker, m.AssignTasks) for key in message.keys]


def test_tasks_beyond_the_limit_wait_until_others_end_and_run_by_priority(board):
    worker, ann = board.worker(nthreads=8), board.client("ann", user="ann")
    board.send(ann, graph("a b c d"), graph("e", priority=1))
    assert assigned(board, worker) == ["a", "b"]
    assert board.states(*"abcde") == ["processing"] * 2 + ["no_worker"] * 3
    board.finish(worker, "a")
    assert assigned(board, worker) == ["e"]
    board.raise_(worker, "b")
    assert assigned(board, worker) == ["c"]
    board.send(ann, m.CancelKeys(keys=["c", "d"], force=False, reason=""))
    board.finish(worker, "e")
    assert running_limits_of(board.state) == {}
    board.drop_rest()


def test_the_limit_is_that_of_all_clients_of_a_user_and_others_run(board):
    worker = board.worker(nthreads=8)
    first, second = board.client("a", user="ann"), board.client("b", user="ann")
    bob, carol = board.client("bob", user="bob"), board.client("carol")
    user_limits_of(board.state).of_users = {"dan": {"running": 0}, "eve": {"running": 3}}
    dan, eve = board.client("dan", user="dan"), board.client("eve", user="eve")
    sent = {}
    for peer, keys in {
        first: "a0", second: "a1 a2", bob: "b0 b1 b2", carol: "c0 c1 c2", dan: "d0 d1 d2",
        eve: "e0 e1 e2 e3",
    }.items():  # fmt: skip
        board.send(peer, graph(keys))
        sent[peer] = assigned(board, worker)
    assert [*sent.values()] == [
        ["a0"], ["a1"], ["b0", "b1"], ["c0", "c1"], ["d0", "d1", "d2"], ["e0", "e1", "e2"],
    ]  # fmt: skip


def test_a_task_that_is_held_back_says_so(board):
    worker, ann = board.worker(), board.client("ann", user="ann")
    board.send(ann, graph("a b c"))
    assert assigned(board, worker) == ["a", "b"]
    ((_, kind, text),) = explain(board.state, board.state.tasks["c"])["steps"]
    assert kind == "no_worker"
    assert text == (
        "2 tasks of user ann may run or run now, and scheduler.user-running is 2; it is one of 1 "
        "that wait until others end"
    )
    assert count_unrunnable(board.state)["held"] == 1


def test_a_task_that_waits_for_others_does_not_hold_them_back(board):
    user_limits_of(board.state).max_running = 1
    worker, ann = board.worker(nthreads=2), board.client("ann", user="ann")
    board.send(ann, graph("parent"))
    in_task = board.client("t", worker_id="id of w")
    attempt = board.attempt("parent")
    board.send(in_task, graph("child", attempt=attempt))
    assert board.states("child") == ["no_worker"]
    board.send(worker, m.AttemptsBlocked(attempts=[attempt], keys=[["child"]]))
    assert board.states("child") == ["processing"]
    board.drop_rest()


ALL, SOME = {"mem": 8.0}, {"mem": 1.0}
COUNTS = {QUEUES_RESOURCES: True}


def block(board: Board, worker: int, key: str, *keys: str) -> int:
    """Let a task wait for others; return its attempt."""
    attempt = board.attempt(key)
    board.send(worker, m.AttemptsBlocked(attempts=[attempt], keys=[list(keys)]))
    return attempt


def test_a_task_that_cannot_begin_does_not_hold_back_one_that_another_waits_for(board):
    user_limits_of(board.state).max_running = 1
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann = board.client("a", user="ann")
    board.send(ann, graph("parent", resources=SOME))
    board.send(ann, graph("large", resources=ALL, blob=None), graph("later", blob=None))
    in_task = board.client("t", worker_id="id of w")
    attempt = block(board, worker, "parent", "child")
    assert board.states("large", "later") == ["queued", "no_worker"]
    board.send(in_task, graph("input input2 -> child", attempt=attempt, blob=None))
    assert board.states("input", "input2", "later") == ["processing", "no_worker", "no_worker"]
    board.finish(worker, "input")
    assert board.states("input2", "child", "later") == ["processing", "waiting", "no_worker"]
    board.finish(worker, "input2")
    assert board.states("child", "later") == ["processing", "no_worker"]
    board.finish(worker, "child")
    board.finish(worker, "parent")
    assert board.states("large", "later") == ["processing", "no_worker"]
    board.drop_rest()


def test_a_task_behind_one_that_waits_does_not_hold_back_what_that_waits_for(board):
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann = board.client("a", user="ann")
    board.send(ann, graph("known"))
    board.finish(worker, "known", us=1000)
    board.send(ann, graph("parent", resources=SOME, blob=None))
    board.send(ann, graph("large larger", resources=ALL, blob=None))
    in_task = board.client("t", worker_id="id of w")
    attempt = block(board, worker, "parent", "child")
    assert board.states("large", "larger") == ["processing", "queued"]
    board.send(in_task, graph("child", attempt=attempt, blob=None))
    assert board.states("child") == ["processing"]
    board.drop_rest()


def test_a_task_of_another_user_may_wait_for_what_is_held_back(board):
    user_limits_of(board.state).max_running = 1
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann, bob = board.client("a", user="ann"), board.client("b", user="bob")
    board.send(bob, graph("parent", resources=SOME))
    board.send(ann, graph("large", resources=ALL, blob=None), graph("child later", blob=None))
    assert board.states("large", "child") == ["queued", "no_worker"]
    block(board, worker, "parent", "child")
    assert board.states("large", "child", "later") == ["queued", "processing", "no_worker"]
    board.drop_rest()


def test_a_task_that_needs_what_one_at_a_lock_holds_does_not_hold_back_a_child(board):
    user_limits_of(board.state).max_running = 1
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann = board.client("a", user="ann")
    board.send(ann, graph("parent"))
    attempt = block(board, worker, "parent", "child")
    board.send(ann, graph("at_lock", resources=SOME, blob=None))
    note_lock_wait(board.state, board.task("at_lock"), is_over=False)
    board.send(ann, graph("large", resources=ALL, blob=None))
    board.send(board.client("t", worker_id="id of w"), graph("child", attempt=attempt, blob=None))
    assert board.states("large", "child") == ["queued", "processing"]
    board.drop_rest()


@pytest.mark.parametrize("waits", ["ann", "bob"])
def test_a_child_that_is_to_run_again_is_not_held_back(board, waits):
    user_limits_of(board.state).max_running = 1
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann, other = board.client("a", user="ann"), board.client("b", user=waits)
    board.send(other, graph("parent", resources=SOME))
    block(board, worker, "parent", "child")
    board.send(ann, graph("child", retries=1, pauses=[5.0, 1.0, 5.0, 0.0], blob=None))
    board.send(ann, graph("large", resources=ALL, blob=None))
    board.raise_(worker, "child")
    assert board.states("large", "child") == ["queued", "no_worker"]
    board.tick(6.0)
    assert board.states("large", "child") == ["queued", "processing"]
    board.drop_rest()


def test_a_task_that_can_begin_soon_goes_before_one_that_another_waits_for(board):
    user_limits_of(board.state).max_running = 1
    worker = board.worker(nthreads=2, resources=ALL, facts=COUNTS)
    ann = board.client("a", user="ann")
    board.send(ann, graph("parent"))
    bob = board.client("b", user="bob")
    board.send(bob, graph("other", resources=SOME))
    board.send(ann, graph("large", resources=ALL, blob=None))
    attempt = block(board, worker, "parent", "child")
    board.send(board.client("t", worker_id="id of w"), graph("child", attempt=attempt, blob=None))
    assert board.states("large", "child") == ["queued", "no_worker"]
    board.finish(worker, "other")
    board.finish(worker, "large")
    assert board.states("child") == ["processing"]
    board.drop_rest()


def test_inputs_and_workers_that_come_and_go_pass_by_no_limit(board):
    ann = board.client("ann", user="ann")
    board.send(ann, graph("a -> b", "a -> c", "a -> d"))
    first = board.worker("first")
    assert board.states(*"abcd") == ["processing", "waiting", "waiting", "waiting"]
    board.finish(first, "a")
    assert board.states(*"bcd") == ["processing", "processing", "no_worker"]
    second = board.worker("second", nthreads=4)
    assert board.states(*"bcd") == ["processing", "processing", "no_worker"]
    board.close(first)
    assert board.states(*"abcd") == ["processing", "waiting", "waiting", "waiting"]
    board.finish(second, "a")
    assert board.states(*"bcd") == ["processing", "processing", "no_worker"]
    board.close(second)
    assert board.states("a") == ["no_worker"]
    board.drop_rest()


def test_a_pause_before_a_retry_makes_room(board):
    worker, ann = board.worker(nthreads=8), board.client("ann", user="ann")
    user_limits_of(board.state).max_running = 1
    board.send(ann, graph("a b", retries=1, pauses=[5.0, 1.0, 5.0, 0.0]))
    board.send(ann, graph("c"))
    board.raise_(worker, "a")
    assert board.states(*"abc") == ["no_worker", "processing", "no_worker"]
    board.tick(6.0)
    assert board.states(*"abc") == ["no_worker", "processing", "no_worker"]
    board.finish(worker, "b")
    assert board.states(*"ac") == ["processing", "no_worker"]
    board.drop_rest()


def test_a_pass_looks_at_the_tasks_that_have_moved_only(board, monkeypatch):
    looked = []
    count = running_limits._count
    monkeypatch.setattr(
        running_limits, "_count", lambda row, task: (looked.append(task.key), count(row, task))
    )
    user_limits_of(board.state).max_running = 50
    worker = board.worker(nthreads=100)
    ann, bob = board.client("ann", user="ann"), board.client("bob", user="bob")
    board.send(ann, graph(" ".join(f"a{i}" for i in range(60))))
    board.send(bob, graph("b0 b1"))
    looked.clear()
    board.finish(worker, "b0")
    assert looked == ["b0"]
    looked.clear()
    board.finish(worker, "a0")
    assert looked == ["a0", "a50"]


def test_a_task_that_goes_on_counts_again(board):
    worker, ann = board.worker(nthreads=8), board.client("ann", user="ann")
    user_limits_of(board.state).max_running = 1
    board.send(ann, graph("parent"))
    attempts = [board.attempt("parent")]
    board.send(worker, m.AttemptsBlocked(attempts=attempts, keys=[["x"]]))
    board.send(worker, m.AttemptsResumed(attempts=attempts))
    board.send(ann, graph("a b"))
    assert board.states("a", "b") == ["no_worker", "no_worker"]
    board.send(worker, m.AttemptsBlocked(attempts=attempts, keys=[["x"]]))
    assert board.states("a", "b") == ["processing", "no_worker"]
    board.finish(worker, "parent")
    assert board.states("a", "b") == ["processing", "no_worker"]
    board.raise_(worker, "a")
    assert board.states("b") == ["processing"]
    board.drop_rest()


def test_records_of_tasks_that_were_cancelled_while_held_are_dropped(board):
    board.worker(nthreads=8)
    ann = board.client("ann", user="ann")
    board.send(ann, graph("a b", "late"), graph("soon", priority=1))
    (row,) = running_limits_of(board.state).values()
    for i in range(20):
        keys = [f"x{i}-{j}" for j in range(20)]
        board.send(ann, graph(" ".join(keys)))
        board.send(ann, m.CancelKeys(keys=keys, force=False, reason=""))
        assert len(row._heap) <= 2 * len(row.held) + running_limits.MAX_DEAD
    assert [row.first().key, row.first().key, row.first()] == ["soon", "late", None]
    board.drop_rest()
