"""Workers whose connection breaks while they leave: they come back, and go on leaving."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.leaving.leavers import LOOK_S, START_S
from weft.scheduler.core.records.presence import Members

from ...builders import Board, Out, dropped, graph, inventory

LEAVE = (m.WorkerLeaving(reason="SIGTERM"), m.AskToLeave(request=1))


def may_go(out: Out, worker: int) -> bool:
    return m.MayLeave(request=1) in out.get(worker, [])


def to_hold(out: Out, worker: int) -> list[str]:
    return [key for x in out.get(worker, []) if isinstance(x, m.HoldCopies) for key in x.keys]


def retire(*worker_ids: str) -> m.Ask:
    """Make the order of a client that these workers leave."""
    arguments = {"order": "1", "workers": [*worker_ids], "losses": "wait"}
    return m.Ask(request=9, name="retire", arguments=arguments)


def come_back(board: Board, epoch: int = 0, **rows: object) -> int:
    """Let w0 register again, say that it leaves, and send its inventory."""
    worker = board.worker("w0", last_epoch=epoch or board.state.epoch)
    board.send(worker, *LEAVE, *inventory(**rows))
    return worker


@pytest.fixture
def board() -> Board:
    """x is at w0 alone, which runs y; it has begun to leave."""
    board = Board(away_s=5.0)
    client, w0 = board.client(), board.worker("w0")
    board.send(client, graph("x", "y"), m.WantKeys(keys=["x", "y"]))
    board.finish(w0, "x", blob=None)
    board.w0, board.client_peer = w0, client
    return board


def test_a_leaver_that_comes_back_finishes_and_moves_all_before_it_goes(board):
    board.send(board.w0, *LEAVE, m.AttemptsReturned(attempts=[]))
    board.close(board.w0)
    w1 = board.worker("w1")
    assert to_hold(board.tick(2 * START_S), w1) == []
    assert board.states("x", "y") == ["memory", "processing"]
    w0 = come_back(board, kept={"x": board.attempt("x")}, running={"y": board.attempt("y")})
    assert to_hold(board.out, w1) == ["x"]
    assert to_hold(board.finish(w0, "y", blob=None), w1) == ["y"]
    attempts = {key: board.attempt(key) for key in "xy"}
    out = board.send(w1, m.ReplicasAdded(attempts=[*attempts.values()], keys=[*attempts]))
    assert may_go(out, w0)
    board.send(w0, m.Bye(reason="SIGTERM"))
    assert board.state.counters.tasks_recomputed == 0
    assert board.state.counters.workers_lost == 0
    board.drop_rest()


def test_a_leaver_that_was_let_go_and_comes_back_is_let_go_again(board):
    board.finish(board.w0, "y")
    w1 = board.worker("w1")
    board.send(board.w0, *LEAVE)
    board.tick(2 * START_S)
    attempts = {key: board.attempt(key) for key in "xy"}
    out = board.send(w1, m.ReplicasAdded(attempts=[*attempts.values()], keys=[*attempts]))
    assert may_go(out, board.w0)
    board.close(board.w0)
    w0 = come_back(board, kept=attempts)
    assert may_go(board.out, w0)
    board.drop_rest()


def test_a_worker_that_has_not_read_that_it_leaves_is_asked_again_when_it_is_back(board):
    board.send(board.client_peer, retire("id of w0"))
    board.close(board.w0)
    w0 = board.come_back("w0", kept={"x": board.attempt("x")}, running={"y": board.attempt("y")})
    assert m.LeaveCluster(reason="a client retired it") in board.out[w0]
    assert not may_go(board.send(w0, *LEAVE), w0)
    board.drop_rest()


def test_a_worker_that_has_not_read_that_it_leaves_is_asked_again_for_what_it_has_not_started():
    """It would never start that, and nobody else would."""
    board = Board(away_s=5.0)
    client, w0 = board.client(), board.worker("w0")
    board.send(client, graph("x", "y"), m.WantKeys(keys=["x", "y"]))
    board.send(client, retire("id of w0"))
    board.close(w0)
    w0 = board.come_back(
        "w0", running={"x": board.attempt("x")}, assigned={"y": board.attempt("y")}
    )
    assert m.ReturnAttempts(count=2) in board.out[w0]
    w1 = board.worker("w1")
    board.send(w0, *LEAVE, m.AttemptsReturned(attempts=[board.attempt("y")]))
    assert board.where("y") == w1
    board.drop_rest()


def test_unstarted_tasks_of_a_leaver_go_elsewhere_when_its_client_is_back_after_a_restart():
    """The leaver was asked before the task of that was known."""
    board = Board(expected=Members(("id of w0",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    w0 = board.worker("w0", last_epoch=1)
    board.send(w0, *LEAVE, *inventory(running={"x": 1}, assigned={"y": 2}))
    alice = board.client("alice", last_epoch=1)
    wants = m.WantKeys(keys=["x", "y"])
    out = board.send(alice, graph("x", "y"), wants, m.Resubmitted())
    assert dropped(out, w0) == [2]
    w1 = board.worker("w1")
    board.tick(2.0)  # the recovery ends
    assert (board.where("x"), board.where("y")) == (w0, w1)
    board.drop_rest()


def test_a_leaver_that_does_not_come_back_is_lost(board):
    board.send(board.w0, *LEAVE, m.AttemptsReturned(attempts=[]))
    board.close(board.w0)
    board.worker("w1")
    board.tick(5.0)
    assert board.states("x", "y") == ["processing", "processing"]
    assert board.state.counters.workers_lost == 1
    board.drop_rest()


def test_a_leaver_that_has_nothing_is_not_expected_back():
    board = Board(away_s=5.0)
    worker = board.worker("w0")
    board.send(worker, m.WorkerLeaving(reason="SIGTERM"))
    board.close(worker)
    assert not board.state.workers


def test_tasks_of_a_leaver_go_on_under_a_new_scheduler():
    board = Board(expected=Members(worker_ids=("id of w0",), client_ids=("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    alice = board.client("alice", last_epoch=3)
    w0 = come_back(board, epoch=3, kept={"x": 5}, running={"y": 6})
    board.send(alice, graph("x", "y"), m.WantKeys(keys=["x", "y"]), m.Resubmitted())
    w1 = board.worker("w1")
    board.tick(3.0)
    assert (board.where("y"), board.attempt("y")) == (w0, 6)
    assert not may_go(board.out, w0)
    board.finish(w0, "y")
    board.tick(LOOK_S)
    out = board.send(w1, m.ReplicasAdded(attempts=[5, 6], keys=["x", "y"]))
    assert may_go(out, w0)
    board.send(w0, m.Bye(reason="SIGTERM"))
    assert board.state.counters.tasks_recomputed == 0
    board.drop_rest()


def test_results_of_a_leaver_are_looked_at_when_all_its_rows_are_there(board):
    board.send(board.w0, *LEAVE)
    board.close(board.w0)
    w1 = board.worker("w1")
    w0 = board.worker("w0", last_epoch=board.state.epoch)
    *rows, end = inventory(kept={key: board.attempt(key) for key in "xy"})
    assert to_hold(board.send(w0, *LEAVE, *rows), w1) == []
    board.send(w0, end)
    assert to_hold(board.tick(2 * START_S), w1) == ["x", "y"]
    board.drop_rest()


def test_a_result_of_a_leaver_whose_client_is_back_later_is_moved_at_once():
    board = Board(expected=Members(worker_ids=("id of w0",), client_ids=("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    come_back(board, epoch=3, kept={"x": 5})
    w1 = board.worker("w1")
    board.tick(2 * START_S)
    alice = board.client("alice", last_epoch=3)
    assert to_hold(board.send(alice, graph("x"), m.Resubmitted()), w1) == ["x"]
    board.drop_rest()


def test_a_leaver_with_nothing_that_is_back_before_its_end_was_seen_goes_on_leaving():
    board = Board(away_s=5.0)
    first = board.worker("w0")
    board.send(first, LEAVE[0])
    again = come_back(board)
    assert may_go(board.out, again)
    assert [*board.state.workers] == [again]
    board.send(again, m.Bye(reason="SIGTERM"))
    board.drop_rest()
