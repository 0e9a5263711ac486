"""What is shown of workers that leave: since when, what they still have, and when they end."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.info import describe_worker
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.leaving import describing
from weft.scheduler.core.leaving.describing import LONG_S, MAX_SEEN
from weft.scheduler.core.leaving.leavers import START_S

from ...builders import Board, graph


def leaving(*keys: str, left_ms: int = 0, nbytes: int = 1000) -> tuple[Board, int]:
    """Let a worker leave that has the results of these keys."""
    board = Board()
    client, worker = board.client(), board.worker("w0")
    board.send(client, graph(*keys), m.WantKeys(keys=list(keys)))
    for key in keys:
        board.finish(worker, key, blob=None, nbytes=nbytes)
    board.send(client, graph("runs"))
    board.send(
        worker,
        m.WorkerLeaving(reason="SIGTERM"),
        m.AskToLeave(request=1, left_ms=left_ms),
        m.AttemptsReturned(attempts=[]),
    )
    board.tick(2 * START_S)
    return board, worker


def shown(board: Board) -> tuple[dict, str, dict]:
    (ws,) = (ws for ws in board.state.workers.values() if ws.is_leaving)
    row = describe_worker(board.state, ws)
    return row["leaving"], row["why_not"], overview(board.state)


def leaving_lines(board: Board) -> list[str]:
    lines = overview(board.state)["health"]
    return [line["text"] for line in lines if line["code"] == "workers-leaving"]


def test_a_worker_that_does_not_leave_has_no_such_facts(board):
    board.worker("w0")
    (ws,) = board.state.workers.values()
    assert describe_worker(board.state, ws)["leaving"] == {}
    assert leaving_lines(board) == []


def test_results_without_room_and_the_end_of_their_worker_are_shown():
    board, _ = leaving("x", "y", left_ms=30_000)
    facts, why_not, _ = shown(board)
    assert (facts["n_left"], facts["nbytes_left"], facts["n_stuck"]) == (2, 2000, 2)
    assert facts["reason"] == "SIGTERM"
    assert 0 < facts["since_s"] < 30 - facts["ends_in_s"] + 1
    for part in ("SIGTERM", "1 task", "2 results (1.95 KiB)", "room for 2 of them", "in any case"):
        assert part in why_not, why_not
    (line,) = leaving_lines(board)
    assert line.startswith("1 worker cannot leave yet (w0: it is leaving (SIGTERM), for ")
    assert "weft retire --drop" in line
    values = metrics(board.state)
    assert (values["leaving_results"], values["leaving_bytes"]) == (2, 2000)
    assert values["results_moved_total"] == 0


def test_moved_results_are_counted_and_no_longer_shown():
    board, worker = leaving("x", "y")
    other = board.worker("w1")
    attempts = [board.attempt(key) for key in "xy"]
    board.send(other, m.ReplicasAdded(attempts=attempts, keys=["x", "y"]))
    facts, why_not, _ = shown(board)
    assert (facts["n_left"], facts["n_moved"], facts["nbytes_moved"]) == (0, 2, 2000)
    assert facts["ends_in_s"] is None
    assert "in any case" not in why_not
    assert leaving_lines(board) == [], "it runs a task, and not for long"
    for _ in range(int(LONG_S)):
        board.tick(1.0)
        board.send(worker, m.Heartbeat())
    assert len(leaving_lines(board)) == 1
    board.finish(worker, "runs")
    board.send(worker, m.Bye(reason="SIGTERM"))
    values = metrics(board.state)
    assert (values["leaving_results"], values["leaving_bytes"]) == (0, 0)
    assert (values["results_moved_total"], values["moved_bytes_total"]) == (2, 2000)


def test_of_very_many_results_some_stand_for_all(monkeypatch):
    assert MAX_SEEN >= 100
    monkeypatch.setattr(describing, "MAX_SEEN", 10)
    board, _ = leaving(*(f"k{i}" for i in range(50)))
    facts, _, _ = shown(board)
    assert (facts["n_left"], facts["nbytes_left"], facts["n_stuck"]) == (50, 50_000, 50)
