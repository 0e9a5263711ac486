"""actors.py: tasks whose results are made once."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m

from ..builders import Board, assigned, dropped, graph, sent_keys


@pytest.fixture
def board() -> Board:
    return Board()


def actors(text: str) -> m.SubmitTasks:
    """Tasks as `graph` makes them, all of which make actors."""
    message = graph(text)
    message.functions = [m.ACTOR_FUNCTION] * len(message.functions)
    return message


def test_an_actor_whose_worker_is_lost_fails_and_is_not_made_again(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, actors("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    two = board.worker("two")
    out = board.close(one)
    (erred,) = [message for message in out[client] if isinstance(message, m.KeysErred)]
    assert erred.keys == ["a"]
    assert erred.failures[0][0] == "actor-lost"
    assert "is lost with its worker one" in erred.failures[0][2]
    assert assigned(out, two) == {}
    assert board.states("a") == ["erred"]


def test_an_actor_that_is_being_made_is_made_elsewhere(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    where = board.where("a")
    out = board.close(where)
    assert list(assigned(out, two if where == one else one)) == ["a"]


def test_copies_of_a_handle_are_dropped_with_the_worker_of_the_actor(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    other = two if home == one else one
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    attempt = board.attempt("a")
    board.send(other, m.ReplicasAdded(attempts=[attempt], keys=["a"]))
    out = board.close(home)
    assert dropped(out, other) == [attempt]
    assert sent_keys(out, client, m.KeysErred) == ["a"]


def test_a_lost_copy_of_a_handle_is_no_loss(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    other = two if home == one else one
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    board.send(other, m.ReplicasAdded(attempts=[board.attempt("a")], keys=["a"]))
    board.close(other)
    assert board.states("a") == ["memory"]


def test_tasks_that_wait_for_a_lost_actor_fail_with_it(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, actors("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.send(client, graph(":a -> b"))
    out = board.close(one)
    assert sorted(sent_keys(out, client, m.KeysErred)) == ["a", "b"]


def test_a_lost_actor_that_is_submitted_again_is_a_new_one(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, actors("a"))
    home = board.where("a")
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    board.close(home)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    out = board.send(client, actors("a"))
    assert list(assigned(out, two if home == one else one)) == ["a"]
