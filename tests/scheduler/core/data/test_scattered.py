"""Scattered data: it goes to any worker at once, and has no recipe as soon as it is there."""

from __future__ import annotations

from tests.scheduler.builders import assigned, graph, sent_keys
from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role

from .test_puts import call, data, put_failed, wanted


def scattered(*keys, **options):
    return data(*keys, scattered=True, **options)


def failures(out, client):
    """Return {key: failure} of the failures that a client is sent."""
    return {
        key: message.failures[place]
        for message in out.get(client, [])
        if isinstance(message, m.KeysErred)
        for key, place in zip(message.keys, message.failure_of, strict=True)
    }


def test_data_goes_to_the_workers_in_turns_although_their_threads_are_busy(board):
    board.worker("w1", nthreads=1)
    board.worker("w2", nthreads=1)
    alice = board.client()
    board.send(alice, graph("a b c d e f"))
    board.tick(5.0)  # the workers are stuck in tasks that take long
    out = board.send(alice, scattered("x", "y", "z", "u"))
    holders = [holder for _, holder in wanted(out, alice).values()]
    assert sorted(holders) == ["tcp://w1"] * 2 + ["tcp://w2"] * 2
    assert board.rest() == ["AssignTasks", "AssignTasks"]


def test_stored_data_has_no_recipe_and_its_class_is_gone(board):
    worker, alice = board.worker("w"), board.client()
    board.send(alice, scattered("x"))
    assert not board.task("x").is_without_recipe
    assert board.state.threadless
    out = board.finish(worker, "x", blob=None)
    assert sent_keys(out, alice, m.KeysInMemory) == ["x"]
    assert board.task("x").is_without_recipe
    assert board.task("x").args is None
    assert not board.state.threadless


def test_data_whose_worker_dies_before_it_is_there_is_asked_for_again(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, scattered("x"))
    board.worker("second")
    out = board.close(first)
    assert wanted(out, alice) == {"x": (board.attempt("x"), "tcp://second")}
    assert board.rest() == ["AssignTasks"]


def test_lost_data_fails_with_all_that_needs_it_and_the_text_names_the_remedy(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, scattered("x"))
    board.finish(first, "x", blob=None)
    board.send(alice, call("c", "x"))
    board.close(first)
    out = board.tick(0.1)
    found = failures(out, alice)
    assert sorted(found) == ["c", "x"]
    for failure in found.values():
        kind, key, text = failure
        assert (kind, key) == ("data-lost", "x")
        assert "it was scattered" in text
        assert "scatter it again" in text


def test_data_that_is_scattered_again_after_its_loss_comes_back_to_life(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, scattered("x"))
    board.finish(first, "x", blob=None)
    board.close(first)
    board.tick(0.1)
    assert board.states("x") == ["erred"]
    board.worker("second")
    out = board.send(alice, scattered("x"))
    assert wanted(out, alice) == {"x": (board.attempt("x"), "tcp://second")}
    assert board.rest() == ["AssignTasks"]


def test_data_that_is_scattered_again_while_it_is_there_is_not_asked_for(board):
    worker, alice, bob = board.worker("w"), board.client("alice"), board.client("bob")
    board.send(alice, scattered("x"))
    board.finish(worker, "x", blob=None)
    out = board.send(bob, scattered("x"))
    assert wanted(out, bob) == {}
    assert sent_keys(out, bob, m.KeysInMemory) == ["x"]
    assert board.task("x").is_without_recipe


def test_a_call_that_replaces_data_leaves_its_function_to_the_client_of_the_data(board):
    """The client counts on that from then on, and sends its blob no more."""
    worker, alice, bob = board.worker("w"), board.client("alice"), board.client("bob")
    board.send(alice, scattered("x"))
    board.finish(worker, "x", blob=None)
    board.send(bob, graph("x", function="constant"))
    assert not board.task("x").is_without_recipe
    known = scattered("y")
    known.function_blobs = [None]
    out = board.send(alice, known)
    assert board.refused() == []
    assert wanted(out, alice) == {"y": (board.attempt("y"), "tcp://w")}
    board.send(alice, m.ReleaseKeys(keys=["x", "y"]))
    assert m.PUT_FUNCTION not in board.state.functions
    assert board.rest() == ["AssignTasks"]


def test_data_of_which_a_copy_is_left_goes_on(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, scattered("x"))
    board.finish(first, "x", blob=None)
    second = board.worker("second")
    attempt = board.attempt("x")
    board.send(second, m.ReplicasAdded(attempts=[attempt], keys=["x"]))
    board.close(first)
    assert board.states("x") == ["memory"]


def test_a_result_that_needs_released_data_fails_when_it_must_be_computed_again(board):
    first, alice = board.worker("first"), board.client()
    board.send(alice, scattered("x"), call("c", "x"))
    board.finish(first, "x", blob=None)
    board.finish(first, "c", blob=None)
    out = board.send(alice, m.ReleaseKeys(keys=["x"]))
    assert any(isinstance(message, m.DropAttempts) for message in out[first])
    board.close(first)
    out = board.tick(0.1)
    assert failures(out, alice)["c"][:2] == ["data-lost", "x"]


def test_data_waits_for_a_worker_that_it_names(board):
    board.worker("w1")
    alice = board.client()
    out = board.send(alice, scattered("x", workers=["w2"]))
    assert wanted(out, alice) == {}
    board.worker("w2")
    assert wanted(board.out, alice) == {"x": (board.attempt("x"), "tcp://w2")}
    assert board.rest() == ["AssignTasks"]


def test_data_that_no_client_has_any_more_fails_as_scattered(board):
    board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    board.send(alice, scattered("x"))
    board.send(bob, m.WantKeys(keys=["x"]))
    board.send(alice, put_failed(board, "x"))
    out = board.send(bob, put_failed(board, "x"))
    assert "it was scattered" in failures(out, bob)["x"][2]
    assert board.rest() == ["DropAttempts", "KeysErred"]


def test_calls_that_read_data_are_assigned_behind_it(board):
    worker, alice = board.worker("w"), board.client()
    out = board.send(alice, scattered("x"), call("c", "x"))
    assert list(assigned(out, worker)) == ["x", "c"]
    assert board.rest() == ["PutWanted"]


def test_a_client_that_was_away_finds_its_data_stored(board):
    worker, alice = board.worker("w"), board.client()
    board.send(alice, scattered("x"))
    board.close(alice)
    board.finish(worker, "x", blob=None)
    again = board.connect(Role.CLIENT)
    hello = m.RegisterClient(client_id="alice", name="alice", session=2, last_epoch=7, facts={})
    board.send(again, hello)
    out = board.send(again, m.WantKeys(keys=["x"]))
    assert sent_keys(out, again, m.KeysInMemory) == ["x"]
    assert board.task("x").is_without_recipe


def test_calls_that_are_marked_as_data_stay_calls(board):
    worker, alice = board.worker("w"), board.client()
    board.send(alice, graph("a -> b", scattered=True))
    board.finish(worker, "a", blob=None)
    board.finish(worker, "b", blob=None)
    assert not board.task("a").is_without_recipe
    board.worker("other")
    board.close(worker)
    assert board.states("a", "b") == ["processing", "waiting"]


def test_a_failure_of_what_reads_stored_data_is_sent_to_a_client_that_wants_it_later(board):
    """That the data has no recipe is not why it failed."""
    worker, alice = board.worker("w"), board.client()
    board.send(alice, scattered("x"))
    board.finish(worker, "x", blob=None)
    board.send(alice, call("c", "x"))
    board.raise_(worker, "c")
    bob = board.client("bob")
    out = board.send(bob, m.WantKeys(keys=["c"]))
    assert [kind for kind, *_ in failures(out, bob).values()] == ["exception"]
