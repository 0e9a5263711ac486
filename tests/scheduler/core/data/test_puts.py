"""Large arguments: the client is asked to put their values at the workers that await them."""

from __future__ import annotations

from tests.scheduler.builders import Board, assigned, sent_keys
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.data.puts import puts_of


def data(*keys, **options):
    return m.SubmitTasks(
        functions=[m.PUT_FUNCTION],
        function_names=["shared_argument"],
        function_blobs=[b""],
        function_of=[0] * len(keys),
        keys=list(keys),
        args=[b""] * len(keys),
        dependencies=[],
        spec_hashes=[],
        options=[options],
    )


def call(key, *reads):
    return m.SubmitTasks(
        functions=[bytes(16)[:15] + b"f"],
        function_names=["f"],
        function_blobs=[b"pickle"],
        function_of=[0],
        keys=[key],
        args=[b"args"],
        dependencies=[list(reads)],
        spec_hashes=[],
        options=[{}],
    )


def wanted(out, client):
    """Return {key: (attempt, holder)} of the values that a client is asked for."""
    return {
        key: (attempt, message.holders[place])
        for message in out.get(client, [])
        if isinstance(message, m.PutWanted)
        for key, attempt, place in zip(
            message.keys, message.attempts, message.holder_of, strict=True
        )
    }


def put(board, key, attempt=None):
    attempt = board.attempt(key) if attempt is None else attempt
    return m.Put(request=0, keys=[key], attempts=[attempt], values=[b"value"])


def put_failed(board, key):
    return m.PutFailed(keys=[key], attempts=[board.attempt(key)], reason="it is gone")


def test_the_client_is_asked_with_the_assignment_and_the_call_follows_ahead(board):
    worker = board.worker("w")
    alice = board.client()
    out = board.send(alice, data("d"), call("c", "d"))
    assert wanted(out, alice) == {"d": (board.attempt("d"), "tcp://w")}
    assert list(assigned(out, worker)) == ["d", "c"]
    out = board.finish(worker, "d", blob=None)
    assert sent_keys(out, alice, m.KeysInMemory) == ["d"]


def test_a_lost_value_is_asked_for_again_and_an_old_one_is_dropped(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, data("d"), call("c", "d"))
    old = board.attempt("d")
    board.finish(first, "d", blob=None)
    board.worker("second")
    out = board.close(first)
    assert wanted(out, alice) == {"d": (board.attempt("d"), "tcp://second")}
    assert board.attempt("d") > old
    assert board.send(alice, put(board, "d", old)) == {}
    assert board.state.counters.reports_stale == 1
    assert board.rest() == ["AssignTasks"]


def test_a_worker_that_dies_during_the_put_is_replaced(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, data("d"))
    board.worker("second")
    out = board.close(first)
    assert wanted(out, alice) == {"d": (board.attempt("d"), "tcp://second")}
    assert board.rest() == ["AssignTasks"]


def test_a_value_that_comes_through_the_scheduler_is_passed_on(board):
    worker, alice = board.worker(), board.client()
    board.send(alice, data("d"))
    (passed_on,) = board.send(alice, put(board, "d"))[worker]
    assert passed_on == put(board, "d")


def test_a_client_that_was_away_is_asked_again_when_it_is_back(board):
    alice = board.client()
    board.send(alice, data("d"))
    board.close(alice)
    board.worker("w")
    assert board.states("d") == ["processing"]
    out = board.send(
        (again := board.connect(Role.CLIENT)),
        m.RegisterClient(client_id="alice", name="alice", session=2, last_epoch=7, facts={}),
    )
    assert wanted(out, again) == {"d": (board.attempt("d"), "tcp://w")}


def test_a_client_that_is_connected_is_asked_before_one_that_is_away(board):
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"))
    board.send(bob, data("d"))
    board.close(alice)
    board.worker("w")
    assert wanted(board.out, bob) == {"d": (board.attempt("d"), "tcp://w")}
    assert board.rest() == ["AssignTasks"]


def test_a_queue_that_holds_the_future_is_not_asked(board):
    """What keeps the futures of queues and variables wants the key, but has no value."""
    worker = board.worker("w")
    alice, bob = Caller(board, "alice"), board.client("bob")
    board.send(alice.peer, data("d"))
    board.finish(worker, "d", blob=None)
    alice.put(b"future", "d")
    board.send(alice.peer, m.Bye(reason=""))
    board.send(bob, call("c", "d"))
    board.close(worker)
    board.worker("other")
    assert list(wanted(board.out, bob)) == ["d"]
    board.send(bob, put_failed(board, "d"))
    assert board.states("d") == ["erred"]
    assert board.rest() == ["AssignTasks"]


def test_a_value_that_no_client_has_may_be_released_before_its_task_fails(board):
    board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"))
    board.send(bob, call("c", "d"))
    assert wanted(board.send(alice, put_failed(board, "d")), bob)
    board.send(bob, m.Bye(reason=""))
    board.send(alice, m.ReleaseKeys(keys=["d"]))
    assert board.states("d") == ["-"]
    assert alice not in board.tick(0.125)


def test_a_value_is_not_passed_on_to_a_worker_that_is_away():
    board = Board(away_s=5.0)
    worker, alice = board.worker(), board.client()
    board.send(alice, data("d"))
    board.close(worker)
    assert board.send(alice, put(board, "d")) == {}


def test_a_message_without_a_value_is_not_passed_on(board):
    board.worker(), (alice := board.client())
    board.send(alice, data("d"))
    empty = put(board, "d")
    empty.values = [None]
    assert board.send(alice, empty) == {}
    assert board.state.counters.reports_stale == 1


def test_another_client_is_asked_when_one_has_not_got_the_value(board):
    board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"))
    board.send(bob, data("d"))
    out = board.send(alice, put_failed(board, "d"))
    assert wanted(out, bob) == {"d": (board.attempt("d"), "tcp://w")}
    assert board.states("d") == ["processing"]
    out = board.send(bob, put_failed(board, "d"))
    assert board.states("d") == ["erred"]
    assert sent_keys(out, bob, m.KeysErred) == ["d"]
    assert board.rest() == ["DropAttempts", "KeysErred"]


def test_a_client_that_submits_a_value_again_is_asked_again(board):
    board.worker("w")
    alice, bob, carol = board.client("alice"), board.client("bob"), board.client("carol")
    board.send(alice, data("d"))
    board.send(carol, call("c", "d"))
    board.send(alice, m.ReleaseKeys(keys=["d"]))
    out = board.send(alice, put_failed(board, "d"))
    (asked,) = [peer for peer in (bob, carol) if wanted(out, peer)]
    board.send(alice, data("d"))  # now it has the value
    out = board.send(asked, put_failed(board, "d"))
    assert wanted(out, alice) == {"d": (board.attempt("d"), "tcp://w")}
    assert board.states("d") == ["processing"]


def test_a_value_that_no_client_had_for_a_moment_is_asked_of_one_that_submits_it_again(board):
    board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"))
    board.send(bob, call("c", "d"))
    assert wanted(board.send(alice, put_failed(board, "d")), bob)
    board.send(bob, m.Bye(reason=""))
    board.send(alice, data("d"))
    assert board.states("d") == ["processing"]
    out = board.tick(0.125)
    assert wanted(out, alice) == {"d": (board.attempt("d"), "tcp://w")}
    assert board.states("d") == ["processing"]


def test_a_failed_report_of_a_client_that_was_not_asked_changes_nothing(board):
    board.worker()
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"))
    assert board.send(bob, put_failed(board, "d")) == {}
    assert board.states("d") == ["processing"]


def test_calls_of_others_fail_when_the_only_client_with_the_value_leaves(board):
    worker = board.worker()
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, data("d"), call("c", "d"))
    board.send(bob, m.WantKeys(keys=["c"]))
    out = board.send(alice, m.Bye(reason="closed"))
    assert list(wanted(out, bob)) == ["d"]
    board.send(bob, put_failed(board, "d"))
    assert board.states("c") == ["erred"]
    assert assigned(board.out, worker) == {}
    assert board.rest() == ["DropAttempts", "KeysErred"]


def test_released_values_are_not_asked_for_and_dropped_at_the_worker(board):
    worker, alice = board.worker(), board.client()
    board.send(alice, data("d"))
    attempt = board.attempt("d")
    out = board.send(alice, m.ReleaseKeys(keys=["d"]))
    assert m.DropAttempts(attempts=[attempt]) in out[worker]
    assert board.states("d") == ["-"]


def test_entries_of_tasks_that_are_done_do_not_pile_up(board):
    worker, alice = board.worker(), board.client()
    for i in range(500):
        board.send(alice, data(f"d{i}"))
        board.finish(worker, f"d{i}", blob=None)
        board.send(alice, m.ReleaseKeys(keys=[f"d{i}"]))
    assert len(puts_of(board.state).asked) <= 65
