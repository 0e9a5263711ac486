"""ending.py: tasks with a time limit avoid workers that end before it is over."""

from __future__ import annotations

import pytest

from weft.protocol.reported import TIME_LEFT
from weft.protocol.wire import messages as m
from weft.scheduler.core.avoidance import ending
from weft.scheduler.core.avoidance.ending import LOOK_S, MAX_EXACT, worker_ends_of
from weft.scheduler.core.insight.explaining import explain

from ...builders import Board, assigned, dropped, graph, sent_keys

MINUTE_US = 60_000_000


def ending_worker(board: Board, name: str, left_s: float, nthreads: int = 1, **options) -> int:
    facts = {"host": "here", TIME_LEFT: left_s}
    return board.worker(name, nthreads, facts=facts, **options)


def members(board: Board, key: str) -> list[str]:
    return sorted(ws.name for ws in board.task(key).group.task_class.members)


# -- placement -------------------------------------------------------------------------------------
def test_a_task_goes_to_the_worker_that_has_enough_time_for_it(board):
    client = board.client()
    ending_worker(board, "short", 40.0)
    long = ending_worker(board, "long", 80.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert board.where("a") == long
    # The other one is idle, and stays so.
    board.send(client, graph("b", timeout_us=MINUTE_US))
    board.finish(long, "a")
    assert board.where("b") == long


def test_a_worker_without_an_end_has_enough_time(board):
    client = board.client()
    ending_worker(board, "short", 40.0)
    endless = board.worker("endless")
    board.send(client, graph("a", timeout_us=10**6 * MINUTE_US))
    assert board.where("a") == endless


def test_a_task_runs_anywhere_if_no_worker_has_enough_time(board):
    client = board.client()
    ending_worker(board, "v", 40.0)
    ending_worker(board, "w", 50.0)
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    assert board.states("a", "b") == ["processing"] * 2
    assert members(board, "a") == ["v", "w"]


def test_a_task_without_a_limit_goes_to_a_worker_with_little_time(board):
    client = board.client()
    short = ending_worker(board, "short", 1.0)
    board.send(client, graph("a"))
    assert board.where("a") == short
    assert board.task("a").group.task_class is board.state.default_class


def test_a_cluster_without_ends_has_no_classes_for_limits(board):
    client = board.client()
    board.worker()
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert [*board.state.classes] == [()]
    assert worker_ends_of(board.state).limits is None


def test_a_task_that_is_restricted_loosely_or_strictly_keeps_its_restrictions(board):
    client = board.client()
    short = ending_worker(board, "short", 40.0)
    long = ending_worker(board, "long", 80.0)
    board.send(client, graph("strict", timeout_us=MINUTE_US, workers=["short"]))
    assert board.where("strict") == short  # no other may run it
    board.send(
        client,
        graph("loose", timeout_us=MINUTE_US, workers=["short"], allow_other_workers=True),
    )
    assert members(board, "loose") == ["long", "short"]
    board.close(long)
    assert members(board, "loose") == ["short"]


def test_a_task_with_resources_avoids_workers_as_well(board):
    client = board.client()
    ending_worker(board, "short", 40.0, resources={"gpu": 1.0})
    long = ending_worker(board, "long", 80.0, resources={"gpu": 1.0})
    board.send(client, graph("a", "b", timeout_us=MINUTE_US, resources={"gpu": 1.0}))
    assert sorted(board.states("a", "b")) == ["processing", "queued"]
    assert board.where("a") == long


def test_a_task_of_a_category_avoids_workers_once_it_has_its_memory(board):
    client = board.client()
    category = {"name": "c", "mode": "fixed", "max_nbytes": 0, "max_wall_us": MINUTE_US}
    ending_worker(board, "short", 40.0)
    long = ending_worker(board, "long", 80.0)
    board.send(client, graph("a", timeout_us=MINUTE_US, category=category))
    assert board.where("a") == long


def test_a_task_that_asks_for_another_worker_goes_on_avoiding_those_that_end(board):
    client = board.client()
    ending_worker(board, "short", 40.0)
    first = ending_worker(board, "long", 80.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert board.where("a") == first
    row = {"attempts": [board.attempt("a")], "durations_us": [1000]}
    board.send(first, m.AttemptsErred(**row, failures=[["reschedule", "a", "too warm"]]))
    # Both are avoided, so neither is.
    assert members(board, "a") == ["long", "short"]
    third = board.worker("third")
    assert members(board, "a") == ["third"]
    row = {"attempts": [board.attempt("a")], "durations_us": [1000]}
    board.send(board.where("a"), m.AttemptsErred(**row, failures=[["reschedule", "a", "again"]]))
    assert board.where("a") == third


def back_with_little_time(board: Board, **rows: dict[str, int]) -> int:
    """Let a worker come back to the next scheduler that ends before its tasks may have ended."""
    facts = {"host": "here", TIME_LEFT: 40.0}
    return board.come_back("short", last_epoch=5, facts=facts, **rows)


def test_an_attempt_that_runs_where_the_time_is_too_short_by_now_goes_on_after_a_restart(new):
    client = new.client(last_epoch=5)
    new.worker("other", last_epoch=5)
    short = back_with_little_time(new, running={"a": 11})
    new.send(client, graph("a", timeout_us=MINUTE_US))
    assert members(new, "a") == ["other"]
    assert (new.where("a"), new.attempt("a")) == (short, 11)


def test_an_attempt_that_waits_where_the_time_is_too_short_by_now_is_asked_back(new):
    client = new.client(last_epoch=5)
    other = new.come_back("other", last_epoch=5)
    short = back_with_little_time(new, assigned={"a": 11, "b": 12})
    out = new.send(client, graph("a", "b", timeout_us=MINUTE_US))
    # They may have begun since: whoever drops them unasked lets them run twice.
    assert not dropped(out, short)
    asked = [one for x in out.of(short, m.WithdrawAttempts) for one in x.attempts]
    assert sorted(asked) == [11, 12]
    new.send(short, m.AttemptsWithdrawn(attempts=[11], started=[12]))
    new.send(client, m.Resubmitted())
    new.pass_time(6.0)
    assert new.where("a") == other
    assert (new.where("b"), new.attempt("b")) == (short, 12)


def test_a_chain_that_waits_where_the_time_is_too_short_by_now_is_asked_back(new):
    client = new.client(last_epoch=5)
    new.come_back("other", last_epoch=5)
    short = back_with_little_time(new, assigned={"a": 11, "b": 12})
    out = new.send(client, graph("a", ":a -> b", timeout_us=MINUTE_US))
    assert not dropped(out, short)
    asked = [one for x in out.of(short, m.WithdrawAttempts) for one in x.attempts]
    assert sorted(asked) == [11, 12]
    new.send(short, m.AttemptsWithdrawn(attempts=[], started=[11, 12]))
    assert (new.attempt("a"), new.attempt("b")) == (11, 12)


# -- as time passes --------------------------------------------------------------------------------
def test_a_worker_leaves_the_classes_of_a_limit_when_it_has_less_time(board):
    client = board.client()
    first = ending_worker(board, "first", 70.0)
    second = board.worker("second")
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    assert members(board, "a") == ["first", "second"]
    board.tick(10.0 + 2 * LOOK_S)
    assert members(board, "a") == ["second"]
    assert {board.where("a"), board.where("b")} == {first, second}  # what runs there stays
    board.send(client, graph("c", timeout_us=MINUTE_US))
    key = "a" if board.where("a") == first else "b"
    board.finish(first, key)
    assert board.states("c") == ["queued"]
    board.send(client, graph("d", timeout_us=MINUTE_US // 2))
    assert board.where("d") == first  # it has time for this one


def test_a_class_takes_workers_again_whose_time_is_short_for_all(board):
    client = board.client()
    ending_worker(board, "first", 70.0)
    ending_worker(board, "second", 75.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert members(board, "a") == ["first", "second"]
    board.tick(12.0)
    assert members(board, "a") == ["second"]
    board.tick(5.0)
    assert members(board, "a") == ["first", "second"]
    board.worker("third")
    assert members(board, "a") == ["third"]


def test_workers_whose_time_ends_together_leave_together(board):
    client = board.client()
    for name in "vw":
        ending_worker(board, name, 70.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    board.tick(11.0)
    assert members(board, "a") == ["v", "w"]
    assert len(board.task("a").group.task_class.avoided) == 2


def test_a_worker_that_is_too_short_is_asked_for_tasks_that_wait_behind_others(board):
    client = board.client()
    first = ending_worker(board, "first", 70.0)
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    assert {board.where("a"), board.where("b")} == {first}
    second = board.worker("second")
    board.send(client, graph("long", workers=["second"]))
    out = board.tick(10.0 + 2 * LOOK_S)
    asked = out.of(first, m.WithdrawAttempts)
    assert [x.attempts for x in asked] == [[board.attempt("a"), board.attempt("b")]]
    attempts = {"attempts": [board.attempt("b")], "started": [board.attempt("a")]}
    board.send(first, m.AttemptsWithdrawn(**attempts))
    assert board.where("a") == first
    assert board.states("b") == ["queued"]
    out = board.finish(second, "long")
    assert [*assigned(out, second)] == ["b"]
    board.drop_rest()


def test_nothing_is_asked_back_where_all_end_too_early(board):
    client = board.client()
    first = ending_worker(board, "first", 70.0)
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    out = board.tick(11.0)
    assert not out.of(first, m.WithdrawAttempts)
    board.drop_rest()


def test_a_worker_that_is_gone_is_avoided_no_more(board):
    client = board.client()
    short = ending_worker(board, "short", 40.0)
    board.worker("other")
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert [*board.task("a").group.task_class.avoided] == ["id of short"]
    board.close(short)
    assert not board.task("a").group.task_class.avoided
    assert board.task("a").group.task_class.is_loose, "another such worker may come"
    assert not worker_ends_of(board.state).by_worker


def test_a_worker_that_comes_back_has_the_end_that_it_reports_then(board):
    client = board.client()
    short = ending_worker(board, "short", 65.0)
    board.close(short)
    long = ending_worker(board, "short", 70.0)
    board.worker("other")
    board.send(client, graph("a", timeout_us=MINUTE_US))
    board.tick(7.0)
    assert members(board, "a") == ["other", "short"]
    board.tick(5.0)
    assert members(board, "a") == ["other"]
    assert long in board.state.workers


def test_a_worker_that_has_come_back_leaves_a_class_once(board):
    client = board.client()
    board.worker("other")
    first = ending_worker(board, "short", 65.0)
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    board.close(first)
    ending_worker(board, "short", 65.0)
    assert members(board, "a") == ["other", "short"]
    board.tick(10.0)
    assert members(board, "a") == ["other"]


@pytest.mark.parametrize("left", ["soon", -1.0, float("nan"), 1e300, True, None])
def test_a_time_that_makes_no_sense_is_no_end(board, left):
    board.client()
    board.worker("w", facts={"host": "here", TIME_LEFT: left})
    assert not worker_ends_of(board.state).by_worker


# -- limits ----------------------------------------------------------------------------------------
def test_many_limits_are_rounded_up_so_that_classes_are_few(board):
    client = board.client()
    ending_worker(board, "w", 40.0)
    for i in range(300):
        board.send(client, graph(f"a{i}", timeout_us=MINUTE_US + i * 1_000_000))
    limits = worker_ends_of(board.state).limits
    assert limits is not None
    assert len(limits) <= MAX_EXACT + 8
    for i in range(300):
        group = board.task(f"a{i}").group
        limit_us = group.task_class.avoided.limit.limit_s * 1e6
        assert 1.0 <= limit_us / group.options.timeout_us <= 1.4143


def test_a_limit_that_is_not_used_any_more_makes_place_for_another(board):
    client = board.client()
    worker = ending_worker(board, "w", 40.0)
    for i in range(3 * MAX_EXACT):
        timeout_us = MINUTE_US + i * 1_000_000
        board.send(client, graph("a", timeout_us=timeout_us))
        assert board.task("a").group.task_class.avoided.limit.limit_s * 1e6 == timeout_us
        board.finish(worker, "a")
        board.send(client, m.ReleaseKeys(keys=["a"]))
    assert len(worker_ends_of(board.state).limits or ()) <= MAX_EXACT


# -- tasks that came first -------------------------------------------------------------------------
def test_tasks_that_came_before_the_first_end_avoid_workers_as_well(board):
    client = board.client()
    board.send(client, graph("a", "b", "a b -> c", timeout_us=MINUTE_US))
    board.send(client, graph("d"))
    short = ending_worker(board, "short", 40.0)
    long = ending_worker(board, "long", 500.0)
    (asked,) = board.out.of(short, m.WithdrawAttempts)
    assert [*asked.attempts] == [board.attempt(key) for key in "abc"]
    board.drop_rest()
    board.tick(1.0)
    assert board.task("d").group.task_class is board.state.default_class
    for key in "abc":
        assert members(board, key) == ["long"]
    # What waits at the first worker behind others is asked back by the second.
    attempts = {key: board.attempt(key) for key in "abc"}
    assert [board.where(key) for key in "abc"] == [short] * 3
    given_back = [attempts["b"], attempts["c"]]
    board.send(short, m.AttemptsWithdrawn(attempts=given_back, started=[attempts["a"]]))
    assert board.where("b") == long
    board.finish(short, "a")
    board.finish(long, "b")
    assert board.where("c") == long


def test_earlier_tasks_are_filed_again_in_slices(board, monkeypatch):
    monkeypatch.setattr(ending, "MAX_FILED", 2)
    monkeypatch.setattr(ending, "MAX_SEEN", 5)
    client = board.client()
    endless = board.worker("endless")
    keys = [f"k{i}" for i in range(6)]
    board.send(client, graph("first", resources={}))
    board.send(client, graph(*keys, timeout_us=MINUTE_US))
    queued = [key for key in keys if board.states(key) == ["queued"]]
    ending_worker(board, "short", 1.0)

    def filed() -> int:
        return sum(
            board.task(key).group.task_class is not board.state.default_class for key in keys
        )

    assert filed() == 2
    board.tick(1.0)
    assert filed() == 6
    assert not worker_ends_of(board.state).filing
    assert not worker_ends_of(board.state).groups
    assert endless in board.state.workers
    assert len({board.task(key).group for key in keys}) == 1
    assert queued == [key for key in keys if board.states(key) == ["queued"]]


def test_a_task_that_was_queued_first_keeps_its_place_and_the_time_of_its_wait(board):
    client = board.client()
    endless = board.worker("endless")
    board.send(client, graph("runs"))
    board.tick(1.0)  # now nothing more is given to that worker
    board.send(client, graph("a", "b", timeout_us=MINUTE_US))
    board.tick(5.0)
    ending_worker(board, "short", 1.0)
    assert board.states("a", "b") == ["queued"] * 2
    assert explain(board.state, board.task("a"))["times"]["in the queue"] == pytest.approx(5.0)
    board.finish(endless, "runs")
    assert board.where("a") == endless


def test_a_task_that_pauses_before_its_retry_is_left_alone(board):
    client = board.client()
    worker = board.worker()
    options = {"retries": 1, "pauses": [5.0, 2.0, 60.0, 0.0]}
    board.send(client, graph("a", timeout_us=MINUTE_US, **options))
    board.raise_(worker, "a")
    ending_worker(board, "short", 1.0)
    assert board.states("a") == ["no_worker"]
    board.tick(6.0)
    assert board.states("a") == ["processing"]


# -- what users are shown --------------------------------------------------------------------------
def test_an_explanation_says_which_workers_have_too_little_time(board):
    client = board.client()
    ending_worker(board, "short", 45.0)
    long = ending_worker(board, "long", 500.0)
    board.send(client, graph("first", timeout_us=MINUTE_US))
    board.tick(5.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    assert board.where("first") == long
    assert board.states("a") == ["queued"]
    details = explain(board.state, board.task("a"))["details"]
    assert "worker short has 40 s left, and the task may take 60 s" in details
    board.close(long)
    details = explain(board.state, board.task("a"))["details"]
    assert details[-1] == "no worker has more, so it may run on these"


def test_an_explanation_says_what_a_rounded_limit_counts_as(board, monkeypatch):
    monkeypatch.setattr(ending, "MAX_EXACT", 0)
    client = board.client()
    ending_worker(board, "short", 45.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    details = explain(board.state, board.task("a"))["details"]
    text = "worker short has 45 s left, and the task may take 60 s, which counts as 67 s"
    assert text in details


def test_clients_are_sent_no_notice_of_tasks_that_avoid_workers(board):
    client = board.client()
    ending_worker(board, "short", 1.0)
    board.send(client, graph("a", timeout_us=MINUTE_US))
    out = board.tick(30.0)
    assert not sent_keys(out, client, m.KeysUnrunnable)
    board.drop_rest()
