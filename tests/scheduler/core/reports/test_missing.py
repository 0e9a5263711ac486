"""missing.py: copies that count or do not, and reports that a holder has no data."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.recovery.records import recovery_of
from weft.scheduler.core.reports.missing import MAX_RETRY_PART, MAX_UNREACHABLE_ROUNDS

from ...builders import Board, assigned, dropped, graph, sent_keys


def test_a_copy_of_an_earlier_result_of_a_key_is_dropped(board):
    """The two may differ, and what was computed from one of them must stay with it."""
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"], allow_other_workers=True))
    board.finish(one, "a", blob=None)
    first = board.attempt("a")
    three = board.worker("three")
    board.close(one)
    again = board.where("a")
    board.finish(again, "a", blob=None)
    reader = three if again == two else two
    out = board.send(reader, m.ReplicasAdded(attempts=[first], keys=["a"]))
    assert dropped(out, reader) == [first]
    assert [ws.peer for ws in board.task("a").replicas] == [again]


def test_a_copy_that_is_reported_twice_is_one(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    added = m.ReplicasAdded(attempts=[board.attempt("a")], keys=["a"])
    board.send(two, added)
    out = board.send(two, added)
    assert dropped(out, two) == []
    assert [ws.peer for ws in board.task("a").replicas] == [one, two]
    assert board.state.workers[two].nbytes == 8


def test_a_copy_counts_only_if_it_comes_after_what_drops_it(board):
    """All of one batch was sent before the drop is read, which ends the second copy as well."""
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    attempts = [board.attempt("a")]
    added = m.ReplicasAdded(attempts=attempts, keys=["a"])
    missing = m.KeysMissing(keys=["a"], holder="tcp://two", unreachable=False, attempts=attempts)
    out = board.send(two, added, missing, added)
    assert dropped(out, two) == attempts
    assert [ws.peer for ws in board.task("a").replicas] == [one]
    board.send(two, added)
    assert [ws.peer for ws in board.task("a").replicas] == [one, two]
    board.drop_rest()


def test_a_task_that_waits_for_something_else_waits_again_for_a_lost_input(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"], allow_other_workers=True))
    board.finish(one, "a", blob=None)
    board.send(client, graph("c", workers=["two"]), graph(":a :c -> b", blob=None, workers=["x"]))
    board.close(one)
    assert board.states("a", "b", "c") == ["processing", "waiting", "processing"]
    board.finish(two, "c", blob=None)
    assert board.states("b") == ["waiting"]
    board.finish(board.where("a"), "a", blob=None)
    assert board.states("b") == ["no_worker"]


def test_a_client_that_has_a_value_is_not_sent_that_it_is_computed_again(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"], allow_other_workers=True))
    board.finish(one, "a")
    board.send(client, graph(":a -> b", blob=None, workers=["two"]))
    out = board.close(one)
    assert "a" in assigned(out, two)
    assert sent_keys(out, client, m.KeysPending) == []
    assert board.rest() == ["HoldersGone"]


def test_the_pauses_between_attempts_to_reach_a_holder_do_not_grow_without_end(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]))
    board.finish(one, "a", blob=None)
    board.send(client, graph(":a -> b", blob=None, workers=["two"]))
    longest_s = MAX_RETRY_PART * board.state.settings.heartbeat_s * (MISSED_HEARTBEATS + 1)
    n = 0
    while board.states("b") == ["processing"]:
        n += 1
        attempt = board.attempt("b")
        message = m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True)
        board.send(two, message, m.AttemptsEnded(attempts=[attempt]))
        if board.states("b") == ["no_worker"]:
            board.send(one, m.Heartbeat())
            board.send(two, m.Heartbeat())
            board.tick(longest_s + 0.01)
        assert n < 100
    assert board.states("b") == ["erred"]


def test_no_task_fails_because_the_holder_of_its_input_is_away():
    """A death is noticed after so many missed heartbeats, and then there is time to come back."""
    board = Board(away_s=5.0)
    patience_s = board.state.settings.heartbeat_s * (MISSED_HEARTBEATS + 1)
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"], allow_other_workers=True))
    board.finish(one, "a", blob=None)
    board.send(client, graph(":a -> b", blob=None, workers=["two"]))

    def not_reached() -> None:
        attempt = board.attempt("b")
        message = m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True)
        board.send(two, message, m.AttemptsEnded(attempts=[attempt]))

    def wait(seconds: float) -> None:
        for _ in range(int(seconds)):
            board.send(two, m.Heartbeat())
            board.tick(1.0)

    for _ in range(MAX_UNREACHABLE_ROUNDS):
        not_reached()
    wait(patience_s - 3.0)
    board.close(one)
    for _ in range(2):
        wait(2.0)
        not_reached()
    assert board.states("b") == ["no_worker"]
    wait(6.0)
    not_reached()
    assert board.states("a", "b") == ["processing"] * 2, "it is made again"
    board.drop_rest()


def test_a_report_of_a_client_that_does_not_want_the_key_makes_nothing_again(board):
    alice, bob = board.client("alice"), board.client("bob")
    one, two = board.worker("one"), board.worker("two")
    board.send(alice, graph("a", workers=["one"], allow_other_workers=True))
    board.finish(one, "a")  # alice has its value
    board.close(one)
    report = m.ReportMissing(keys=["a"], holder="tcp://one")
    assert assigned(board.send(bob, report), two) == {}
    assert board.states("a") == ["released"]
    assert list(assigned(board.send(alice, report), two)) == ["a"]
    assert board.rest() == ["KeysPending", "KeysPending"]


def test_a_missing_result_is_reported_when_a_worker_comes_back_with_it(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a")
    attempt = board.attempt("a")
    board.close(worker)
    out = board.send(client, m.ReportMissing(keys=["a"], holder="tcp://w"))
    assert sent_keys(out, client, m.KeysPending) == ["a"]
    board.come_back(kept={"a": attempt})
    assert sent_keys(board.out, client, m.KeysInMemory) == ["a"]
    assert board.rest() == ["Reconciled"]


def test_a_worker_that_makes_a_key_itself_is_not_sent_that_it_is_unknown():
    """A task without a recipe waits for it there, and would be given back."""
    board = Board(away_s=5.0)
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client(last_epoch=5)
    board.send(client, m.WantKeys(keys=["b", "r"]), graph("a"))
    worker = board.come_back(last_epoch=5, running={"r": 3}, assigned={"b": 4})
    board.send(worker, m.KeysMissing(keys=["a"], holder=""))
    board.tick(QUIET_S)
    board.finish(worker, "r")
    assert (board.where("a"), board.where("b")) == (worker, worker)
    assert list(recovery_of(board.state).lacking[board.state.workers[worker]]) == ["a"]
    state = board.state
    while state.awaits_owners:
        board.send(worker, m.Heartbeat())
        out = board.tick(5.0)
        assert sent_keys(out, worker, m.KeysUnknown) == []
    assert (board.where("a"), board.where("b")) == (worker, worker)
