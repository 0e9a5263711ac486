"""blocked.py: a worker whose tasks wait gets others in their place."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m

from ...builders import Board, assigned, dropped, graph, learn


def block(board: Board, worker: int, key: str):
    return board.send(worker, m.AttemptsBlocked(attempts=[board.attempt(key)]))


def test_a_worker_gets_another_task_while_a_long_one_waits(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=10_000_000)
    board.send(client, graph("parent"))
    assert assigned(board.send(client, graph("child")), worker) == {}
    assert list(assigned(block(board, worker, "parent"), worker)) == ["child"]
    ws = board.state.workers[worker]
    assert (ws.n_busy, ws.occupancy_ns) == (1, board.task("child").estimate_ns)


def test_tasks_that_read_one_that_waits_do_not_fill_its_worker(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=2_000)
    ws = board.state.workers[worker]
    readers = [f"reader{i}" for i in range(100)]
    board.send(client, graph("parent", *(f"parent -> {key}" for key in readers)))
    _, *ahead = ws.processing
    assert ws.occupancy_ns >= ws.backlog_ns
    (asked,) = block(board, worker, "parent")[worker]
    assert asked == m.WithdrawAttempts(attempts=sorted(ahead, reverse=True))
    board.send(worker, m.AttemptsWithdrawn(attempts=ahead[1:], started=ahead[:1]))
    assert set(board.states(*readers)) == {"processing", "waiting"}
    assert ws.processing[ahead[0]].state == "processing"  # its input came before the answer
    assert list(assigned(board.send(client, graph("child")), worker)) == ["child"]
    board.send(client, graph(*(f"parent -> late{i}" for i in range(100))))
    assert set(board.states("late0", "late99")) == {"waiting"}
    board.finish(worker, "child")
    assert "reader1" in assigned(board.finish(worker, "parent"), worker)
    assert board.rest() == ["ResultsReady"]


def test_a_task_that_goes_on_counts_again(board):
    client, worker = board.client(), board.worker()
    learn(board, client, worker, us=10_000_000)
    board.send(client, graph("parent"))
    block(board, worker, "parent")
    ws = board.state.workers[worker]
    assert ws in board.state.idle
    board.send(worker, m.AttemptsResumed(attempts=[board.attempt("parent")]))
    assert ws not in board.state.idle
    assert ws.occupancy_ns == board.task("parent").estimate_ns > 0
    board.finish(worker, "parent")
    assert ws.occupancy_ns == 0


@pytest.mark.parametrize("end", ["finished", "erred", "dropped", "lost"])
def test_a_task_may_end_while_it_waits(board, end):
    client, worker = board.client(), board.worker()
    board.send(client, graph("parent"))
    attempt = board.attempt("parent")
    block(board, worker, "parent")
    ws = board.state.workers[worker]
    if end == "finished":
        board.finish(worker, "parent")
    elif end == "erred":
        board.raise_(worker, "parent")
    elif end == "dropped":
        assert dropped(board.send(client, m.ReleaseKeys(keys=["parent"])), worker) == [attempt]
        assert list(ws.blocked) == [attempt]
        board.send(worker, m.AttemptsEnded(attempts=[attempt]))
    else:
        board.send(worker, m.Bye(reason=""))
        return
    assert not ws.blocked
    assert ws in board.state.idle
    assert board.rest() == (["DropFunctions"] if end == "dropped" else [])


def test_reports_of_unknown_attempts_are_counted_and_do_nothing(board):
    client, worker = board.client(), board.worker()
    other = board.worker("other")
    board.send(client, graph("parent"))
    attempt, where = board.attempt("parent"), board.where("parent")
    stranger = other if where == worker else worker
    board.send(stranger, m.AttemptsBlocked(attempts=[attempt, 5]))
    board.send(stranger, m.AttemptsResumed(attempts=[attempt]))
    board.send(where, m.AttemptsResumed(attempts=[attempt]))
    assert board.state.counters.reports_stale == 4


def test_a_worker_that_comes_back_reports_anew_what_waits(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("parent"))
    attempt = board.attempt("parent")
    block(board, worker, "parent")
    board.close(worker)
    back = board.come_back(running={"parent": attempt})
    ws = board.state.workers[back]
    assert ws.n_busy == 1
    block(board, back, "parent")
    assert ws.n_busy == 0
