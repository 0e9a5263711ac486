"""All tasks of a gang are assigned at one moment, each to a place of its own, or none is."""

from __future__ import annotations

import pytest

from weft.protocol.amounts import BESIDE, CORES
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import FIXED
from weft.scheduler.core.assignment.asking_back import LEAST_WAIT_S
from weft.scheduler.core.gangs.records import KEEP_S, Gangs, gangs_of
from weft.scheduler.core.gangs.seating import FEW, LOOK_COST_S, MAX_GANGS, PATIENCE_S
from weft.scheduler.core.insight.desired import desired_workers
from weft.scheduler.core.insight.explaining import why
from weft.scheduler.core.upkeep.running_limits import running_limits_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import Board, assigned, finished, graph
from .builders import gang, seats_of, worker


def test_all_are_assigned_at_one_moment_with_their_places(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    run = f"g-{board.state.next_attempt}"
    out = board.send(client, *gang("g", 2))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    assert {board.where("g-0"), board.where("g-1")} == {a, b}
    first = board.task("g-0").worker
    second = board.task("g-1").worker
    assert first is not None
    assert second is not None
    places = [first.address, second.address]
    assert seats_of(out, board.where("g-0")) == [[run, "0", *places]]
    assert seats_of(out, board.where("g-1")) == [[run, "1", *places]]
    assert board.rest() == []


def test_none_begins_while_there_is_not_room_for_all(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, graph("x", function="other"))
    out = board.send(client, *gang("g", 2))
    assert out == {}
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    out = board.finish(a, "x")
    assert sorted(assigned(out, a)) == ["g-0", "g-1"]
    assert board.rest() == ["ResultsReady"]


def test_members_that_come_one_after_the_other_wait_for_the_last(board):
    client, a = board.client(), worker(board, "a", nthreads=3)
    messages = gang("g", 3)
    board.send(client, messages[0])
    board.send(client, messages[1])
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    text, *_ = why(board.state, board.task("g-0"))
    assert text == "it waits for the other tasks of its gang: 2 of 3 are known"
    out = board.send(client, messages[2])
    assert sorted(assigned(out, a)) == ["g-0", "g-1", "g-2"]


def test_ranks_follow_each_other_on_the_workers_with_most_room(board):
    client = board.client()
    small, large = worker(board, "small"), worker(board, "large", nthreads=3)
    board.send(client, *gang("g", 4))
    assert [board.where(f"g-{i}") for i in range(4)] == [large, large, large, small]
    board.drop_rest()


def test_members_wait_for_their_inputs(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, graph("x"))
    board.send(client, *gang("g", 2, inputs="x"))
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    out = board.finish(a, "x")
    assert sorted(assigned(out, a)) == ["g-0", "g-1"]
    board.drop_rest()


def test_conditions_come_before_places(board):
    client, a = board.client(), worker(board, "a", nthreads=3)
    board.send(client, graph("x"))
    board.send(client, *gang("g", 2, conditions=[["done", "x"]]))
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    out = board.finish(a, "x")
    assert sorted(assigned(out, a)) == ["g-0", "g-1"]
    board.drop_rest()


@pytest.mark.parametrize(
    ("resources", "n_fitting"),
    [({CORES: 2}, 2), ({CORES: 0.5}, 8), ({CORES: 1, "GPU": 1}, 3), ({BESIDE: 1}, 100)],
)
def test_as_many_members_fit_as_their_amounts_say(board, resources, n_fitting):
    client = board.client()
    worker(board, "a", nthreads=4, resources={"GPU": 3})
    board.send(client, *gang("g", n_fitting, resources=resources))
    assert {*board.states(*(f"g-{i}" for i in range(n_fitting)))} == {"processing"}
    board.send(client, m.ReleaseKeys(keys=[f"g-{i}" for i in range(n_fitting)]))
    board.drop_rest()
    other = Board()
    client = other.client()
    worker(other, "a", nthreads=4, resources={"GPU": 3})
    other.send(client, *gang("g", n_fitting + 1, resources=resources))
    assert {*other.states(*(f"g-{i}" for i in range(n_fitting + 1)))} == {"no_worker"}
    other.drop_rest()


def test_threads_without_cores_count_too(board):
    """Plain tasks hold threads, but no cores of the table of amounts."""
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, graph("x", function="other"))
    board.send(client, *gang("g", 1), *gang("h", 1))
    assert board.states("g-0", "h-0") == ["processing", "waiting"]
    board.finish(a, "x")
    assert board.states("h-0") == ["processing"]
    board.drop_rest()


def test_dropped_tasks_that_still_run_hold_their_places(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, graph("x", function="other"))
    attempt = board.attempt("x")
    board.send(client, m.ReleaseKeys(keys=["x"]))
    board.send(client, *gang("g", 2))
    assert board.states("g-0") == ["waiting"]
    board.send(a, m.AttemptsEnded(attempts=[attempt]))
    assert board.states("g-0", "g-1") == ["processing", "processing"]
    board.drop_rest()


# -- too large -------------------------------------------------------------------------------------
def test_a_gang_that_is_too_large_is_set_aside_and_its_client_is_told(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, *gang("g", 3))
    assert board.states("g-0", "g-1", "g-2") == ["no_worker"] * 3
    out = board.tick(board.state.settings.unrunnable_after_s)
    (notice,) = out.of(client, m.KeysUnrunnable)
    assert notice.keys == ["g-0", "g-1", "g-2"]
    assert notice.reason == (
        "the workers cannot run all 3 tasks of a gang (cores: 1 each) at the same time: they hold "
        "2 (1 worker connected)"
    )
    assert desired_workers(board.state).n_workers == 2
    b = worker(board, "b")
    assert [board.where(f"g-{i}") for i in range(3)] == [a, a, b]
    board.drop_rest()


def test_a_gang_waits_again_when_a_worker_it_needs_is_gone(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    board.send(client, graph("x", function="other"))
    board.send(client, *gang("g", 2))
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    board.close(a if board.where("x") == b else b)
    assert board.states("g-0", "g-1") == ["no_worker", "no_worker"]
    worker(board, "c")
    assert board.states("g-0", "g-1") == ["waiting", "waiting"]
    board.drop_rest()


def test_a_time_limit_for_workers_counts(board):
    client, _ = board.client(), worker(board, "a")
    board.send(client, *gang("g", 2, no_worker_ms=5000))
    out = board.tick(10.0)
    failures = [f for message in out.of(client, m.KeysErred) for f in message.failures]
    assert [failure[0] for failure in failures] == ["no-worker", "no-worker"]
    assert "cannot run all 2 tasks of a gang" in failures[0][3]
    assert len(out.of(client, m.KeysUnrunnable)) == 1
    board.drop_rest()


def test_restrictions_hold_for_all(board):
    client = board.client()
    worker(board, "a", nthreads=4)
    b = worker(board, "b", nthreads=2)
    board.send(client, *gang("g", 2, workers=["b"]))
    assert [board.where(f"g-{i}") for i in range(2)] == [b, b]
    board.send(client, *gang("h", 3, workers=["b"]))
    assert board.states("h-0") == ["no_worker"]
    board.send(client, *gang("i", 3, workers=["b"], allow_other_workers=True))
    assert board.states("i-0") == ["processing"]
    board.drop_rest()


def test_many_gangs_that_are_too_large_stop_no_other(board):
    client, _ = board.client(), worker(board, "a", nthreads=4)
    for i in range(MAX_GANGS):
        board.send(client, *gang(f"big{i}", 9))
    board.send(client, *gang("small", 2))
    assert board.states("small-0", "small-1") == ["processing"] * 2
    assert len(gangs_of(board.state).too_large) == MAX_GANGS
    worker(board, "b", nthreads=9)
    assert not {*board.states(*(f"big0-{i}" for i in range(9)))} - {"processing"}
    board.drop_rest()


def test_each_of_many_gangs_that_wait_has_its_turn(board):
    """Those that wait for one worker are no reason that one waits for another."""
    client, a = board.client(), worker(board, "a", nthreads=2)
    worker(board, "b")
    board.send(client, graph("x", function="other", workers=["a"]))
    for i in range(3 * MAX_GANGS):
        board.send(client, *gang(f"wide{i}", 2, workers=["a"]))
    board.send(client, graph("y", function="other", workers=["b"]))
    board.send(client, *gang("last", 1, workers=["b"]))
    assert board.states("wide0-0", "last-0") == ["waiting", "waiting"]
    board.finish(board.where("y"), "y")
    board.tick(1.0)
    assert board.states("wide0-0", "last-0") == ["waiting", "processing"]
    board.finish(a, "x")
    board.tick(1.0)
    assert board.states("wide0-0") == ["processing"]
    board.drop_rest()


# -- limits of users -------------------------------------------------------------------------------
def test_all_members_count_against_the_limit_of_their_user(board):
    user_limits_of(board.state).max_running = 3
    client, a = board.client(user="ann"), worker(board, "a", nthreads=8)
    board.send(client, graph("x", "y", function="other"))
    board.send(client, *gang("g", 2))
    assert board.states("x", "y", "g-0", "g-1") == ["processing"] * 2 + ["waiting"] * 2
    text, *_ = why(board.state, board.task("g-0"))
    assert text == "it waits for other tasks of its user to end, of which 3 may run at a time"
    board.finish(a, "x")
    assert board.states("g-0", "g-1") == ["processing"] * 2
    board.send(client, graph("z", function="other"))
    assert board.states("z") == ["no_worker"]
    board.finish(a, "g-0")
    assert board.states("z") == ["processing"]
    board.finish(a, "g-1", "y", "z")
    assert not running_limits_of(board.state)
    board.drop_rest()


def test_a_gang_beyond_the_limit_of_its_user_fails(board):
    user_limits_of(board.state).max_running = 2
    client, _ = board.client(user="ann"), worker(board, "a", nthreads=8)
    out = board.send(client, *gang("g", 3))
    failures = [f for message in out.of(client, m.KeysErred) for f in message.failures]
    assert [f[:5] for f in failures] == [
        ["user-limit", f"g-{i}", "ann", "user-running", 2] for i in range(3)
    ]
    assert board.states("g-0") == ["erred"]
    board.drop_rest()


# -- keeping ---------------------------------------------------------------------------------------
def keep_busy(board: Board, client: int, *workers: int) -> None:
    """Let each worker have a task on each thread, and one behind it."""
    n = sum(board.state.workers[ws].nthreads for ws in workers)
    board.send(client, graph(*(f"x{i}" for i in range(n)), function="other"))


def test_workers_are_kept_for_a_gang_that_has_waited(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    keep_busy(board, client, a, b)
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    gangs = gangs_of(board.state)
    assert {ws.name for ws in gangs.kept} == {"a", "b"}
    out = board.send(client, graph("late", function="other"))
    assert out.of(a, m.AssignTasks) == out.of(b, m.AssignTasks) == []
    text, details, _ = why(board.state, board.task("g-0"))
    assert text.startswith("it waits for 2 places at one moment, for all of its gang; there are 0")
    assert details[-1] == "kept for it, and given nothing else: a, b"
    out = board.finish(board.where("x0"), "x0")
    assert board.states("g-0", "late") == ["waiting", "queued"]
    board.finish(board.where("x1"), "x1")
    assert board.states("g-0", "g-1", "late") == ["processing"] * 3
    assert not gangs.kept
    assert gangs.kept_for is None
    board.drop_rest()


def test_one_gang_at_a_time_has_workers_kept_best_and_oldest_first(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    keep_busy(board, client, a, b)
    board.send(client, *gang("old", 2))
    board.send(client, *gang("new", 2))
    board.send(client, *gang("urgent", 2, priority=5))
    board.tick(PATIENCE_S + 0.1)
    kept_for = gangs_of(board.state).kept_for
    assert kept_for is not None
    assert kept_for.name == "urgent"
    details = why(board.state, board.task("old-0")).details
    assert details[-1] == "workers are kept for gang urgent, which comes first"
    order = []
    for _ in range(3):
        for ws in (a, b):
            running = [t.attempt for t in board.state.workers[ws].processing.values()]
            board.send(ws, finished(running))
        board.tick(PATIENCE_S + 0.1)
        (name,) = {key.split("-")[0] for ws in (a, b) for key in keys_at(board, ws)}
        order.append(name)
    assert order == ["urgent", "old", "new"]
    board.drop_rest()


def keys_at(board: Board, peer: int) -> list[str]:
    return [task.key for task in board.state.workers[peer].processing.values()]


def test_workers_are_kept_for_a_gang_behind_one_for_which_none_can_be(board):
    client, a, b = board.client(), worker(board, "a", nthreads=2), worker(board, "b", nthreads=2)
    keep_busy(board, client, a, b)
    pause(board, b)
    board.send(client, *gang("large", 4))
    board.send(client, *gang("small", 2))
    board.tick(PATIENCE_S + 0.1)
    kept_for = gangs_of(board.state).kept_for
    assert kept_for is not None
    assert kept_for.name == "small"
    for key in keys_at(board, a):
        board.finish(a, key)
    assert board.states("small-0", "large-0") == ["processing", "waiting"]
    board.drop_rest()


def test_a_small_gang_begins_while_a_large_one_waits(board):
    client = board.client()
    worker(board, "a")
    worker(board, "b", nthreads=2)
    board.send(client, graph("x", "y", "z", function="other"))
    board.send(client, *gang("large", 3))
    board.send(client, *gang("small", 1))
    board.finish(board.where("x"), "x")
    assert board.states("large-0", "small-0") == ["waiting", "processing"]
    board.drop_rest()


def test_kept_workers_are_open_again_when_the_gang_is_cancelled(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    keep_busy(board, client, a, b)
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    board.send(client, graph("late", function="other"))
    assert gangs_of(board.state).kept
    board.send(client, m.CancelKeys(keys=["g-1"], force=False, reason=""))
    assert board.states("g-0", "g-1") == ["-", "-"]
    assert not gangs_of(board.state).kept
    board.finish(board.where("x0"), "x0")
    assert board.states("late") == ["processing"]
    board.drop_rest()


def test_a_kept_worker_that_is_gone_is_replaced(board):
    client, a, b = board.client(), worker(board, "a"), worker(board, "b")
    c = worker(board, "c")
    keep_busy(board, client, a, b, c)
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    gone = next(iter(gangs_of(board.state).kept))
    board.close(gone.peer)
    assert gone not in gangs_of(board.state).kept
    assert len(gangs_of(board.state).kept) == 2
    board.drop_rest()


def test_a_worker_whose_amounts_are_held_by_what_waits_is_not_kept(board):
    client = board.client()
    worker(board, "a")
    worker(board, "b")
    board.send(client, graph("x", "y", function="other", resources={CORES: 1, BESIDE: 0}))
    waiting = board.attempt("x")
    board.send(board.where("x"), m.AttemptsBlocked(attempts=[waiting]))
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    assert not gangs_of(board.state).kept
    board.send(client, graph("needed", function="other"))
    assert board.states("needed") == ["processing"]  # what waits may wait for this
    board.drop_rest()


def test_a_kept_worker_is_open_again_when_a_task_there_begins_to_wait(board):
    """What the attempt waits for may be a task that only this worker can run."""
    client, a = board.client(), worker(board, "a", nthreads=4, resources={"GPU": 2})
    board.send(client, graph("parent", function="p", resources={"GPU": 1}))
    board.send(client, *gang("g", 2, resources={"GPU": 1, CORES: 1}))
    board.tick(PATIENCE_S + 0.1)
    assert gangs_of(board.state).kept
    board.send(client, graph("child", function="other"))
    assert board.states("child") == ["queued"]
    board.send(a, m.AttemptsBlocked(attempts=[board.attempt("parent")]))
    board.tick(0.1)
    assert board.states("child") == ["processing"]
    assert not gangs_of(board.state).kept
    board.finish(a, "child")
    board.send(a, m.AttemptsResumed(attempts=[board.attempt("parent")]))
    board.finish(a, "parent")
    assert board.states("g-0", "g-1") == ["processing"] * 2
    board.drop_rest()


def test_a_kept_worker_that_is_paused_is_replaced(board):
    client, workers = board.client(), [worker(board, name) for name in "abc"]
    keep_busy(board, client, *workers)
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    gangs = gangs_of(board.state)
    paused, free = gangs.kept
    (other,) = [ws for ws in board.state.workers.values() if ws not in gangs.kept]
    board.finish(free.peer, *(task.key for task in free.processing.values()))
    pause(board, paused.peer)
    board.tick(0.1)
    assert {*gangs.kept} == {free, other}
    board.finish(other.peer, *(task.key for task in other.processing.values()))
    assert board.states("g-0", "g-1") == ["processing"] * 2
    board.drop_rest()


def pause(board: Board, peer: int) -> None:
    """Let a worker report that it uses too much memory."""
    amounts = dict.fromkeys(("n_records", "n_ready", "managed_nbytes", "resident_nbytes"), 0)
    board.send(peer, m.WorkerStatus(state="paused", nthreads=1, cpu_percent=0, **amounts))


def pass_time(board: Board, seconds: float, *peers: int) -> None:
    """Let time pass in which peers are heard of."""
    end = board.now + seconds
    while board.now < end:
        for peer in peers:
            board.send(peer, m.Heartbeat())
        board.tick(min(1.0, end - board.now))


def test_workers_are_kept_for_a_limited_time_and_then_open_for_as_long(board):
    """An attempt may wait for a task without the scheduler's knowledge."""
    client, a = board.client(), worker(board, "a", nthreads=2)
    gangs = gangs_of(board.state)
    board.send(client, graph("x", function="other"))
    board.send(client, *gang("g", 2))
    board.tick(PATIENCE_S + 0.1)
    for key, wait_s in (("y", KEEP_S), ("z", 2 * KEEP_S)):
        assert gangs.kept
        board.send(client, graph(key, function="other"))
        pass_time(board, wait_s - 0.5, client, a)
        assert board.states(key) == ["queued"]
        pass_time(board, 1.0, client, a)
        assert board.states(key) == ["processing"]
        assert not gangs.kept
        board.finish(a, key)
        pass_time(board, wait_s - 1.0, client, a)
        assert not gangs.kept
        pass_time(board, 0.5, client, a)
    assert gangs.kept
    board.finish(a, "x")
    assert board.states("g-0", "g-1") == ["processing"] * 2
    board.drop_rest()


def test_looks_take_a_bounded_share_of_the_time(board):
    """Without that, each event of anybody would cost a look at each worker."""
    client, n = board.client(), FEW // 4
    for i in range(n):
        worker(board, f"w{i}")
    board.send(client, graph(*(f"x{i}" for i in range(n)), function="other"))
    board.tick(1.0)
    board.send(client, *gang("g", 2))
    began, looks = board.now, {gangs_of(board.state).look_at}
    for _ in range(100):
        board.send(client, m.Heartbeat())
        looks.add(gangs_of(board.state).look_at)
    assert 3 <= len(looks) <= FEW // n + 1  # of 100 events
    last = gangs_of(board.state).look_at
    assert last == pytest.approx(board.state.awake_s + LOOK_COST_S * (len(looks) * (n + 1) - FEW))
    board.finish(board.where("x0"), "x0")
    board.finish(board.where("x1"), "x1")
    assert board.states("g-0") == ["waiting"]
    board.tick(LEAST_WAIT_S + last - board.state.awake_s)
    assert board.states("g-0") == ["processing"]
    assert board.now - began < 0.01
    board.drop_rest()


def test_nothing_is_left_of_a_gang_that_is_forgotten(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    board.send(client, *gang("g", 2))
    board.finish(a, "g-0", "g-1")
    board.send(client, m.ReleaseKeys(keys=["g-0", "g-1"]))
    assert not gangs_of(board.state).by_name
    assert Gangs not in board.state.busy
    board.drop_rest()


@pytest.mark.parametrize("size", [2, 3])
def test_a_gang_may_be_submitted_again_with_what_releases_it(board, size):
    client, a = board.client(), worker(board, "a", nthreads=4)
    board.send(client, *gang("g", 2, named="first"))
    board.finish(a, "g-0", "g-1")
    board.send(client, m.ReleaseKeys(keys=["g-0", "g-1"]), *gang("g", size, named="second"))
    assert {*board.states(*(f"g-{i}" for i in range(size)))} == {"processing"}
    board.drop_rest()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("job_queue", "nightly"),
        ("category", {"name": "fits", "mode": FIXED, "max_nbytes": 0}),
    ],
)
def test_members_that_something_else_would_hold_back_are_refused(board, option, value):
    client = board.client()
    worker(board, "a", nthreads=4)
    out = board.send(client, *gang("g", 2, **{option: value}), *gang("h", 2))
    (failed,) = out.of(client, m.KeysErred)
    assert failed.keys == ["g-0", "g-1"]
    assert failed.failures[0][2] == f"gang= beside {option}="
    assert board.states("h-0", "h-1") == ["processing"] * 2
    board.drop_rest()
