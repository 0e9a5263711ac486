"""A task runs no earlier than its start, and is cancelled when its time is over."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.conditions.feature import LONGEST_LOOK_S
from weft.scheduler.core.conditions.records import MOST_GONE, conditions_of, watched_of
from weft.scheduler.core.events import Load, SchedulerTick
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import Board, graph, sent_keys


def in_ms(board: Board, seconds: float) -> int:
    """Return the time of the clock in so many seconds."""
    started = board.state.started
    return round((board.now - (board.now if started is None else started) + seconds) * 1000)


def test_a_task_starts_at_its_time(board):
    client = board.client()
    board.send(client, graph("a", start_ms=in_ms(board, 300.0)))
    board.tick(299.0)
    worker = board.worker()
    assert board.states("a") == ["waiting"]
    board.tick(1.1)
    assert board.where("a") == worker


def test_a_start_that_is_over_is_none(board):
    client, worker = board.client(), board.worker()
    board.tick(10.0)
    board.send(client, graph("a", start_ms=in_ms(board, -5.0)))
    board.tick()
    assert board.where("a") == worker


def test_a_start_waits_for_conditions_and_the_other_way_round(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    done = [["done", "a"]]
    board.send(client, graph("b", start_ms=in_ms(board, 5.0), conditions=done))
    board.send(client, graph("c", start_ms=in_ms(board, 1.0), conditions=done))
    board.tick(2.0)
    board.finish(worker, "a")
    assert board.states("b", "c") == ["waiting", "processing"]
    board.finish(worker, "c")
    board.tick(3.1)
    assert board.states("b") == ["processing"]


def test_a_start_is_none_of_a_task_that_was_forgotten_in_the_same_look(board):
    client = board.client()
    board.send(client, graph("a", start_ms=in_ms(board, 5.001)))
    board.send(client, graph(":a -> b", end_by_ms=in_ms(board, 5.0)), m.ReleaseKeys(keys=["a"]))
    out = board.tick(10.0)
    assert sent_keys(out, client, m.KeysCancelled) == ["b"]
    assert not board.state.tasks
    assert board.state.default_class.n_tasks == 0


def test_a_clock_that_was_ahead_of_the_epoch_counts(board):
    client = board.client()
    board.send(client, graph("a", start_ms=in_ms(board, 3600.0)))
    # The machine was suspended for an hour.
    board.play(SchedulerTick(load=Load(clock_behind_s=-3600.0)))
    board.tick(LONGEST_LOOK_S + 1)
    worker = board.worker()
    assert board.where("a") == worker


def test_a_task_that_has_not_begun_within_its_ttl_is_cancelled(board):
    client = board.client()
    board.send(client, graph("a", begin_by_ms=in_ms(board, 10.0)))
    out = board.tick(10.1)
    (cancelled,) = out.of(client, m.KeysCancelled)
    assert cancelled.reason == "it has not begun within its ttl="
    assert board.states("a") == ["-"]
    assert not conditions_of(board.state)
    board.drop_rest()


def test_a_worker_says_whether_a_task_has_begun_within_its_ttl(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", begin_by_ms=in_ms(board, 10.0)))
    a, b = board.attempt("a"), board.attempt("b")
    out = board.tick(10.1)
    assert [x.attempts for x in out.of(worker, m.WithdrawAttempts)] == [[a], [b]]
    board.drop_rest()
    out = board.send(worker, m.AttemptsWithdrawn(attempts=[b], started=[a]))
    assert sent_keys(out, client, m.KeysCancelled) == ["b"]
    assert board.states("a", "b") == ["processing", "-"]
    out = board.finish(worker, "a")
    assert sent_keys(out, client, m.ResultsReady) == ["a"]
    assert board.rest() == []


def test_a_worker_that_is_lost_before_it_answers_leaves_the_question_open(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", begin_by_ms=in_ms(board, 10.0)))
    board.tick(10.1)
    board.close(worker)
    assert board.states("a") == ["no_worker"]
    out = board.tick(5.1)
    assert sent_keys(out, client, m.KeysCancelled) == ["a"]
    board.drop_rest()


def test_a_task_that_runs_is_ended_at_its_deadline(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", end_by_ms=in_ms(board, 10.0)))
    attempt = board.attempt("a")
    out = board.tick(10.1)
    (cancelled,) = out.of(client, m.KeysCancelled)
    assert cancelled.reason == "it has not ended by its deadline="
    assert [x.attempts for x in out.of(worker, m.DropAttempts)] == [[attempt]]
    assert [x.attempts for x in out.of(worker, m.InterruptAttempts)] == [[attempt]]
    board.drop_rest()


def test_times_are_looked_at_when_the_workers_are_back():
    board = Board(expected=Members(("id of w",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=5)
    past = {"end_by_ms": in_ms(board, -1.0)}
    board.send(client, graph("a", **past), graph("b", **past), m.Resubmitted())
    board.tick(1.0)
    assert board.states("a", "b") == ["no_worker", "no_worker"]
    board.come_back(kept={"a": 7}, last_epoch=5)
    board.tick(0.6)
    assert board.states("a", "b") == ["memory", "-"]
    board.drop_rest()


def test_a_task_that_has_ended_keeps_its_result_at_its_deadline(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", end_by_ms=in_ms(board, 10.0), begin_by_ms=in_ms(board, 5.0)))
    board.finish(worker, "a")
    out = board.tick(10.1)
    assert sent_keys(out, client, m.KeysCancelled) == []
    assert board.states("a") == ["memory"]
    board.drop_rest()


def test_the_end_of_a_task_is_the_end_of_its_times(board):
    client = board.client()
    times = watched_of(board.state).times
    board.send(client, graph("a", start_ms=in_ms(board, 60.0), end_by_ms=in_ms(board, 90.0)))
    assert len(times) == 2
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert (len(times), times.first_ms()) == (0, None)
    assert board.states("a") == ["-"]


def test_many_times_cost_one_deadline(board):
    client = board.client()
    before = board.state.deadlines.n_pending
    keys = [f"k{i}" for i in range(3 * MOST_GONE)]
    board.send(client, graph(*keys, start_ms=in_ms(board, 600.0)))
    assert board.state.deadlines.n_pending == before + 1
    board.send(client, m.ReleaseKeys(keys=keys[: 2 * MOST_GONE]))
    times = watched_of(board.state).times
    assert len(times) == MOST_GONE
    assert len(times._heap) < 2 * MOST_GONE  # those that are gone were taken out
    board.send(client, graph("soon", start_ms=in_ms(board, 1.0)))
    board.tick(1.1)
    board.worker()
    assert board.states("soon", keys[-1]) == ["processing", "waiting"]
    board.drop_rest()


def test_a_task_fails_when_no_worker_could_run_it_for_its_time(board):
    client = board.client()
    board.worker()
    board.send(client, graph("a", resources={"GPU": 1}, no_worker_ms=10_000))
    board.tick(9.0)
    assert board.states("a") == ["no_worker"]
    out = board.tick(1.1)
    (erred,) = out.of(client, m.KeysErred)
    assert erred.failures[0][:3] == ["no-worker", "a", 10_000]
    assert "no worker offers GPU: 1" in erred.failures[0][3]
    board.drop_rest()


def test_the_time_begins_when_the_last_worker_leaves_also_if_others_were_held_back_before(board):
    user_limits_of(board.state).max_running = 1
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", no_worker_ms=10_000))
    board.tick(9.0)
    board.close(worker)
    board.tick(9.0)
    assert board.states("a", "b") == ["no_worker", "no_worker"]
    board.tick(2.1)
    assert board.states("a", "b") == ["erred", "erred"]
    board.drop_rest()


def test_a_worker_that_comes_and_goes_begins_the_time_anew(board):
    client = board.client()
    board.send(client, graph("a", no_worker_ms=10_000))
    board.tick(8.0)
    worker = board.worker()
    board.tick(4.0)
    assert board.states("a") == ["processing"]
    board.close(worker)
    board.tick(9.0)
    assert board.states("a") == ["no_worker"]
    board.tick(1.1)
    assert board.states("a") == ["erred"]
    board.drop_rest()
