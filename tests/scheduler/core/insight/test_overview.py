"""The question `overview`: its shape, its counts by function, and its bounds."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, function_id, graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.blocking import feature as blocking
from weft.scheduler.core.events import Load, SchedulerTick
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.insight.recent_failures import MAX_FAILURES, MAX_TEXT, text_of
from weft.scheduler.core.records import prefixes
from weft.scheduler.core.records.prefixes import MAX_SEEN, MAX_SHOWN


def functions(board: Board) -> dict[str, tuple[int, int, int, int]]:
    """Finished, failed, unfinished and processing tasks by function."""
    return {
        f["name"]: (f["n_finished"], f["n_failed"], f["n_unfinished"], f["n_processing"])
        for f in overview(board.state)["functions"]
    }


def codes(board: Board) -> list[str]:
    return [line["code"] for line in overview(board.state)["health"]]


def test_an_empty_cluster_has_the_whole_shape(board):
    viewer = board.connect(Role.VIEWER)
    ((answer,),) = board.send(viewer, m.Ask(request=1, name="overview")).values()
    assert isinstance(answer, m.Answer)
    assert answer.next_page == ""
    info = answer.info
    assert info["n_workers"] == {"running": 0, "paused": 0, "blocked": 0, "leaving": 0, "away": 0}
    assert info["memory"] == {"managed": 0, "resident": 0, "limit": 0}
    assert set(info["tasks"]) == {
        "released", "waiting", "queued", "no_worker", "processing", "memory", "erred"
    }  # fmt: skip
    assert set(info["totals"]) == {
        "submitted", "completed", "failed", "cancelled", "retried", "recomputed", "workers_lost"
    }  # fmt: skip
    assert (info["functions"], info["failures"], info["n_clients"]) == ([], [], 0)
    assert info["epoch"] == board.state.epoch
    assert [line["code"] for line in info["health"]] == ["no-workers"]
    assert set(info) == {
        "name", "version", "python", "host", "pid", "epoch", "uptime_s", "recovering", "tasks",
        "n_workers", "threads", "threads_busy", "memory", "n_clients", "desired_workers", "cpu_s",
        "loop_lag_s", "totals", "functions", "failures", "failure_groups", "health",
    }  # fmt: skip


def test_tasks_are_counted_by_function_in_each_part_of_their_life(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a b", "a -> c", function="load"))
    board.send(client, graph("aside", function="gpu", resources={"GPU": 1.0}))
    assert functions(board) == {"load": (0, 0, 3, 3), "gpu": (0, 0, 1, 0)}
    board.finish(worker, "a")
    board.raise_(worker, "c")
    assert functions(board) == {"load": (1, 1, 1, 1), "gpu": (0, 0, 1, 0)}
    board.send(client, m.CancelKeys(keys=["b", "aside"], reason="", force=False))
    assert functions(board)["load"] == (1, 1, 0, 0)
    info = overview(board.state)
    assert info["totals"]["completed"] == 1
    assert info["totals"]["failed"] == 1
    assert info["totals"]["cancelled"] == 2


def test_rows_of_several_functions_in_one_message_are_counted_apart(board):
    client = board.client()
    board.worker()
    message = graph("a b c", function="f")
    message.functions.append(function_id("g"))
    message.function_names.append("g")
    message.function_blobs.append(b"g")
    message.function_of = [0, 1, 1]
    board.send(client, message)
    assert functions(board) == {"g": (0, 0, 2, 2), "f": (0, 0, 1, 1)}


def test_a_round_begins_when_nothing_of_the_function_was_left(board):
    def done():
        (function,) = overview(board.state)["functions"]
        return function["n_done"], function["n_done_failed"], function["n_unfinished"]

    client, worker = board.client(), board.worker()
    board.send(client, graph("a b"))
    board.finish(worker, "a")
    assert done() == (1, 0, 1)
    board.finish(worker, "b")
    assert done() == (2, 0, 0)
    board.send(client, graph("c d", "c -> e"))
    assert done() == (0, 0, 3)
    board.raise_(worker, "c")
    assert done() == (1, 1, 1)
    board.finish(worker, "d")
    board.send(client, graph(":a -> f"))
    assert done() == (0, 0, 1)


def test_functions_with_most_unfinished_tasks_come_first_and_the_rest_is_other(board):
    client, worker = board.client(), board.worker()
    n = MAX_SHOWN + 5
    for i in range(n):
        board.send(client, graph(f"done-{i}", function=f"f{i}"))
        board.finish(worker, f"done-{i}", us=1000 + i)
    board.send(client, graph("x y", function="f3"))
    board.send(client, graph("z", function="f7"))
    described = overview(board.state)["functions"]
    assert len(described) == MAX_SHOWN + 1
    assert [f["name"] for f in described[:4]] == ["f3", "f7", f"f{n - 1}", f"f{n - 2}"]
    assert described[-1]["name"] == "other"
    assert described[-1]["n_finished"] == 5
    assert sum(f["n_finished"] for f in described) == n


def test_failures_are_grouped_by_function_and_type_the_last_first(board):
    alice, w = board.client("alice"), board.worker("w", nthreads=9)
    board.send(alice, graph("a b c", function="load"), graph("d", function="sum"))
    raised = {"a": "ValueError", "b": "KeyError", "d": "ValueError", "c": "KeyError"}
    for key, kind in raised.items():
        attempts = [board.attempt(key)]
        failures = [["exception", key, "builtins", kind, f"{key} is missing"]]
        board.send(w, m.AttemptsErred(attempts=attempts, durations_us=[1], failures=failures))
    groups = overview(board.state)["failure_groups"]
    assert [(one["function"], one["type"], one["n"], one["key"]) for one in groups] == [
        ("load", "KeyError", 2, "c"),
        ("sum", "ValueError", 1, "d"),
        ("load", "ValueError", 1, "a"),
    ]
    assert groups[0]["text"] == "KeyError: c is missing"


def test_failures_are_the_last_ones_newest_first_in_one_short_line(board):
    client, worker = board.client(), board.worker("w1")
    for i in range(MAX_FAILURES + 2):
        board.send(client, graph(f"bad-{i}", function="load"))
        board.raise_(worker, f"bad-{i}")
        board.tick(0.125)
    failures = overview(board.state)["failures"]
    assert [f["key"] for f in failures] == [f"bad-{i}" for i in range(MAX_FAILURES + 1, 1, -1)]
    first = failures[0]
    assert (first["function"], first["kind"], first["worker"]) == ("load", "exception", "w1")
    assert first["age_s"] == 0.125
    assert first["text"]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (["exception", "k", b"", "OSError", "no\nsuch   file", "", b""], "OSError: no such file"),
        (["exception", "k", b"", "KeyError", "", "", b""], "KeyError"),
        (["worker-died", "k", 4, "w1", "killed by SIGKILL"],
         "4 workers died while they ran it, the last one: killed by SIGKILL"),
        (["data-lost", "k", "gone"], "gone"),
        (["cancelled", "k", "enough"], "enough"),
        (["rows-failed", "k", 2, 6, "4, 5"], "2 of 6 rows have not succeeded: 4, 5"),
        (["key-conflict", "k"], "key-conflict"),
        (["exception"], "exception"),
        (["exception", {}, [], 1, None], "1"),
        (["x" * 10**6], "x" * (MAX_TEXT - 1) + "…"),
        (["exception", "k", b"", "E", "é" * 10**6, "", b""], "E: " + "é" * (MAX_TEXT - 4) + "…"),
    ],
)  # fmt: skip
def test_any_failure_is_a_short_text(failure, text):
    assert text_of(failure) == text


def test_workers_are_added_up_by_what_they_do():
    board = Board(away_s=5.0)
    client = board.client()
    board.worker("a", nthreads=2, memory_limit=1000)
    leaving = board.worker("b", nthreads=1, memory_limit=1000)
    away = board.worker("c", nthreads=4, memory_limit=1000)
    board.send(client, graph("x"))
    board.send(leaving, m.WorkerLeaving(reason="enough"))
    board.close(away)
    info = overview(board.state)
    assert info["n_workers"] == {"running": 1, "paused": 0, "blocked": 0, "leaving": 1, "away": 1}
    assert (info["threads"], info["memory"]["limit"]) == (7, 3000)
    assert info["threads_busy"] == 1
    assert codes(board) == ["workers-away"]


def test_unrunnable_tasks_are_a_line_after_a_moment_and_without_any_worker_another_one(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a b", function="train", resources={"GPU": 1.0}))
    assert codes(board) == ["ok"]
    board.hold_up(120.0)
    (line,) = [h for h in overview(board.state)["health"] if h["code"] == "unrunnable"]
    assert line["level"] == "error"
    assert line["text"].startswith("2 tasks of train cannot run, for 2 min: no worker offers GPU")
    board.close(worker)
    board.hold_up(60.0)
    lines = overview(board.state)["health"]
    assert [(line["level"], line["code"]) for line in lines] == [("error", "no-workers")]
    assert "2 tasks wait, and there has been no worker for 60 s" in lines[0]["text"]


def test_tasks_that_run_too_long_are_a_line_only_while_nothing_finishes(board):
    client, worker = board.client(), board.worker("w", nthreads=2)
    board.send(client, graph("a"))
    board.finish(worker, "a", us=2_000_000)
    board.hold_up(3600.0)  # idle: no progress is expected
    board.send(client, graph("b c"))
    assert codes(board) == ["ok"]
    board.hold_up(61.0)
    assert codes(board) == ["no-progress"]
    board.finish(worker, "b")
    assert codes(board) == ["ok"]


def test_the_load_is_that_of_the_last_tick_that_had_one(board):
    board.worker()
    board.play(SchedulerTick(load=Load(0.95, 2.0, 0.0)))
    board.tick(1.0)
    assert overview(board.state)["loop_lag_s"] == 2.0
    assert codes(board) == ["scheduler-busy", "scheduler-late"]


def test_of_very_many_functions_the_sums_are_those_of_all(board, monkeypatch):
    n_kept = 100
    monkeypatch.setattr(prefixes, "MAX_IDLE", n_kept)
    client, worker = board.client(), board.worker("w")
    n = n_kept + MAX_SEEN
    for i in range(n):  # more than are kept: the sums of the first ones stay
        board.send(client, graph(f"done-{i}", function=f"f{i}"))
        if i % 50:
            board.finish(worker, f"done-{i}", us=1000 + i)
        else:
            board.raise_(worker, f"done-{i}")
        board.send(client, m.ReleaseKeys(keys=[f"done-{i}"]))
    board.send(client, graph("x y", function="f30"))
    n_failed = n // 50
    described = overview(board.state)["functions"]
    assert len(described) == MAX_SHOWN + 1
    assert (described[0]["name"], described[-1]["name"]) == ("f30", "other")
    assert sum(f["n_finished"] for f in described) == n - n_failed
    assert sum(f["n_failed"] for f in described) == n_failed
    assert sum(f["n_unfinished"] for f in described) == 2
    assert sum(f["n_processing"] for f in described) == 2
    compute_s = sum(1000 + i for i in range(n) if i % 50) / 1e6
    assert sum(f["compute_s"] for f in described) == pytest.approx(compute_s)


def test_functions_with_work_are_shown_first_of_very_many(board):
    client = board.client()
    for i in range(MAX_SEEN + 10):
        board.send(client, graph(f"x{i}", function=f"f{i}"))
    board.send(client, graph("a b c", function="f3"))
    described = overview(board.state)["functions"]
    assert (described[0]["name"], described[0]["n_unfinished"]) == ("f3", 4)
    assert sum(f["n_unfinished"] for f in described) == MAX_SEEN + 13


def test_memory_of_workers_is_what_each_last_reported(board):
    def memory():
        return overview(board.state)["memory"]

    one = board.worker("one", memory_limit=1000)
    board.worker("two", memory_limit=3000)
    board.send(one, status(managed_nbytes=600, resident_nbytes=900))
    assert memory() == {"managed": 600, "resident": 900, "limit": 4000}
    assert codes(board) == ["memory"]
    board.send(one, status(managed_nbytes=100, resident_nbytes=700))
    assert memory() == {"managed": 100, "resident": 700, "limit": 4000}
    assert codes(board) == ["ok"]
    board.close(one)
    assert memory() == {"managed": 0, "resident": 0, "limit": 3000}


def status(*, managed_nbytes: int, resident_nbytes: int) -> m.WorkerStatus:
    return m.WorkerStatus(
        state="running",
        nthreads=1,
        n_records=0,
        n_ready=0,
        managed_nbytes=managed_nbytes,
        resident_nbytes=resident_nbytes,
        cpu_percent=0,
    )


def block(board: Board, client: int, *names: str) -> None:
    arguments = {"names": list(names), "reason": "its disk is full"}
    board.send(client, m.Ask(request=1, name="block_workers", arguments=arguments))
    board.drop_rest()


def test_health_says_that_all_workers_are_blocked(board):
    client = board.client()
    board.worker("a"), board.worker("b", host="there")
    block(board, client, "a")
    assert codes(board) == ["ok"]
    block(board, client, "there")
    (line,) = overview(board.state)["health"]
    assert (line["level"], line["code"]) == ("warning", "workers-blocked")
    assert "b: blocked by alice: its disk is full" in line["text"]
    board.send(client, graph("x"))
    (line,) = overview(board.state)["health"]
    assert line["level"] == "error"
    board.drop_rest()


def test_health_names_workers_that_are_blocked_by_themselves(board):
    board.worker("a", host="bad"), board.worker("b")
    why = "2 failures in a row"
    blocking.block(board.state, ["bad"], "the scheduler", why, 1000, is_automatic=True)
    (line,) = overview(board.state)["health"]
    assert (line["level"], line["code"]) == ("warning", "workers-blocked")
    assert line["text"].startswith(
        "1 worker is blocked, and it gets no task (a: blocked by the scheduler: 2 failures in a "
        "row)"
    )
