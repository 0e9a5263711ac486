"""The values of the metrics: counters that never go back, labels that are bounded."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, finished, graph
from weft.protocol.metrics import BOUNDS_US
from weft.protocol.reported import OF_WORKERS, n_numbers
from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.features import METRICS
from weft.scheduler.core.insight.losses import LOSSES
from weft.scheduler.core.insight.metrics import count_unrunnable, count_workers, metrics
from weft.scheduler.core.records.prefixes import MAX_EARLY, MAX_SHOWN, OTHER


def bucket_of(seconds: float) -> int:
    return next(i for i, bound in enumerate(BOUNDS_US) if seconds * 1e6 <= bound)


# --- Histograms -----------------------------------------------------------------------------------


def test_run_times_are_counted_by_size(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("a", "b", "c"))
    board.finish(worker, "a", "b", us=2_000)
    board.finish(worker, "c", us=250_000)
    shown = metrics(board.state)["task_duration_seconds"]
    assert shown["sum"] == pytest.approx(0.254)
    assert shown["counts"][bucket_of(0.002)] == 2
    assert shown["counts"][bucket_of(0.25)] == 1


def test_queue_times_are_from_the_submission_to_the_start(board):
    client = board.client()
    board.send(client, graph("a", "b"))
    board.tick(2.0)
    worker = board.worker(nthreads=2)
    report = finished([board.attempt("a"), board.attempt("b")])
    report.queued_us = [500_000, 500_000]
    board.tick(20.0)
    board.send(worker, report)
    shown = metrics(board.state)["task_queue_seconds"]
    assert shown["counts"][bucket_of(2.5)] == 2
    assert shown["sum"] == pytest.approx(5.0)


def queue_seconds(board):
    """Return the sum of all queue times since the last call, and how many they are."""
    shown = metrics(board.state)["task_queue_seconds"]
    n, total = sum(shown["counts"]), shown["sum"]
    before = getattr(board, "queue_seconds", (0.0, 0))
    board.queue_seconds = (total, n)
    return pytest.approx(total - before[0]), n - before[1]


def test_the_queue_time_of_a_task_with_inputs_begins_when_they_are_there(board):
    client, worker = board.client(), board.worker(nthreads=1)
    board.send(client, graph("a", resources={}), graph("other -> b", resources={"r": 1.0}))
    board.tick(5.0)
    gpu = board.worker("gpu", resources={"r": 1.0})
    board.finish(worker, "a")
    assert queue_seconds(board) == (0.0, 1)
    board.tick(1.0)
    board.finish(gpu, "other")
    assert queue_seconds(board) == (5.0, 1)  # no worker might run it until then
    board.tick(1.0)
    board.finish(gpu, "b")
    assert queue_seconds(board) == (0.0, 1)


def test_the_queue_time_of_a_task_that_runs_again_begins_anew(board):
    client, worker = board.client(), board.worker(nthreads=1)
    board.send(client, graph("a", retries=1))
    board.tick(4.0)
    board.raise_(worker, "a")
    board.tick(1.0)
    board.finish(worker, "a", blob=None)
    assert queue_seconds(board) == (0.0, 1)
    board.tick(4.0)
    board.close(worker)  # the only copy is lost
    board.tick(2.0)
    worker = board.worker("second")
    board.finish(worker, "a")
    assert queue_seconds(board) == (2.0, 1)


def test_each_submission_has_its_own_queue_time(board):
    client = board.client()
    board.send(client, graph("a"))
    board.tick(2.0)
    board.send(client, graph("b", "c"))
    worker = board.worker(nthreads=3)
    board.send(worker, finished([board.attempt(key) for key in "abc"]))
    shown = metrics(board.state)["task_queue_seconds"]
    assert shown["counts"][bucket_of(2.0)] == 1
    assert shown["counts"][0] == 2


# --- Names of functions ---------------------------------------------------------------------------


def finish_one(board, client, worker, key, function, us):
    board.send(client, graph(key, function=function))
    board.finish(worker, key, us=us)
    board.send(client, m.ReleaseKeys(keys=[key]))


def test_many_names_of_functions_are_few_series_that_never_go_back(board):
    client, worker = board.client(), board.worker()
    last: dict[str, float] = {}
    n_functions = 150
    for i in range(n_functions):
        finish_one(board, client, worker, f"k{i}", f"f{i}", us=1_000)
        if i % 10 == 0:
            shown = metrics(board.state)["task_compute_seconds_total"]
            assert len(shown) <= MAX_SHOWN + 1
            assert all(shown[name] >= value for name, value in last.items())
            assert sum(shown.values()) == pytest.approx((i + 1) / 1000)
            last = shown
    for name in ("tasks_finished_total", "task_output_bytes_total", "attempts_raised_total"):
        assert len(metrics(board.state)[name]) <= MAX_SHOWN + 1


def test_a_late_name_that_takes_much_time_gets_a_series_and_begins_at_zero(board):
    client, worker = board.client(), board.worker()
    for i in range(MAX_EARLY):
        finish_one(board, client, worker, f"k{i}", f"f{i}", us=1_000)
    finish_one(board, client, worker, "x0", "late", us=1)
    shown = metrics(board.state)["tasks_finished_total"]
    assert shown[OTHER] == 1
    assert "late" not in shown
    finish_one(board, client, worker, "x1", "late", us=1_000_000)
    shown = metrics(board.state)["tasks_finished_total"]
    assert (shown["late"], shown[OTHER]) == (1, 1)
    assert metrics(board.state)["task_compute_seconds_total"]["late"] == 1.0


def test_bytes_of_results_are_counted_by_function(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("a", "b"), graph("c", function="f"))
    report = finished([board.attempt(key) for key in "abc"])
    report.nbytes = [10, 20, 400]
    board.send(worker, report)
    assert metrics(board.state)["task_output_bytes_total"] == {"inc": 30, "f": 400, OTHER: 0}


# --- Workers --------------------------------------------------------------------------------------


def status(numbers, managed=0, resident=0):
    return m.WorkerStatus(
        state="running",
        nthreads=1,
        n_records=0,
        n_ready=0,
        managed_nbytes=managed,
        resident_nbytes=resident,
        cpu_percent=0,
        numbers=numbers,
    )


def numbers(**values):
    """Make a worker's list, by the name of the metric, with the same number for all its places."""
    found: list[int] = []
    for metric in OF_WORKERS:
        short = metric.name.removeprefix("weft_worker_").removesuffix("_total")
        found += [values.get(short, 0)] * metric.n
    assert len(found) == n_numbers(OF_WORKERS)
    return found


def shown_of(board, short):
    return metrics(board.state)[f"weft_worker_{short}"]


def test_numbers_of_workers_are_summed_and_those_of_lost_ones_stay_in_counters(board):
    one, two = board.worker("one"), board.worker("two")
    board.send(one, status(numbers(results=5, transfers=10, memory_bytes=100)))
    board.send(two, status(numbers(results=7, transfers=1, memory_bytes=200)))
    board.send(one, status(numbers(results=4, transfers=12, memory_bytes=50)))
    assert shown_of(board, "results") == 11
    assert shown_of(board, "transfers_total") == {"in": 13, "out": 13}
    assert shown_of(board, "memory_bytes") == {"managed": 250, "unmanaged": 250}
    board.close(one)
    assert shown_of(board, "results") == 7
    assert shown_of(board, "transfers_total") == {"in": 13, "out": 13}
    assert shown_of(board, "memory_bytes") == {"managed": 200, "unmanaged": 200}


def test_a_worker_that_comes_back_is_not_counted_twice(board):
    worker = board.worker()
    board.send(worker, status(numbers(results=5, transfers=10)))
    board.close(worker)
    again = board.come_back()
    board.send(again, status(numbers(results=6, transfers=11)))
    assert shown_of(board, "results") == 6
    assert shown_of(board, "transfers_total")["in"] == 11


def test_of_a_worker_of_an_earlier_scheduler_only_new_events_are_counted(board):
    worker = board.come_back(last_epoch=3)
    board.send(worker, status(numbers(results=5, transfers=1000)))
    assert shown_of(board, "results") == 5
    assert shown_of(board, "transfers_total")["in"] == 0
    board.send(worker, status(numbers(results=5, transfers=1003)))
    assert shown_of(board, "transfers_total")["in"] == 3


def test_a_worker_that_reports_less_than_before_takes_nothing_from_a_counter(board):
    worker = board.worker()
    board.send(worker, status(numbers(transfers=10)))
    board.send(worker, status(numbers(transfers=4)))
    assert shown_of(board, "transfers_total")["in"] == 10
    board.send(worker, status(numbers(transfers=12)))
    assert shown_of(board, "transfers_total")["in"] == 12


def test_reports_of_other_versions_may_be_shorter_or_longer(board):
    one, two = board.worker("one"), board.worker("two")
    board.send(one, status([1, 2]))
    board.send(two, status([*numbers(), 99, 99]))
    board.send(two, status([]))
    assert shown_of(board, "tasks") == {"executing": 1, "ready": 2, "waiting": 0, "fetching": 0}


def test_a_worker_with_a_page_of_its_own_is_in_no_sum(board):
    worker = board.worker(facts={"metrics_url": "http://host:1/metrics"})
    board.send(worker, status(numbers(results=5, transfers=10, memory_bytes=9), 100, 150))
    assert shown_of(board, "results") == 0
    assert shown_of(board, "memory_bytes") == {"managed": 0, "unmanaged": 0}
    found = metrics(board.state)
    assert (found["workers_stored_bytes"], found["workers_resident_bytes"]) == (100, 150)


def pages_of(board, viewer, page=""):
    question = m.Ask(request=1, name="metrics_pages", page=page)
    (answer,) = board.send(viewer, question)[viewer]
    return answer.info["urls"], answer.next_page


def test_the_pages_of_families_are_listed_in_parts(board, monkeypatch):
    monkeypatch.setattr("weft.scheduler.core.insight.questions.N_URLS", 2)
    board.supervisor("none")
    for i, url in enumerate(["http://a", "http://b", 5, "http://" + "x" * 300, "http://c"]):
        peer = board.connect(Role.SUPERVISOR)
        facts = {"metrics_url": url}
        hello = m.RegisterSupervisor(supervisor_id=f"s{i}", session=1, last_epoch=0, facts=facts)
        board.send(peer, hello)
        board.send(peer, m.WorkersAlive(worker_ids=[], rss=[], numbers=[9, 9]))
    viewer = board.connect(Role.VIEWER)
    urls, page = pages_of(board, viewer)
    assert urls == ["http://a", "http://b"]
    assert pages_of(board, viewer, page) == (["http://c"], "")
    assert metrics(board.state)["weft_supervisor_workers"] == 0


def test_numbers_of_supervisors_are_summed(board):
    one, two = board.supervisor("one"), board.supervisor("two")
    board.send(one, m.WorkersAlive(worker_ids=[], rss=[], numbers=[2, 3]))
    board.send(two, m.WorkersAlive(worker_ids=[], rss=[], numbers=[4, 5]))
    board.close(one)
    shown = metrics(board.state)
    assert shown["weft_supervisor_workers"] == 4
    assert shown["weft_supervisor_workers_started_total"] == 8


def test_workers_are_counted_by_state():
    board = Board(away_s=5.0)
    one, two, _ = (board.worker(name) for name in ("one", "two", "three"))
    board.close(one)
    board.send(two, m.WorkerLeaving(reason="asked"))
    assert count_workers(board.state) == {
        "running": 1,
        "paused": 0,
        "blocked": 0,
        "leaving": 1,
        "away": 1,
    }


@pytest.mark.parametrize("kind", ["exit", "signal", "memory", "crash"])
def test_lost_workers_are_counted_by_the_reason_that_their_supervisor_reports(board, kind):
    supervisor, worker = board.supervisor(), board.worker(supervisor_id="sup")
    board.close(worker)
    assert not any(metrics(board.state)["workers_lost_total"].values())
    exited = m.WorkerExited(worker_id="id of w", reason="because", running=[], kind=kind)
    board.send(supervisor, exited)
    board.tick(10.0)
    assert metrics(board.state)["workers_lost_total"] == {
        reason: int(reason == kind) for reason in LOSSES
    }


@pytest.mark.parametrize("kind", ["", "strange"])
def test_a_reason_that_is_not_known_here_adds_no_series(board, kind):
    supervisor, worker = board.supervisor(), board.worker(supervisor_id="sup")
    exited = m.WorkerExited(worker_id="id of w", reason="because", running=[], kind=kind)
    board.send(supervisor, exited)
    board.close(worker)
    shown = metrics(board.state)["workers_lost_total"]
    assert (shown["exit"], sum(shown.values()), [*shown]) == (1, 1, [*LOSSES])


def test_silent_workers_and_ended_connections_are_told_apart(board):
    board.close(board.worker("one"))
    board.worker("two")
    board.tick(100.0)
    shown = metrics(board.state)["workers_lost_total"]
    assert (shown["disconnected"], shown["silent"]) == (1, 1)


def test_unrunnable_tasks_are_counted_by_reason(board):
    client = board.client()
    board.send(client, graph("a"), graph("b", workers=["x"]), graph("c", resources={"gpu": 1}))
    assert count_unrunnable(board.state)["no_workers"] == 3
    board.worker()
    counts = count_unrunnable(board.state)
    assert (counts["no_workers"], counts["workers"], counts["resources"]) == (0, 1, 1)


def test_every_series_with_a_fixed_label_is_there_from_the_start(board):
    shown = metrics(board.state)
    for name, metric in METRICS.items():
        if metric.labels not in ((), ("prefix",), ("category",)) and name in shown:
            assert shown[name], name


def test_a_viewer_gets_all_metrics_in_one_message(board):
    viewer = board.connect(Role.VIEWER)
    (answer,) = board.send(viewer, m.GetMetrics(request=5))[viewer]
    assert (answer.request, answer.values) == (5, metrics(board.state))
