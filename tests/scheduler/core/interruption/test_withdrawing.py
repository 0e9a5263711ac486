"""withdrawing.py: calls that have not begun are cancelled, and the others are named."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.interruption.withdrawing import withdrawals_of

from ...builders import Board, finished, graph, sent_keys


def withdraw(*keys: str) -> m.WithdrawKeys:
    return m.WithdrawKeys(keys=[*keys], reason="why")


def test_calls_that_no_worker_has_are_cancelled_at_once(board):
    client = board.client()
    board.send(client, graph("a", "b -> c"))
    out = board.send(client, withdraw("a", "b"))
    assert sent_keys(out, client, m.KeysCancelled) == ["a", "b"]
    assert sent_keys(out, client, m.KeysErred) == ["c"]  # it reads b
    assert sent_keys(out, client, m.KeysStarted) == []


def test_a_worker_is_asked_and_its_answer_decides(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", "c"))
    a, b, c = map(board.attempt, "abc")
    out = board.send(client, withdraw("a", "b", "c"))
    assert out == {worker: [m.WithdrawAttempts(attempts=[a, b, c])]}
    out = board.send(worker, m.AttemptsWithdrawn(attempts=[c, b], started=[a]))
    assert sent_keys(out, client, m.KeysStarted) == ["a"]
    assert sent_keys(out, client, m.KeysCancelled) == ["c", "b"]
    assert worker not in out  # it is not sent them again, nor told to drop them
    assert board.states("a") == ["processing"]
    assert not withdrawals_of(board.state)


def test_a_call_that_another_client_wants_is_placed_again(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    board.send(alice, withdraw("a"))
    first = board.attempt("a")
    out = board.send(worker, m.AttemptsWithdrawn(attempts=[first], started=[]))
    assert sent_keys(out, alice, m.KeysCancelled) == ["a"]
    assert bob not in out
    assert board.states("a") == ["processing"]
    assert board.attempt("a") > first
    assert board.rest() == ["AssignTasks"]


def test_two_clients_that_withdraw_a_key_are_both_answered(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    board.send(alice, withdraw("a"))
    board.send(bob, withdraw("a"))
    out = board.send(worker, m.AttemptsWithdrawn(attempts=[], started=[board.attempt("a")]))
    assert sent_keys(out, alice, m.KeysStarted) == sent_keys(out, bob, m.KeysStarted) == ["a"]


def test_a_call_of_a_worker_that_is_away_may_have_begun():
    board = Board(away_s=5.0)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.close(worker)
    out = board.send(client, withdraw("a"))
    assert out == {client: [m.KeysStarted(keys=["a"])]}
    assert board.states("a") == ["processing"]
    assert not withdrawals_of(board.state)


def test_keys_that_are_done_or_unknown_are_not_cancelled(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    out = board.send(client, withdraw("a", "nowhere"))
    assert out == {client: [m.KeysStarted(keys=["a", "nowhere"])]}


def test_a_task_that_ends_before_the_answer_keeps_its_result(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.send(client, withdraw("a"))
    out = board.send(worker, finished([attempt]))
    assert sent_keys(out, client, m.ResultsReady) == ["a"]
    assert board.send(worker, m.AttemptsWithdrawn(attempts=[], started=[attempt])) == {}
    assert not withdrawals_of(board.state)


def test_a_worker_may_be_wrong_about_what_it_was_asked(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    out = board.send(worker, m.AttemptsWithdrawn(attempts=[99, 99], started=[98]))
    assert client not in out
    assert board.state.counters.reports_stale == 2
    # Attempts that nobody withdrew are placed again, as those that a worker returns.
    first = board.attempt("a")
    board.send(worker, m.AttemptsWithdrawn(attempts=[first], started=[]))
    assert board.states("a") == ["processing"]
    assert board.attempt("a") > first


def test_a_client_that_left_is_not_sent_the_answer(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.send(client, withdraw("a"), m.Bye(reason=""))
    assert client not in board.send(
        worker, m.AttemptsWithdrawn(attempts=[attempt], started=[attempt])
    )
