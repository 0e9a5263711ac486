"""completion.py: finished, raised."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.moves.transitions import MAX_FAILURES, MAX_JOINED_NBYTES

from ...builders import assigned, dropped, finished, graph, sent_keys


def test_small_results_ride_on_in_one_message_and_large_ones_are_located(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a b c"))
    message = finished([1, 2, 3])
    message.results[1] = None
    message.nbytes[1] = 1 << 20
    out = board.send(worker, message)
    assert out[client] == [
        m.ResultsReady(keys=["a", "c"], results=[b"result", b"result"]),
        m.KeysInMemory(keys=["b"], nbytes=[1 << 20], holder_of=[0], holders=["tcp://w"]),
    ]
    ws = board.state.workers[worker]
    assert ws.nbytes == (1 << 20) + 16
    assert [board.task(key).delivered for key in "abc"] == [True, False, True]


def test_each_client_gets_only_the_keys_that_it_wants(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a b"))
    board.send(bob, graph("b c"))
    out = board.finish(worker, "a", "b", "c")
    assert sent_keys(out, alice, m.ResultsReady) == ["a", "b"]
    assert sorted(sent_keys(out, bob, m.ResultsReady)) == ["b", "c"]


def test_a_completion_of_another_attempt_is_stale_and_its_copy_is_dropped(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    out = board.send(worker, finished([99]))
    assert out == {worker: [m.DropAttempts(attempts=[99])]}
    assert board.state.counters.reports_stale == 1
    assert board.states("a") == ["processing"]


def test_a_completion_counts_once(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(worker, finished([1]))
    out = board.send(worker, finished([1]))
    assert board.state.counters.tasks_completed == 1
    assert client not in out


def test_a_worker_cannot_report_an_attempt_of_another_one(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    thief = two if board.where("a") == one else one
    out = board.send(thief, finished([1]))
    assert dropped(out, thief) == [1]
    assert board.states("a") == ["processing"]


def test_data_goes_as_soon_as_its_last_reader_has_finished(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "a -> b", "a -> c"))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    board.finish(worker, "a")
    assert dropped(board.finish(worker, "b"), worker) == []
    assert dropped(board.finish(worker, "c"), worker) == [1]
    assert board.states("a") == ["released"]
    assert board.rest() == ["ResultsReady", "ResultsReady"]


def test_durations_are_learned_for_each_function(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", function="slow"), graph("b", function="fast"))
    message = finished([1, 2])
    message.durations_us = [4000, 100]
    board.send(worker, message)
    prefixes = board.state.prefixes
    assert (prefixes["slow"].estimate_ns, prefixes["fast"].estimate_ns) == (4_000_000, 100_000)
    board.send(client, graph("c", function="slow"))
    board.finish(worker, "c", us=8000)
    assert prefixes["slow"].estimate_ns == 5_000_000
    assert prefixes["slow"].n_finished == 2


def test_a_task_that_raised_fails_with_all_its_dependents(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", "b -> c"))
    out = board.raise_(worker, "a")
    failure = ["exception", "a", "ValueError"]
    (message,) = out[client]
    assert sorted(message.keys) == ["a", "b", "c"]
    assert message.failures == [failure]
    assert sorted(dropped(out, worker)) == [2, 3]  # the reported one is over
    assert board.task("c").failure == failure


def test_a_task_is_run_again_as_often_as_it_may(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=2))
    assert assigned(board.raise_(worker, "a"), worker) == {"a": 2}
    assert assigned(board.raise_(worker, "a"), worker) == {"a": 3}
    out = board.raise_(worker, "a")
    assert sent_keys(out, client, m.KeysErred) == ["a"]
    ((*_, attempts),) = out[client][0].failures
    assert attempts == 3
    assert board.state.counters.tasks_retried == 2
    assert board.rest() == ["DropAttempts", "DropAttempts"]


def test_tasks_behind_a_retried_task_are_placed_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", retries=1))
    out = board.raise_(worker, "a")
    assert dropped(out, worker) == [1, 2]  # the failure of "a", and what waits for it
    assert assigned(out, worker) == {"a": 3, "b": 4}


def test_a_retry_whose_reason_failed_in_the_same_message_is_not_run(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x", retries=1), graph("y", function="f"), graph(":x :y -> z"))
    board.send(client, m.ReleaseKeys(keys=["x", "y"]))
    out = board.raise_(worker, "x", "y")
    assert sent_keys(out, client, m.KeysErred) == ["z"]
    assert assigned(out, worker) == {}
    assert board.states("x", "y", "z") == ["released", "released", "erred"]
    assert board.rest() == ["DropAttempts"]


def test_a_task_and_its_input_that_both_raise_are_both_retried_once(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "a -> b", retries=3))
    board.finish(worker, "a", blob=None)
    # The data is lost while b runs, so a runs again, on the same worker.
    board.send(client, m.ReportMissing(keys=["a"], holder="tcp://w"))
    assert (board.where("a"), board.where("b")) == (worker, worker)
    out = board.raise_(worker, "a", "b")
    assert assigned(out, worker) == {"a": 4, "b": 5}
    assert board.state.counters.tasks_retried == 2
    assert board.rest() == ["DropAttempts"]


def test_a_stale_failure_is_counted_and_need_not_be_kept(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    out = board.send(worker, m.AttemptsErred(attempts=[1], durations_us=[1], failures=[["x", "a"]]))
    assert out == {worker: [m.DropAttempts(attempts=[1])]}
    assert board.state.counters.reports_stale == 1


def test_tasks_that_fail_together_are_reported_in_one_message(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a b c -> d", "e"))
    attempts = [board.attempt(key) for key in "abce"]
    large = ["exception", "c", b"x" * (MAX_JOINED_NBYTES + 1)]
    failures = [["exception", "a", b""], ["exception", "b", b""], large, ["exception", "e", b""]]
    out = board.send(
        worker, m.AttemptsErred(attempts=attempts, durations_us=[1] * 4, failures=failures)
    )
    assert out[client] == [
        m.KeysErred(keys=["a", "d", "b"], failure_of=[0, 0, 1], failures=failures[:2]),
        m.KeysErred(keys=["c", "e"], failure_of=[0, 1], failures=failures[2:]),
    ]
    out = board.send(client, m.WantKeys(keys=["a", "d", "b"]))
    assert out[client] == [
        m.KeysErred(keys=["a", "d", "b"], failure_of=[0, 0, 1], failures=failures[:2])
    ]
    assert board.rest() == ["DropAttempts"]


def test_a_message_reports_a_bounded_number_of_failures(board):
    client, worker = board.client(), board.worker(nthreads=MAX_FAILURES + 1)
    keys = [f"k{i}" for i in range(MAX_FAILURES + 1)]
    board.send(client, graph(*keys))
    out = board.raise_(worker, *keys)
    assert [len(message.failures) for message in out[client]] == [MAX_FAILURES, 1]
    assert [key for message in out[client] for key in message.keys] == keys


def test_failed_tasks_are_counted_by_the_kind_of_their_failure(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph(":gone -> lost", "lost -> below", "bad", "bad -> worse"))
    board.raise_(worker, "bad")
    board.send(client, graph(":bad -> late", ":lost -> later"))
    counters = board.state.counters
    assert board.states("lost", "below", "bad", "worse", "late", "later") == ["erred"] * 6
    assert (counters.tasks_failed_lost_data, counters.tasks_failed_exception) == (1, 1)


# --- Times before the start -----------------------------------------------------------------------


def test_waits_at_the_worker_are_added_up_by_function(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b"), graph("c", function="f"))
    report = finished([board.attempt(key) for key in "abc"])
    report.queued_us, report.fetched_us = [10, 20, 2_500_000], [0, 5, 1_500_000]
    board.send(worker, report)
    inc, f = board.state.prefixes["inc"], board.state.prefixes["f"]
    assert (inc.series.queued_us, inc.series.fetched_us) == (30, 5)
    assert (f.series.queued_us, f.series.fetched_us) == (2_500_000, 1_500_000)
    shown = metrics(board.state)
    assert shown["task_queued_seconds_total"]["f"] == 2.5
    assert shown["task_fetched_seconds_total"]["f"] == 1.5
    (line,) = [line for line in board.state.story.of("c") if "finished" in line]
    assert line.endswith("finished on w; from arrival to start at most 2.5 s, 1.5 s for inputs")


def test_a_worker_of_an_earlier_version_reports_no_waits(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    assert board.state.prefixes["inc"].series.queued_us == 0
    assert board.task("a").state == "memory"


def test_times_of_attempts_that_raised_are_added_up(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b"))
    report = m.AttemptsErred(
        attempts=[board.attempt("a"), 99],
        durations_us=[3000, 1],
        failures=[["exception", "a", "E"]] * 2,
        queued_us=[7, 1],
        fetched_us=[2, 1],
    )
    board.send(worker, report)
    prefix = board.state.prefixes["inc"]
    series = prefix.series
    assert (series.n_raised, series.erred_us) == (1, 3000)
    assert (series.queued_us, series.fetched_us) == (7, 2)
    assert metrics(board.state)["task_erred_seconds_total"]["inc"] == 0.003
